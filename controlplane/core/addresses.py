"""Addresses that views say themselves, in the order in which Django asks them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from django.urls import URLPattern, path


def modules_load(root: Path, *patterns: str) -> None:
    """Import what a package has in files of these names, so that views say their addresses."""
    for file in sorted(file for pattern in patterns for file in root.rglob(pattern)):
        parts = file.with_suffix("").relative_to(root.parent).parts
        import_module(".".join(parts))


def paths_of(
    views: Mapping[str, Callable[..., Any]], names: Mapping[str, str] = {}
) -> list[URLPattern]:
    """Views by address; an address in words goes before one with a name in that place."""
    ordered = sorted(views, key=lambda address: ["<" in part for part in address.split("/")])
    return [path(address, views[address], name=names.get(address)) for address in ordered]
