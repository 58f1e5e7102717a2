"""Secrets by variable or, as NAME_FILE, by a file that holds one; nodes and settings read both."""

from collections.abc import Mapping
from pathlib import Path


def secret_given(environment: Mapping[str, str], name: str) -> str:
    """The value of `name`, or the text of the file that `name_FILE` names; empty where neither is.

    Raises ValueError that names the variable: both are set, or the file cannot be read or is empty.
    """
    value, file = (environment.get(each, "").strip() for each in (name, f"{name}_FILE"))
    if not file:
        return value
    if value:
        raise ValueError(f"{name}: set it or {name}_FILE, not both")
    try:
        text = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}_FILE: {error}") from error
    if not text:
        raise ValueError(f"{name}_FILE: {file} is empty")
    return text
