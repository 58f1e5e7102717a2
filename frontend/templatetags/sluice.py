"""Filters that print figures as `formats` and `kernel.money` say, and parts of forms."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any
from uuid import UUID

from django import forms, template
from django.conf import settings
from django.forms import BoundField
from django.forms.utils import flatatt
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
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_from_micro, usd_short, usd_text
from frontend.finders import PLOTLY_PATH
from frontend.shared import formats
from frontend.shared.exploring import explore_query
from frontend.shared.navigation import NAVIGATION
from frontend.shared.panels import TablePanel
from frontend.shared.plots.tables import panel_table
from frontend.shared.refused_form import refused_take
from inference.contract.version import VERSION

register = template.Library()
_LABELS = {entry.name: entry.label for entries in NAVIGATION.values() for entry in entries}
register.filter("milliseconds", formats.milliseconds)
register.filter("duration", formats.duration)
register.filter("count", formats.count)
register.filter("count_short", formats.count_short)
register.filter("share_of", formats.percent)
register.filter("moment", formats.moment)
register.filter("multiplier", formats.multiplier)
register.simple_tag(panel_table)


@register.filter
def usd(nano: int) -> str:
    """Dollars for reading: `$1,234.56`, `$0.00123`."""
    return usd_short(nano)


@register.filter
def usd_exact(nano: int) -> str:
    """Dollars with all nine decimals, as the ledger has them."""
    return usd_text(nano)


@register.simple_tag
def release() -> str:
    """The version of these pages."""
    return VERSION


@register.simple_tag
@cache
def documentation() -> str:
    """Where the documentation is; empty where its site had not been built when this began."""
    return "/docs/" if (settings.DOCS_DIR / "index.html").exists() else ""


@register.filter
def page_label(name: str) -> str:
    """What the side bar calls a page."""
    return _LABELS.get(name, "")


@register.filter("id")
def shown_id(of: UUID, prefix: str) -> str:
    return public_id(prefix, of)


@register.filter
def account(name: str) -> str:
    """An account of the organization shown, as people call it."""
    kind, _, of = account_text(name).partition(":")
    return kind.capitalize() if not of or of.startswith("org_") else f"{kind.capitalize()} · {of}"


register.filter("public_account", account_text)
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
    return json.dumps(value) if value else ""


@register.simple_tag
def columns(names: str, ranks: Mapping[str, tuple[str, str]] | None = None) -> SafeString:
    """Heads of columns, as `Model | #Requests | - | (Actions)`: # of numbers, () only read aloud.

    With - it is a column of bars, which small screens leave out. `ranks` are columns that order the
    rows: the address that does, and the `aria-sort` of the one that they go by now.
    """
    heads = ((_head(name, (ranks or {}).get(name.lstrip("#"))),) for name in names.split(" | "))
    return format_html_join("", "{}", heads)


def _head(name: str, rank: tuple[str, str] | None) -> SafeString:
    if rank:
        look = flatatt({"class": "number"} if name.startswith("#") else {})
        sort = flatatt({"aria-sort": rank[1]} if rank[1] else {})
        form = '<th scope="col"{}{}><a href="{}">{}</a></th>'
        return format_html(form, look, sort, rank[0], name.lstrip("#"))
    if name == "-":
        return SafeString('<th scope="col" class="skip-small" aria-hidden="true"></th>')
    if name.startswith("("):
        return format_html('<th scope="col"><span class="sr">{}</span></th>', name[1:-1])
    if name.startswith("#"):
        return format_html('<th scope="col" class="number">{}</th>', name[1:])
    return format_html('<th scope="col">{}</th>', name)


@register.simple_tag
def cells(*pairs: Any) -> SafeString:
    """Cells of a row, in pairs: the column, as in `columns`, and the value; a dash for none.

    $ is of nano-USD, with the exact amount as its title, and * begins the head of the row. Classes
    follow the name, as in `"By .break"`.
    """
    return _listed('<{0} data-label="{1}"{2}>{3}</{0}>', "number", pairs)


@register.simple_tag
def facts(*pairs: Any) -> SafeString:
    """The same as terms and definitions of a list."""
    return _listed("<div><dt>{1}</dt><dd{2}>{3}</dd></div>", "", pairs)


def _listed(form: str, number: str, pairs: tuple[Any, ...]) -> SafeString:
    """Each pair in a form of its tag, label, attributes and text; figures have a class `number`."""
    made = (_told(number, *pair) for pair in zip(pairs[::2], pairs[1::2], strict=True))
    return format_html_join("", form, made)


def _told(number: str, name: str, value: Any) -> tuple[SafeString, str, str, Any]:
    label, *classes = name.split(" .")
    kind = label[0] if label[0] in "#$*" else ""
    look = {"scope": "row"} if kind == "*" else {}
    if kind == "$" and value is not None:
        look["title"], value = f"${usd_text(value)}", usd_short(value)
    if classes := [*([number] if number and kind in ("#", "$") else []), *classes]:
        look["class"] = " ".join(classes)
    text = formats.MISSING if value in (None, "") else value
    tag = SafeString("th" if kind == "*" else "td")
    return tag, label.removeprefix(kind), flatatt(look), text


@register.simple_block_tag
def table(
    content: str,
    caption: str,
    heads: str,
    look: str = "cards dense",
    acts: object = False,
    ranks: Mapping[str, tuple[str, str]] | None = None,
) -> SafeString:
    """A table of these rows; what `heads` are, `columns` says; a last one of buttons if it acts."""
    heads = f"{heads} | (Actions)" if acts else heads
    return format_html(
        '<table class="{}"><caption class="sr">{}</caption><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table>",
        look, caption, columns(heads, ranks), content,
    )  # fmt: skip


@register.simple_tag
def panel_rows(panel: TablePanel, caption: str, empty: str) -> SafeString:
    """A table of figures as it is shown: each row's head, numbers, and words where it has such."""
    first, *rest = panel.head
    heads = [first, *(name if name == panel.words else f"#{name}" for name in rest)]
    looks = [f"*{first} .break", *heads[1:]]
    if panel.words:
        looks[-1] += " .wide-cell .hint"
    rows = ([text for _, text in pairs] for pairs in panel.shown)
    each = ((cells(*chain(*zip(looks, row, strict=True))),) for row in rows)
    body = format_html_join("", "<tr>{}</tr>", each) or format_html(
        '<tr><td colspan="{}">{}</td></tr>', len(heads), empty
    )
    return table(body, caption, " | ".join(heads))


