-- The number of the configuration that gateways read, and at which number something of it changed
-- last: a row by its id, or a whole part under the id of zeros. Gateways read what is marked since
-- the number that they have.
INSERT INTO config_version (id, version) VALUES (1, 1);
GRANT SELECT ON config_version TO sluice_app, sluice_ledger;

CREATE TABLE config_marks (
    kind text NOT NULL,
    subject uuid NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (kind, subject)
);
CREATE INDEX config_marks_newest ON config_marks (version);
REVOKE ALL ON config_marks FROM PUBLIC;
GRANT SELECT ON config_marks TO sluice_ledger;
