"""What a browser would post of a form as it is shown."""

from __future__ import annotations

from html.parser import HTMLParser

from django.http import QueryDict


def fields_of(shown: str) -> QueryDict:
    """Names and values of all inputs, ticked boxes, chosen options and texts, in their order."""
    reader = _Fields()
    reader.feed(shown)
    reader.close()
    return reader.found


class _Fields(HTMLParser):
    """Reads one form after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.found = QueryDict(mutable=True)
        self._select = ""
        self._options: list[tuple[bool, str]] = []
        self._text: tuple[str, list[str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a field, or an option of a list."""
        told = {name: value or "" for name, value in attrs}
        if tag == "input" and (told.get("type") != "checkbox" or "checked" in told):
            self.found.appendlist(told["name"], told.get("value", ""))
        elif tag == "select":
            self._select, self._options = told["name"], []
        elif tag == "option":
            self._options.append(("selected" in told, told["value"]))
        elif tag == "textarea":
            self._text = told["name"], []

    def handle_data(self, data: str) -> None:
        """Text of a field for texts."""
        if self._text:
            self._text[1].append(data)

    def handle_endtag(self, tag: str) -> None:
        """A list sends what is selected, else its first option."""
        if tag == "select":
            picked = [value for chosen, value in self._options if chosen]
            first = self._options[0][1] if self._options else ""
            self.found.appendlist(self._select, picked[0] if picked else first)
        elif tag == "textarea" and self._text:
            name, parts = self._text
            self.found.appendlist(name, "".join(parts))
            self._text = None
