"""Addresses of channels are sealed, and messages to channels keep none of their own."""

from typing import Any

from django.db import migrations, models

from controlplane.slos.addresses import address_kept

TABLES = ("slo_channels", "slo_deliveries")


def seal_addresses(apps: Any, schema_editor: Any) -> None:
    """Seal what `shown` holds, which is the whole address until then."""
    using = schema_editor.connection.alias
    # Their owner changes all rows, whoever's they are.
    for table in TABLES:
        schema_editor.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    channels = apps.get_model("slos", "Channel").objects.using(using)
    for one in channels.all():
        kept = address_kept(one.id, one.organization, one.kind, one.shown)
        channels.filter(id=one.id).update(**kept._asdict())
    deliveries = apps.get_model("slos", "Delivery").objects.using(using)
    deliveries.exclude(channel=None).update(address="")
    for table in TABLES:
        schema_editor.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


class Migration(migrations.Migration):
    dependencies = [("slos", "0003_holds")]
    operations = [
        migrations.RemoveConstraint(model_name="channel", name="channel_once"),
        migrations.RemoveConstraint(model_name="delivery", name="delivery_once"),
        migrations.RenameField(model_name="channel", old_name="address", new_name="shown"),
        migrations.AddField(
            model_name="channel",
            name="sealed",
            field=models.BinaryField(default=b""),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="channel",
            name="digest",
            field=models.BinaryField(default=b""),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="delivery",
            name="address",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.RunPython(seal_addresses),
        migrations.AddConstraint(
            model_name="channel",
            constraint=models.UniqueConstraint(
                fields=("organization", "kind", "digest"), name="channel_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                fields=("alert", "event", "channel"), name="delivery_once_by_channel"
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                condition=models.Q(("channel", None)),
                fields=("alert", "event", "address"),
                name="delivery_once_to_owner",
            ),
        ),
    ]
