"""What tests of this folder share in a process: a browser, and one site of a kind at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Kept(Generic[K, T]):
    """Stays open until another kind is asked for, or it is closed."""

    def __init__(self, make: Callable[[K], AbstractContextManager[T]]) -> None:
        self._make = make
        self._open: tuple[K, T] | None = None
        self._stack = ExitStack()

    def of(self, kind: K) -> T:
        """What is open, where it is of this kind; else a new one in its place."""
        if self._open is None or self._open[0] != kind:
            self.close()
            self._open = kind, self._stack.enter_context(self._make(kind))
        return self._open[1]

    def close(self) -> None:
        """End it, if any."""
        self._open = None
        self._stack.close()
