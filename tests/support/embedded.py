"""Layouts and processes for tests of the embedded servers."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.embedded.layout import Layout, embedded_layout, prepare
from tests.support.servers import make_data_folder

PASSWORD = "a-password-of-the-tests-only-0123456789"


@contextmanager
def fresh_layout() -> Iterator[Layout]:
    """A prepared data folder of its own."""
    with make_data_folder() as folder:
        layout = embedded_layout(Path(folder))
        prepare(layout)
        yield layout


@contextmanager
def copied_layout(made: Layout) -> Iterator[Layout]:
    """The same, with a copy of the database of another, which is stopped."""
    with fresh_layout() as layout:
        subprocess.run(["cp", "-a", str(made.postgres), str(layout.postgres)], check=True)
        yield layout


@contextmanager
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that has nothing to do with us, past its first moments."""
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()
