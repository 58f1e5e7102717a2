"""Typed access to a JSON object on disk; every complaint names the file and the field."""

import json
from pathlib import Path
from typing import Any

from inference.errors import ModelError


class Fields:
    """One JSON file, or an object `inside` it. A field that is null is not among the `values`.

    Raises `ModelError`.
    """

    def __init__(self, path: Path, inside: str = "", values: object = None) -> None:
        self.path, self.inside = path, inside
        try:
            values = json.loads(path.read_text(encoding="utf-8")) if values is None else values
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: {error}") from error
        if not isinstance(values, dict):
            raise ModelError(f"{path}: {inside and f'{inside}: '}not a JSON object")
        self.nulls = frozenset(name for name, each in values.items() if each is None)
        self.values: dict[str, Any] = {
            name: each for name, each in values.items() if name not in self.nulls
        }

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        value = self.values.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(name, f"must be an integer, at least {least}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
            raise self.error(name, "must be a positive number")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "must be true or false")
        return value

    def per_layer(self, name: str, layers: int, *allowed: object) -> list[Any] | None:
        """A list with one of the allowed values for each layer; None where it is not given."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            raise self.error(name, f"must be a list with one entry for each of {layers} layers")
        unknown = [each for each in value if each not in allowed]
        if unknown:
            raise self.error(name, f"{unknown[0]!r} is not supported")
        return value

    def require(self, name: str, *allowed: object) -> None:
        """Refuse any value but the allowed ones."""
        if name in self.values and self.values[name] not in allowed:
            raise self.error(name, f"{self.values[name]!r} is not supported")

    def error(self, name: str, complaint: str) -> ModelError:
        return ModelError(f"{self.path}: {self.inside and f'{self.inside}.'}{name}: {complaint}")
