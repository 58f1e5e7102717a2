"""Tables of billing; those of the ledger are made by SQL, and models only tell Django of them."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("core", "0001_initial"),
        ("telemetry", "0001_initial"),
    ]

    operations = [
        run_sql_file(__file__, "owner/triggers.sql"),
        run_sql_file(__file__, "owner/partitions.sql"),
        run_sql_file(__file__, "functions/invoices.sql"),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                (
                    "scope",
                    models.TextField(
                        choices=[
                            ("key", "Key"),
                            ("project", "Project"),
                            ("organization", "Organization"),
                            ("wallet", "Wallet"),
                        ]
                    ),
                ),
                ("lim", models.BigIntegerField()),
                ("posted", models.BigIntegerField(default=0)),
                ("held", models.BigIntegerField(default=0)),
                ("over", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "budgets",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="BudgetAlert",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "budget",
                        "began_at",
                        "percent",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("budget", models.UUIDField()),
                ("began_at", models.DateTimeField()),
                ("percent", models.SmallIntegerField()),
                ("organization", models.UUIDField()),
                ("spent", models.BigIntegerField()),
                ("allowance", models.BigIntegerField()),
                ("raised_at", models.DateTimeField()),
            ],
            options={
                "db_table": "budget_alerts",
                "ordering": ["-raised_at"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="JournalEntry",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("organization", models.UUIDField()),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("topup", "Top-up"),
                            ("credit", "Credit"),
                            ("adjustment", "Adjustment"),
                            ("reversal", "Reversal"),
                            ("invoice_rounding", "Invoice Rounding"),
                            ("tax", "Tax"),
                            ("payment", "Payment"),
                            ("writeoff", "Writeoff"),
                            ("cogs", "Cogs"),
                        ]
                    ),
                ),
                ("debit", models.TextField()),
                ("credit", models.TextField()),
                ("amount", models.BigIntegerField()),
                ("reason", models.TextField()),
                ("reference", models.TextField()),
                ("reverses", models.UUIDField(null=True)),
                ("idempotency", models.TextField()),
                ("actor_label", models.TextField()),
                ("approved_by", models.TextField()),
                ("booked_at", models.DateTimeField()),
                ("payload_hash", models.BinaryField()),
            ],
            options={
                "db_table": "journal_entries",
                "ordering": ["booked_at", "id"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="LedgerHour",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "organization",
                        "hour",
                        "project",
                        "key",
                        "model",
                        "price_version",
                        "input_pico",
                        "cached_pico",
                        "output_pico",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("organization", models.UUIDField()),
                ("hour", models.DateTimeField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("model", models.TextField()),
                ("price_version", models.IntegerField()),
                ("input_pico", models.BigIntegerField()),
                ("cached_pico", models.BigIntegerField()),
                ("output_pico", models.BigIntegerField()),
                ("requests", models.BigIntegerField()),
                ("uncached", models.BigIntegerField()),
                ("cached", models.BigIntegerField()),
                ("output", models.BigIntegerField()),
                ("nano", models.BigIntegerField()),
            ],
            options={
                "db_table": "ledger_hours",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="LedgerSeal",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("from_at", models.DateTimeField()),
                ("to_at", models.DateTimeField()),
                ("rows", models.BigIntegerField()),
                ("amount", models.DecimalField(decimal_places=0, max_digits=38)),
                ("previous", models.BinaryField()),
                ("digest", models.BinaryField()),
                ("tags", models.BinaryField(null=True)),
            ],
            options={
                "db_table": "ledger_seals",
                "ordering": ["number"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="OpenHold",
            fields=[
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("amount", models.BigIntegerField()),
                ("model", models.TextField()),
                ("price_version", models.IntegerField()),
                ("input_pico", models.BigIntegerField()),
                ("cached_pico", models.BigIntegerField()),
                ("output_pico", models.BigIntegerField()),
                ("others", models.JSONField(null=True)),
                ("request", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "budgets",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), size=None
                    ),
                ),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "db_table": "open_holds",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="PeriodClose",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("period", models.TextField()),
                ("begins", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("transfers", models.BigIntegerField()),
                ("entries", models.BigIntegerField()),
                ("totals", models.JSONField()),
                ("last_booked_at", models.DateTimeField(null=True)),
                ("digest", models.BinaryField()),
                ("reconciliation", models.UUIDField()),
                ("closed_by", models.TextField()),
                ("closed_at", models.DateTimeField()),
            ],
            options={
                "db_table": "period_closes",
                "ordering": ["-period"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Reconciliation",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("organization", models.UUIDField()),
                ("begins", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("made_at", models.DateTimeField()),
                ("requests", models.BigIntegerField()),
                ("findings", models.BigIntegerField()),
                ("unaccounted_tokens", models.BigIntegerField()),
                ("unaccounted_nano", models.BigIntegerField()),
                ("examples", models.JSONField()),
            ],
            options={
                "db_table": "reconciliations",
                "ordering": ["-made_at"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Transfer",
            fields=[
                ("organization", models.UUIDField()),
                ("project", models.UUIDField()),
                ("key", models.UUIDField()),
                ("amount", models.BigIntegerField()),
                ("model", models.TextField()),
                ("price_version", models.IntegerField()),
                ("input_pico", models.BigIntegerField()),
                ("cached_pico", models.BigIntegerField()),
                ("output_pico", models.BigIntegerField()),
                ("others", models.JSONField(null=True)),
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "request",
                        "slot",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("request", models.UUIDField()),
                ("slot", models.SmallIntegerField()),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("hold", "Hold"),
                            ("settle", "Settle"),
                            ("release", "Release"),
                            ("expire", "Expire"),
                            ("overage", "Overage"),
                            ("late", "Late"),
                        ]
                    ),
                ),
                ("debit", models.TextField()),
                ("credit", models.TextField()),
                ("uncached", models.IntegerField()),
                ("cached", models.IntegerField()),
                ("output", models.IntegerField()),
                ("source", models.TextField()),
                (
                    "budgets",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), null=True, size=None
                    ),
                ),
                ("booked_at", models.DateTimeField()),
            ],
            options={
                "db_table": "transfers",
                "ordering": ["request", "slot"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="BudgetTerms",
            fields=[
                (
                    "budget",
                    models.OneToOneField(
                        db_column="budget",
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="terms",
                        serialize=False,
                        to="billing.budget",
                    ),
                ),
                ("organization", models.UUIDField()),
                ("allowance", models.BigIntegerField()),
                ("carried", models.BigIntegerField(default=0)),
                ("given", models.BigIntegerField(default=0)),
                ("base", models.BigIntegerField(default=0)),
                ("began_at", models.DateTimeField()),
                ("turns_at", models.DateTimeField(null=True)),
                ("rollover", models.BooleanField(default=False)),
                (
                    "period",
                    models.TextField(
                        choices=[
                            ("none", "None"),
                            ("day", "Day"),
                            ("week", "Week"),
                            ("month", "Month"),
                        ],
                        default="none",
                    ),
                ),
                ("zone", models.TextField(default="UTC")),
                (
                    "alerts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), default=list, size=None
                    ),
                ),
            ],
            options={
                "db_table": "budget_terms",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="BillingProfile",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization", models.UUIDField(unique=True)),
                ("name", models.CharField(blank=True, default="", max_length=200)),
                ("address", models.CharField(blank=True, default="", max_length=500)),
                ("tax_id", models.CharField(blank=True, default="", max_length=40)),
                ("email", models.EmailField(blank=True, default="", max_length=254)),
                ("terms_days", models.SmallIntegerField(blank=True, null=True)),
                ("tax_basis_points", models.SmallIntegerField(default=0)),
                ("tax_jurisdiction", models.CharField(blank=True, default="", max_length=40)),
            ],
            options={
                "db_table": "billing_profiles",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("tax_basis_points__range", (0, 10000))),
                        name="billing_profile_tax_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("tax_basis_points", 0),
                            models.Q(("tax_jurisdiction", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="billing_profile_tax_has_jurisdiction",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("terms_days__isnull", True),
                            ("terms_days__range", (0, 365)),
                            _connector="OR",
                        ),
                        name="billing_profile_terms_bounds",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Export",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization_id", models.UUIDField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("usage", "Usage"),
                            ("detail", "Requests"),
                            ("focus", "FOCUS"),
                            ("journal", "Journal"),
                        ],
                        max_length=7,
                    ),
                ),
                (
                    "grain",
                    models.CharField(
                        choices=[("hour", "Hour"), ("day", "Day"), ("entry", "Each line")],
                        max_length=5,
                    ),
                ),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("raw", models.BooleanField(default=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("gone", "Removed"),
                        ],
                        default="waiting",
                        max_length=7,
                    ),
                ),
                ("through", models.DateTimeField(null=True)),
                ("rows_estimated", models.BigIntegerField(null=True)),
                ("rows_done", models.BigIntegerField(default=0)),
                ("bytes_done", models.BigIntegerField(default=0)),
                ("permille", models.SmallIntegerField(default=0)),
                ("nano", models.BigIntegerField(default=0)),
                ("cursor", models.CharField(blank=True, default="", max_length=200)),
                ("sha256", models.CharField(blank=True, default="", max_length=64)),
                ("error", models.CharField(blank=True, default="", max_length=300)),
                ("manifest", models.JSONField(null=True)),
                ("tries", models.SmallIntegerField(default=0)),
                ("claim", models.UUIDField(null=True)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("created_by_label", models.TextField()),
            ],
            options={
                "db_table": "exports",
                "indexes": [
                    models.Index(fields=["organization_id", "-id"], name="exports_newest_first"),
                    models.Index(
                        condition=models.Q(("state__in", ("waiting", "running"))),
                        fields=["id"],
                        name="exports_at_work",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))),
                        name="export_of_some_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["waiting", "running", "done", "failed", "gone"])
                        ),
                        name="export_state_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization", models.UUIDField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("invoice", "Invoice"),
                            ("statement", "Statement"),
                            ("credit_note", "Credit Note"),
                        ],
                        max_length=11,
                    ),
                ),
                ("number", models.BigIntegerField(default=0, editable=False)),
                ("period", models.CharField(max_length=7)),
                ("issued_on", models.DateField()),
                ("due_on", models.DateField()),
                ("issuer", models.JSONField()),
                ("customer", models.JSONField()),
                ("lines", models.JSONField()),
                ("subtotal_nano", models.BigIntegerField()),
                ("prepaid_nano", models.BigIntegerField(default=0)),
                ("net_cents", models.BigIntegerField()),
                ("tax_cents", models.BigIntegerField()),
                ("total_cents", models.BigIntegerField()),
                ("carried_cents", models.BigIntegerField(default=0)),
                ("tax_basis_points", models.SmallIntegerField()),
                ("tax_jurisdiction", models.CharField(blank=True, max_length=40)),
                ("reason", models.CharField(blank=True, default="", max_length=500)),
                ("digest", models.BinaryField(max_length=32)),
                ("issued_by", models.TextField()),
                (
                    "corrects",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="notes",
                        to="billing.invoice",
                    ),
                ),
            ],
            options={
                "db_table": "invoices",
            },
        ),
        migrations.CreateModel(
            name="PaymentOrder",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization", models.UUIDField()),
                (
                    "provider",
                    models.CharField(
                        choices=[("stripe", "Stripe"), ("bank", "Bank")], max_length=6
                    ),
                ),
                ("amount_cents", models.BigIntegerField()),
                ("currency", models.CharField(default="USD", max_length=3)),
                ("ordered_by", models.TextField()),
                (
                    "invoice",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="billing.invoice",
                    ),
                ),
            ],
            options={
                "db_table": "payment_orders",
            },
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization", models.UUIDField()),
                (
                    "provider",
                    models.CharField(
                        choices=[("stripe", "Stripe"), ("bank", "Bank")], max_length=6
                    ),
                ),
                ("event", models.CharField(max_length=200)),
                ("reference", models.CharField(max_length=200)),
                ("amount_cents", models.BigIntegerField()),
                ("recorded_by", models.TextField()),
                (
                    "invoice",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="payments",
                        to="billing.invoice",
                    ),
                ),
                (
                    "order",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="billing.paymentorder",
                    ),
                ),
            ],
            options={
                "db_table": "payments",
            },
        ),
        migrations.CreateModel(
            name="PeriodCloseJob",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization", models.UUIDField()),
                ("period", models.CharField(max_length=7)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                        ],
                        default="waiting",
                        max_length=7,
                    ),
                ),
                ("reached_at", models.DateTimeField(null=True)),
                ("error", models.CharField(blank=True, default="", max_length=500)),
                ("tries", models.SmallIntegerField(default=0)),
                ("claim", models.UUIDField(null=True)),
                ("claimed_until", models.DateTimeField(null=True)),
                ("asked_by", models.UUIDField(null=True)),
                ("asked_label", models.TextField()),
            ],
            options={
                "db_table": "period_close_jobs",
                "indexes": [
                    models.Index(fields=["organization", "-id"], name="period_close_newest_first")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["waiting", "running", "done", "failed"])),
                        name="period_close_state_known",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ("waiting", "running"))),
                        fields=("organization", "period"),
                        name="one_close_of_a_period_at_work",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WalletGrant",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=controlplane.core.models.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("organization", models.UUIDField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("topup", "Top-up"),
                            ("credit", "Credit"),
                            ("credit_note", "Credit note"),
                            ("reversal", "Reversal"),
                            ("payment", "Payment"),
                        ],
                        max_length=11,
                    ),
                ),
                ("subject", models.UUIDField(blank=True, null=True)),
                ("about", models.CharField(blank=True, default="", max_length=100)),
                ("terms", models.JSONField(blank=True, default=dict)),
                ("amount_nano", models.BigIntegerField()),
                ("reason", models.CharField(max_length=500)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("booked", "Booked"),
                            ("refused", "Refused"),
                        ],
                        max_length=7,
                    ),
                ),
                ("asked_by", models.UUIDField(blank=True, null=True)),
                ("asked_label", models.TextField()),
                ("decided_by", models.UUIDField(blank=True, null=True)),
                ("decided_label", models.TextField(blank=True, default="")),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "wallet_grants",
                "indexes": [
                    models.Index(fields=["organization", "-id"], name="wallet_grant_newest_first")
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("kind__in", ["topup", "credit", "credit_note", "reversal", "payment"])
                        ),
                        name="wallet_grant_kind_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["pending", "booked", "refused"])),
                        name="wallet_grant_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("amount_nano__gt", 0)), name="wallet_grant_is_positive"
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="invoice",
            index=models.Index(fields=["organization", "-id"], name="invoice_newest_first"),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                fields=("kind", "number"), name="invoice_number_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "credit_note"), _negated=True),
                fields=("organization", "period"),
                name="one_invoice_of_a_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", ["invoice", "statement", "credit_note"])),
                name="invoice_kind_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "total_cents",
                        django.db.models.expressions.CombinedExpression(
                            models.F("net_cents"), "+", models.F("tax_cents")
                        ),
                    )
                ),
                name="invoice_total_is_net_and_tax",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("carried_cents", 0),
                    models.Q(
                        ("carried_cents__gt", 0),
                        ("kind", "invoice"),
                        ("carried_cents__lte", models.F("total_cents")),
                    ),
                    _connector="OR",
                ),
                name="invoice_carries_at_most_its_total",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("corrects__isnull", False), ("kind", "credit_note")),
                    models.Q(
                        models.Q(("kind", "credit_note"), _negated=True), ("corrects__isnull", True)
                    ),
                    _connector="OR",
                ),
                name="credit_note_corrects_an_invoice",
            ),
        ),
        migrations.AddConstraint(
            model_name="paymentorder",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_cents__gt", 0)), name="payment_order_is_positive"
            ),
        ),
        migrations.AddIndex(
            model_name="payment",
            index=models.Index(fields=["organization", "-id"], name="payment_newest_first"),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.UniqueConstraint(
                fields=("provider", "event"), name="payment_event_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.UniqueConstraint(
                fields=("provider", "reference"), name="payment_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="payment",
            constraint=models.CheckConstraint(
                condition=models.Q(("amount_cents__gt", 0)), name="payment_is_positive"
            ),
        ),
        run_sql_file(__file__, "tables.sql"),
        run_sql_file(__file__, "journal.sql"),
        run_sql_file(__file__, "hours.sql"),
        run_sql_file(__file__, "closes.sql"),
        run_sql_file(__file__, "invoices.sql"),
        run_sql_file(__file__, "claims.sql"),
        run_sql_file(__file__, "access.sql"),
        migrations.RunSQL("SELECT ledger_make_partitions(current_date - 1, current_date + 7)"),
    ]
