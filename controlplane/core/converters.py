"""Path converters for ids, one for each kind: they read every form and write the public one."""

from uuid import UUID

from django.urls import register_converter

from controlplane.kernel.ids import DIGITS, PREFIXES, public_id, uuid_of


def converters_register() -> None:
    """`<org:…>` and so on, which an id of another kind does not match; `<id:…>` takes any."""
    for prefix in ("", *PREFIXES.values()):
        members = {"prefix": prefix, "regex": f"(?:[a-z]{{1,14}}[-_])?{DIGITS}"}
        register_converter(type("IdOfKind", (_Id,), members), prefix or "id")


class _Id:
    prefix: str
    regex: str

    def to_python(self, value: str) -> UUID:
        return uuid_of(value, self.prefix)

    def to_url(self, value: UUID | str) -> str:
        return public_id(self.prefix, value) if isinstance(value, UUID) else value
