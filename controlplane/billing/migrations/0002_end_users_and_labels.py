"""Charges by end user and labels, and budgets of parts of a project."""

from django.db import migrations, models

SQL = """
-- End users and labels of charges: parts of the hours' key, empty where requests named none.
ALTER TABLE ledger_hours ADD COLUMN end_user text NOT NULL DEFAULT '',
                         ADD COLUMN labels text NOT NULL DEFAULT '',
                         DROP CONSTRAINT ledger_hours_pkey;
ALTER TABLE ledger_hours ADD PRIMARY KEY (
    organization, hour, project, key, model, price_version, input_pico, cached_pico, output_pico,
    end_user, labels);

-- Budgets of parts of a project: of one model (`model`), the one that every end user gets (`users`),
-- and those that end users got from it (`user`), of which there may be many: no gateway is told.
ALTER TABLE budgets DROP CONSTRAINT budgets_scope_check, ADD CONSTRAINT budgets_scope_check CHECK (
    scope IN ('key', 'project', 'organization', 'wallet', 'model', 'users', 'user'));

-- Beside the hot row of the budget. An end user's was made from `template`, whose period began at
-- `began_at` when it was last used; `allowance` is what a period of it allowed then.
CREATE TABLE budget_parts (
    budget uuid NOT NULL PRIMARY KEY,
    organization uuid NOT NULL,
    project uuid NOT NULL,
    template uuid,
    began_at timestamptz,
    allowance bigint,
    model text
);
CREATE INDEX budget_parts_of_template ON budget_parts (template, began_at)
    WHERE template IS NOT NULL;
ALTER TABLE budget_parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE budget_parts FORCE ROW LEVEL SECURITY;
CREATE POLICY functions_all ON budget_parts TO sluice_ledger USING (true) WITH CHECK (true);
DO $$ BEGIN
    EXECUTE 'CREATE POLICY owner_reads ON budget_parts FOR SELECT TO CURRENT_USER USING (true)';
END $$;
CREATE POLICY tenant ON budget_parts TO sluice_app USING (
    organization = ANY ((SELECT NULLIF(current_setting('app.orgs', true), '')::uuid[])::uuid[])
);
GRANT SELECT, INSERT ON budget_parts TO sluice_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON budget_parts TO sluice_ledger;
GRANT DELETE ON budgets TO sluice_ledger;

DROP TRIGGER budget_config ON budgets;
CREATE CONSTRAINT TRIGGER budget_config AFTER INSERT ON budgets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.scope <> 'user')
    EXECUTE FUNCTION config_changed();
DROP TRIGGER budget_limited ON budgets;
CREATE CONSTRAINT TRIGGER budget_limited AFTER UPDATE OF lim ON budgets
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.scope <> 'user'
          AND (OLD.lim < 4000000000000000000) <> (NEW.lim < 4000000000000000000))
    EXECUTE FUNCTION config_changed();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]

    operations = [
        migrations.RunSQL(SQL),
        migrations.CreateModel(
            name="BudgetPart",
            fields=[
                ("budget", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("template", models.UUIDField(null=True)),
                ("model", models.TextField(null=True)),
            ],
            options={"db_table": "budget_parts", "managed": False},
        ),
    ]
