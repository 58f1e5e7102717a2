"""The wheel, built once for all tests of the folder: the documentation is built for it, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release.wheel import build


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is."""
    return build(tmp_path_factory.mktemp("wheel"))
