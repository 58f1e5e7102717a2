"""Filters that print figures as `formats` and `kernel.money` say; no logic of their own."""

import json
from datetime import UTC, datetime
from uuid import UUID

from django import template
from django.template import Context
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.billing.documents.text import cents_text, line_words, pico_text, unit_text
from controlplane.billing.ledger.accounts import account_text
from controlplane.billing.payments.dunning import Stage
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_from_micro, usd_short, usd_text
from frontend.finders import PLOTLY_PATH
from frontend.shared import formats
from frontend.shared.plots.tables import panel_table

register = template.Library()
register.filter("milliseconds", formats.milliseconds)
register.filter("duration", formats.duration)
register.filter("count", formats.count)
register.filter("share_of", formats.percent)
register.filter("moment", formats.moment)
register.simple_tag(panel_table)


@register.filter
def usd(nano: int) -> str:
    """Dollars for reading: `$1,234.56`, `$0.00123`."""
    return usd_short(nano)


@register.filter
def usd_exact(nano: int) -> str:
    """Dollars with all nine decimals, as the ledger has them."""
    return usd_text(nano)


@register.filter("id")
def shown_id(of: UUID, prefix: str) -> str:
    """An id as it is seen."""
    return public_id(prefix, of)


register.filter("account", account_text)
register.filter("cents", cents_text)
register.filter("usd_pico", pico_text)
register.filter("usd_unit", unit_text)
register.filter("line_words", line_words)


@register.filter
def stage_tone(stage: Stage) -> str:
    if stage in (Stage.SETTLED, Stage.CURRENT):
        return "ok" if stage == Stage.SETTLED else "off"
    return "warn" if stage == Stage.DUE else "bad"


@register.filter
def as_usd(micro: int) -> str:
    """Dollars of a price in micro-USD, as a form takes them."""
    return usd_from_micro(micro)


@register.filter
def ago(value: datetime | None) -> str:
    """How long ago, while that is under a day."""
    return formats.relative(value, timezone.now()) if value else ""


@register.filter
def clock(value: datetime | None) -> SafeString | str:
    """Absolute UTC time as a `<time>` element."""
    if value is None:
        return formats.MISSING
    return format_html('<time datetime="{}">{}</time>', value.isoformat(), formats.moment(value))


@register.filter
def clock_short(value: datetime) -> SafeString:
    """The same without its date where that is today's, in UTC."""
    text = formats.moment(value)
    if value.astimezone(UTC).date() == timezone.now().astimezone(UTC).date():
        text = text.split(" ")[1]
    return format_html('<time datetime="{}">{}</time>', value.isoformat(), text)


@register.filter
def as_json(value: object) -> str:
    return json.dumps(value)


@register.simple_tag
def columns(names: str) -> SafeString:
    """Heads of columns, as `Model | #Requests | (Actions)`: # of numbers, () only read aloud."""
    return format_html_join("", "{}", ((_head(name),) for name in names.split(" | ")))


def _head(name: str) -> SafeString:
    if name.startswith("("):
        return format_html('<th scope="col"><span class="sr">{}</span></th>', name[1:-1])
    if name.startswith("#"):
        return format_html('<th scope="col" class="number">{}</th>', name[1:])
    return format_html('<th scope="col">{}</th>', name)


@register.simple_block_tag(takes_context=True)
def dialog(context: Context, content: str, name: str, *action: object, **look: object) -> str:
    """A dialog with a form: its id, name and arguments of the form's URL, texts of its buttons.

    Without a URL the button that opens it says where the form goes.
    """
    found = {"name": name, "content": content, "csrf_token": context.get("csrf_token"), **look}
    if action:
        found["url"] = reverse(str(action[0]), args=action[1:])
    return render_to_string("shared/dialog.html", found)


@register.simple_tag
def plotly_url() -> str:
    return static(PLOTLY_PATH)
