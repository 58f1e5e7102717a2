"""Path converter for ids in every form that clients see them in."""

import uuid


class HexId:
    """Reads 32 hex digits, with or without a UUID's hyphens; writes them without.

    A request's id may have the prefix that answers give it, such as `chatcmpl-`.
    """

    regex = "(?:[a-z]{1,12}[-_])?[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}"

    def to_python(self, value: str) -> uuid.UUID:
        return uuid.UUID(value.replace("-", "")[-32:])

    def to_url(self, value: uuid.UUID | str) -> str:
        return value.hex if isinstance(value, uuid.UUID) else value
