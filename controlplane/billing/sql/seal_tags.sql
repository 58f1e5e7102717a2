-- Four bytes for each line of a seal, in the lines' order; seals from before have none.
ALTER TABLE ledger_seals ADD COLUMN tags bytea;
