-- A kept answer is seen, added and dropped by the request that it is of, as `app.attempt`; what is old
-- is dropped by a function.
ALTER TABLE kept_answers ENABLE ROW LEVEL SECURITY;
ALTER TABLE kept_answers FORCE ROW LEVEL SECURITY;
CREATE POLICY kept_answer_own ON kept_answers TO sluice_app USING (
    id = (SELECT nullif(current_setting('app.attempt', true), '')::uuid)
);
CREATE POLICY kept_answer_functions ON kept_answers TO sluice_ledger USING (true);
-- Added and dropped, never changed.
GRANT SELECT, INSERT, DELETE ON kept_answers TO sluice_app;
GRANT SELECT, DELETE ON kept_answers TO sluice_ledger;
