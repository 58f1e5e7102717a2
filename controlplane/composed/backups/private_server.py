"""The embedded PostgreSQL, for a command that needs it while nothing is served."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.conf import settings
from django.db import connections

from controlplane.composed.backups.archive import BackupError
from controlplane.composed.backups.programs import reading_dsn
from controlplane.embedded.layout import embedded_layout, prepare
from controlplane.embedded.postgres import private_postgres
from controlplane.embedded.processes import RunFile, Say, living


def answers() -> bool:
    """Whether there is a database to read; raises BackupError where one's own cannot be."""
    try:
        psycopg.connect(reading_dsn()).close()
    except psycopg.OperationalError as error:
        if not settings.EMBEDDED_DATABASE:
            raise BackupError(f"PostgreSQL refuses the connection: {error}") from error
        return False
    return True


@contextmanager
def private_server(say: Say) -> Iterator[None]:
    """Runs for the block, where the database is embedded; raises BackupError while Sluice runs."""
    if not settings.EMBEDDED_DATABASE:
        yield
        return
    data = Path(settings.DATA_DIR)
    data.mkdir(parents=True, exist_ok=True)
    runfile = RunFile(data)
    if not runfile.acquire():
        raise BackupError(f"Sluice is running in {data}: stop it first.")
    run = runfile.read()
    if run is not None and any(map(living, run.children)):
        runfile.release()
        raise BackupError(f"Processes of a killed start live in {data}: `sluice stop` ends them.")
    layout = embedded_layout(data)
    prepare(layout)
    server = private_postgres(layout, say)
    try:
        server.start()
        yield
    finally:
        connections.close_all()
        server.stop()
        runfile.release()
