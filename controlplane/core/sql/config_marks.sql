-- At which number of the configuration something of it changed last: a row by its id, or a whole part
-- under the id of zeros. Gateways read what is marked since the number that they have.
CREATE TABLE config_marks (
    kind text NOT NULL,
    subject uuid NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (kind, subject)
);
CREATE INDEX config_marks_newest ON config_marks (version);
REVOKE ALL ON config_marks FROM PUBLIC;
GRANT SELECT ON config_marks TO sluice_ledger;
