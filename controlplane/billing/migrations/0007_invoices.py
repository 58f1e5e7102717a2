"""Invoices, payments and grants to wallets; their guards are in `sql/invoices.sql`."""

import django.db.models.deletion
import django.db.models.expressions
import django.utils.timezone
from django.db import migrations, models

import controlplane.core.models
from controlplane.core.sqlfiles import run_sql_file


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0003_others"),
    ]

    operations = [
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
                        choices=[("topup", "Top-up"), ("credit", "Credit")], max_length=6
                    ),
                ),
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
                        condition=models.Q(("kind__in", ["topup", "credit"])),
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
        run_sql_file(__file__, "invoices.sql"),
    ]
