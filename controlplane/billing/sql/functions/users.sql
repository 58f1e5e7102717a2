-- Gives end users their budgets, or the new period that their project's began, before a batch holds on
-- them. In one order, and without a lock on a row that needs nothing. At most 10,000 end users of a
-- project have one: where those of earlier periods left no room, a hold finds the budget missing.
CREATE OR REPLACE FUNCTION ledger_user_budgets(p_budgets uuid[], p_templates uuid[])
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    mine record;
BEGIN
    FOR mine IN
        SELECT a.budget, a.template, t.organization, t.began_at, t.allowance, q.project,
               p.began_at AS had_begun, p.allowance AS had_allowance
        FROM (SELECT DISTINCT unnest(p_budgets) AS budget, unnest(p_templates) AS template) AS a
             JOIN budget_terms t ON t.budget = a.template
             JOIN budget_parts q ON q.budget = a.template
             LEFT JOIN budget_parts p ON p.budget = a.budget
        WHERE (p.began_at, p.allowance) IS DISTINCT FROM (t.began_at, t.allowance)
        ORDER BY a.budget
    LOOP
        IF mine.had_begun IS NULL THEN
            IF (SELECT count(*) FROM budget_parts WHERE template = mine.template) >= 10000 THEN
                WITH old AS (
                    SELECT p.budget FROM budget_parts p
                    WHERE p.template = mine.template AND p.began_at < mine.began_at
                    LIMIT 1000 FOR UPDATE SKIP LOCKED
                ), gone AS (
                    DELETE FROM budgets b USING old WHERE b.id = old.budget AND b.held = 0
                    RETURNING b.id
                )
                DELETE FROM budget_parts p USING gone WHERE p.budget = gone.id;
                CONTINUE WHEN NOT FOUND;
            END IF;
            INSERT INTO budget_parts (budget, organization, project, template, began_at, allowance)
            VALUES (mine.budget, mine.organization, mine.project, mine.template, mine.began_at,
                    mine.allowance) ON CONFLICT (budget) DO NOTHING;
            INSERT INTO budgets (id, organization, scope, lim)
            VALUES (mine.budget, mine.organization, 'user', mine.allowance)
            ON CONFLICT (id) DO NOTHING;
            CONTINUE;
        END IF;
        UPDATE budget_parts p SET began_at = mine.began_at, allowance = mine.allowance
        WHERE p.budget = mine.budget AND (p.began_at, p.allowance)
              IS NOT DISTINCT FROM (mine.had_begun, mine.had_allowance);
        CONTINUE WHEN NOT FOUND;
        UPDATE budgets b SET lim = l.lim, over = greatest(0, b.posted + b.held - l.lim)
        FROM (SELECT greatest(0, least(4000000000000000000, mine.allowance::numeric + CASE
                         WHEN mine.had_begun = mine.began_at THEN o.lim - mine.had_allowance
                         ELSE o.posted END))::bigint AS lim
              FROM budgets o WHERE o.id = mine.budget FOR UPDATE) AS l
        WHERE b.id = mine.budget;
    END LOOP;
END $$;

GRANT EXECUTE ON FUNCTION ledger_user_budgets TO sluice_gateway;
