"""Audit says from where, what was before and after, and is chained by hashes."""

from django.db import migrations, models

from controlplane.core.sqlfiles import run_sql_file

TEXTS = ("channel", "address", "agent", "credential")


class Migration(migrations.Migration):
    dependencies = [("core", "0004_kept_answers")]
    operations = [
        *(
            migrations.AddField(
                model_name="auditentry",
                name=name,
                field=models.JSONField(blank=True, null=True),
            )
            for name in ("before", "after")
        ),
        *(
            migrations.AddField(
                model_name="auditentry",
                name=name,
                field=models.TextField(blank=True, default=""),
            )
            for name in TEXTS
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["subject_id", "id"], name="audit_by_subject"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["created_at"], name="audit_by_time"),
        ),
        migrations.CreateModel(
            name="AuditLink",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entry", models.UUIDField(unique=True)),
                ("digest", models.BinaryField(max_length=32)),
                ("chained_at", models.DateTimeField()),
            ],
            options={"db_table": "audit_links"},
        ),
        run_sql_file(__file__, "audit_chain.sql"),
    ]
