"""Path converter for ids as clients see them in `x-request-id`: 32 hexadecimal digits."""

import uuid


class HexId:
    """Reads 32 hex digits, with or without a UUID's hyphens; writes them without."""

    regex = "[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"

    def to_python(self, value: str) -> uuid.UUID:
        """The id."""
        return uuid.UUID(value)

    def to_url(self, value: uuid.UUID | str) -> str:
        """The id as clients see it."""
        return value.hex if isinstance(value, uuid.UUID) else value