@register.simple_block_tag
def panel(content: str, name: str, title: str, note: str = "", look: str = "flush") -> SafeString:
    """A section of a page under its title, with a note beside that."""
    beside = format_html('<span class="note">{}</span>', note) if note else ""
    return format_html(
        '<section class="panel {2}" aria-labelledby="{0}-title"><div class="section-head">'
        '<h2 id="{0}-title">{1}</h2>{3}</div>{4}</section>',
        name, title, look, beside, content,
    )  # fmt: skip


@register.simple_block_tag
def secret(
    content: str, name: str, told: str, back: str, *, title: str, what: str = "link"
) -> SafeString:
    """A panel that tells a secret in its one answer: to be copied; then back to the page `back`."""
    found = {"name": name, "told": told, "back": back, "title": title, "what": what}
    return render_to_string("shared/secret.html", {**found, "content": content})


@register.simple_block_tag(takes_context=True)
def dialog(context: Context, content: str, name: str, *action: object, **look: object) -> str:
    """A dialog with a form: its id, name and arguments of the form's URL, title, and its buttons.

    Without a URL the button that opens it says where the form goes; with `names` also of what.
    Without `act` there is nothing to send.
    """
    found = {"name": name, "content": content, "csrf_token": context.get("csrf_token"), **look}
    if action:
        found["url"] = reverse(str(action[0]), args=action[1:])
    return render_to_string("shared/dialog.html", found)


@register.simple_tag(takes_context=True)
def refused(context: Context) -> dict[str, Any] | None:
    """The form that was refused before this page, as `refused_take` says."""
    return refused_take(context["request"])


@register.inclusion_tag("shared/field.html")
def field(identity: str, label: str, of: BoundField | str, hint: str = "", **look: Any) -> Any:
    """A labelled input: of a form's field, with what was typed and what is wrong, or of a name.

    It is a list where there are `options`, pairs or names of which some are `chosen` and a `blank`
    one may come first, boxes to tick where they may be `many`, and a text where there are `rows`.
    `wrong` are errors, `refused` the id of what tells them elsewhere. All other keywords are
    attributes, with _ for -.
    """
    own = ("options", "chosen", "blank", "refused", "many")
    found = {name: look.pop(name, None) for name in own}
    found |= {"id": identity, "label": label, "name": of, "hint": hint}
    found["errors"] = look.pop("wrong", "")
    if isinstance(of, BoundField):
        look = {**of.field.widget.attrs, **look}
        value, options = of.value(), getattr(of.field, "choices", None)
        found |= {"name": of.html_name, "errors": of.errors, "chosen": value, "options": options}
        look.setdefault("maxlength", getattr(of.field, "max_length", None))
        found["many"] = isinstance(of.field, forms.MultipleChoiceField)
        if isinstance(of.field.widget, forms.PasswordInput):
            look["type"] = "password"
        elif options is None:
            look.setdefault("value", "" if value is None else value)
    if found["options"] is None:
        look.setdefault("autocomplete", "off")
    else:
        found["options"] = _options(found["options"], found["chosen"])
    look["aria-invalid"] = "true" if found["refused"] or found["errors"] else ""
    look["aria-describedby"] = found["refused"] or (f"{identity}-hint" if hint else "")
    if "rows" in look:
        found |= {"rows": look["rows"], "text": look.pop("value", "")}
    said = {name: each for name, each in look.items() if each != "" or name == "value"}
    found["attributes"] = flatatt({name.replace("_", "-"): each for name, each in said.items()})
    return found


def _options(options: Iterable[Any], chosen: Any) -> list[tuple[Any, Any, bool]]:
    """Values, their words, and whether each is chosen, compared as the browser sends them."""
    picked = {str(each) for each in (chosen if isinstance(chosen, list) else [chosen])}
    pairs = ((each, each) if isinstance(each, str) else each for each in options)
    return [(value, words, str(value) in picked) for value, words in pairs]


@register.simple_tag(takes_context=True)
def explored(context: Context, chart: str) -> str:
    """The query of a chart's Explore, on the pages that are asked for figures; else empty."""
    if "asked" not in context:
        return ""
    staff = context["viewer"].may(Action.ROUTING_MANAGE)
    return explore_query(chart, context["asked"], here=context["here"], staff=staff)


@register.simple_tag
def plotly_url() -> str:
    return static(PLOTLY_PATH)
