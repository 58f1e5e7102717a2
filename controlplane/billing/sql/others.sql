-- A request whose rule names several models is held for at the dearest; the prices of those beside
-- `model` travel with the hold, so that whoever settles it can charge by the one that served:
-- {"<model>": {"version": 1, "input_pico": 1, "cached_pico": 1, "output_pico": 1}}. Null without.
ALTER TABLE open_holds ADD COLUMN others jsonb;
ALTER TABLE transfers ADD COLUMN others jsonb;

DROP FUNCTION IF EXISTS ledger_hold(
    uuid[], uuid[], uuid[], uuid[], bigint[], text[], integer[], bigint[], bigint[], bigint[],
    integer[], text[]);
DROP FUNCTION IF EXISTS ledger_hold_exact(
    uuid[], uuid[], uuid[], uuid[], bigint[], text[], integer[], bigint[], bigint[], bigint[],
    integer[], text[], boolean);
DROP FUNCTION IF EXISTS ledger_book_holds(
    uuid[], uuid[], uuid[], uuid[], bigint[], text[], integer[], bigint[], bigint[], bigint[],
    integer[], text[], text[]);
DROP FUNCTION IF EXISTS ledger_book_late(uuid, bigint, integer[], text);
