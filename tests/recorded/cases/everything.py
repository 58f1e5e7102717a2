"""All cases, in the order in which they are played."""

from __future__ import annotations

from collections import Counter

from tests.recorded.case import Case
from tests.recorded.cases.formats import formats
from tests.recorded.cases.generating import generating
from tests.recorded.cases.reading import reading
from tests.recorded.cases.refusing import refusing
from tests.recorded.cases.routing import routing
from tests.recorded.cases.wire import wire


def every_case() -> list[Case]:
    """Each has a name of its own; nodes and clients fail at the end."""
    made = [*generating(), *formats(), *refusing(), *reading(), *wire(), *routing()]
    names = Counter(case.name for case in made)
    twice = [name for name, count in names.items() if count > 1]
    assert not twice, twice
    return made
