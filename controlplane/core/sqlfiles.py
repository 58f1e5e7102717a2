"""SQL kept in files beside the app that owns it, run by migrations."""

from pathlib import Path

from django.db.migrations import RunSQL


def run_sql_file(migration_file: str, name: str) -> RunSQL:
    """An operation that runs `<app>/sql/<name>`; it cannot be undone."""
    folder = Path(migration_file).resolve().parents[1] / "sql"
    return RunSQL((folder / name).read_text(encoding="utf-8"))
