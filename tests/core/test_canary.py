"""Text of prompt templates is kept where it belongs and nowhere in the audit."""

from __future__ import annotations

from controlplane.catalog.prompts import prompt_create, prompt_draft_create
from tests.core.samples import make_things
from tests.support.money import rows


def kept() -> str:
    """Every row of every table."""
    tables = rows(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p')"
        " AND relnamespace = 'public'::regnamespace"
    )
    return "".join(str(rows(f"SELECT t::text FROM {name} t")) for (name,) in tables)


def test_text_of_templates_is_not_in_the_audit(database: str) -> None:
    things = make_things()
    alice = things.cast.alice
    template = prompt_create(actor=alice, organization_id=things.cast.acme.id, name="canary")
    text = "You are the canary of this mine."
    draft = {"messages": [{"role": "system", "content": text}]}
    prompt_draft_create(actor=alice, template=template, body=draft)
    assert text in kept()
    assert text not in str(rows("SELECT e::text FROM audit_entries e"))
