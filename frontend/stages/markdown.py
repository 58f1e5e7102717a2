"""The Markdown of runbooks as HTML: headings, paragraphs, lists, `code`, *stress*, and no more."""

import re

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

_ITEM = re.compile(r"(?:(-)|\d+\.) +(.*)")
_CODE = re.compile(r"`([^`]+)`")
_STRESS = re.compile(r"\*([^*]+)\*")


def title_of(text: str) -> str:
    return text.partition("\n")[0].removeprefix("#").strip()


def to_html(text: str) -> SafeString:
    blocks = text.partition("\n")[2].strip().split("\n\n")
    # All that came from the file was escaped piece by piece.
    return mark_safe("\n".join(_block(block.splitlines()) for block in blocks))


def _block(lines: list[str]) -> str:
    if lines[0].startswith("## "):
        return f"<h2>{_inline(lines[0][3:])}</h2>"
    items = [_ITEM.fullmatch(line) for line in lines]
    if items[0] is None:
        return f"<p>{_inline(' '.join(lines))}</p>"
    tag = "ul" if items[0][1] else "ol"
    inside = "".join(f"<li>{_inline(item[2])}</li>" for item in items if item is not None)
    return f"<{tag}>{inside}</{tag}>"


def _inline(text: str) -> str:
    return _STRESS.sub(r"<em>\1</em>", _CODE.sub(r"<code>\1</code>", escape(text)))
