"""Export jobs: resumed after a killed worker, bounded, seen by their own organization alone."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError

from controlplane.billing.exports import services, tasks
from controlplane.billing.exports.files import export_size, open_export, read_export
from controlplane.billing.exports.models import ExportState
from controlplane.billing.exports.selectors import export_get, export_page, export_streamable
from controlplane.billing.exports.services import DueExport, export_create
from controlplane.billing.exports.spec import spec_of
from controlplane.billing.exports.writer import export_write
from controlplane.core.answers import FIRST_PAGE
from tests.support.exports import asked_for, export_row, made_by_job, month_spec, streamed
from tests.support.money import rows
from tests.support.month import Month, seal_month, seed_month
from tests.support.people import make_cast

KILLED = """
import os, signal, sys, uuid
import django
django.setup()
from controlplane.billing.exports import writer
from controlplane.billing.exports.services import DueExport
writer.CHECK_BYTES = 1
kept = writer.export_save
counts = []
def save_and_die(*args, **kwargs):
    done = kept(*args, **kwargs)
    counts.append(done)
    if len(counts) == 4:
        writer.os_write()
    return done
def os_write():
    # Half a line that no count knows of, as a page that was being written.
    path = sys.argv[3]
    with open(path, "ab") as out:
        out.write(b"half a li")
    os.kill(os.getpid(), signal.SIGKILL)
writer.os_write = os_write
writer.export_save = save_and_die
writer.export_write(DueExport(uuid.UUID(sys.argv[1]), uuid.UUID(sys.argv[2])))
"""


@pytest.fixture
def month(database: str) -> Month:
    made = seed_month(make_cast())
    seal_month()
    return made


def _path(due: DueExport) -> Path:
    folder: Path = settings.EXPORTS_DIR
    return folder / f"{due.export.hex}.csv"


def _claim_runs_out() -> None:
    rows("UPDATE exports SET claimed_until = now() - interval '1 second'")


@pytest.mark.parametrize("kind", ["focus", "detail"])
def test_a_killed_workers_file_is_finished_by_another(month: Month, kind: str) -> None:
    spec = month_spec(month.cast.acme.id, kind)
    due = asked_for(month.cast, spec)
    arguments = [str(due.organization), str(due.export), str(_path(due))]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], cwd=settings.BASE_DIR)
    assert killed.returncode == -signal.SIGKILL
    found = export_row(due)
    assert found.state == ExportState.RUNNING
    assert 0 < found.bytes_done < len(_path(due).read_bytes())
    assert not export_write(due) and export_row(due).claim == found.claim, "still claimed"
    _claim_runs_out()
    assert services.exports_due() == [due]
    assert not export_write(due)
    finished = export_row(due)
    assert finished.state == ExportState.DONE
    assert b"".join(read_export(due.export)) == streamed(spec)
    assert finished.sha256 == made_by_job(month.cast, spec)[0].sha256


def test_a_lost_file_is_written_anew(month: Month) -> None:
    due = asked_for(month.cast, month_spec(month.cast.acme.id, "usage"))
    rows("UPDATE exports SET bytes_done = 99, rows_done = 9, cursor = '1761955200'")
    assert not export_write(due)
    spec = month_spec(month.cast.acme.id, "usage")
    assert b"".join(read_export(due.export)) == streamed(spec)


def test_two_workers_never_write_one_file(month: Month) -> None:
    due = asked_for(month.cast, month_spec(month.cast.acme.id, "usage"))
    with open_export(due.export):
        assert not export_write(due)
    assert export_row(due).bytes_done == 0


def test_a_stretch_ends_and_the_next_goes_on(month: Month, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.billing.exports.writer.STRETCH_S_MAX", 0.0)
    monkeypatch.setattr("controlplane.billing.exports.writer.CHECK_BYTES", 1)
    due = asked_for(month.cast, month_spec(month.cast.acme.id, "usage"))
    stretches = 1
    while export_write(due):
        stretches += 1
        assert 0 < export_row(due).permille < 1_000
    assert stretches > 10
    spec = month_spec(month.cast.acme.id, "usage")
    assert b"".join(read_export(due.export)) == streamed(spec)


def test_what_never_gets_anywhere_is_given_up(month: Month) -> None:
    due = asked_for(month.cast, month_spec(month.cast.acme.id, "usage"))
    for _ in range(services.TRIES_MAX):
        assert services.export_claim(due) is not None
        _claim_runs_out()
    assert services.export_claim(due) is None
    found = export_row(due)
    assert found.state == ExportState.FAILED and "Failed after" in found.error


def test_a_full_disk_fails_the_export_and_says_why(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.billing.exports.files.FREE_BYTES_MIN", 1 << 60)
    due = asked_for(month.cast, month_spec(month.cast.acme.id, "usage"))
    assert not export_write(due)
    found = export_row(due)
    assert found.state == ExportState.FAILED and "Not enough disk space" in found.error
    assert export_size(due.export) is None


def test_files_are_for_this_account_alone(month: Month) -> None:
    made, _ = made_by_job(month.cast, month_spec(month.cast.acme.id, "usage"))
    path = _path(DueExport(made.organization_id, made.id))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_old_files_go_and_the_oldest_where_room_is_short(
    month: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = month_spec(month.cast.acme.id, "usage")
    old, middle, new = (made_by_job(month.cast, spec)[0] for _ in range(3))
    assert services.exports_prune() == 0
    rows("UPDATE exports SET finished_at = now() - interval '31 days' WHERE id = %s", old.id)
    assert services.exports_prune() == 1
    monkeypatch.setattr(services, "KEEP_BYTES_MAX", new.bytes_done + 1)
    assert services.exports_prune() == 1
    states = [export_row(DueExport(spec.organization, one.id)).state for one in (old, middle, new)]
    assert states == [ExportState.GONE, ExportState.GONE, ExportState.DONE]
    assert [export_size(one.id) is None for one in (old, middle, new)] == [True, True, False]


def test_only_members_who_may_export_see_exports(month: Month) -> None:
    cast = month.cast
    made, _ = made_by_job(cast, month_spec(cast.acme.id, "usage"))
    found = export_page(actor=cast.alice, organization_id=cast.acme.id, ask=FIRST_PAGE)
    assert [one.id for one in found.rows] == [made.id]
    with pytest.raises(PermissionDenied):
        export_get(actor=cast.bob, organization_id=cast.acme.id, export_id=made.id)
    with pytest.raises(ObjectDoesNotExist):
        export_get(actor=cast.charlie, organization_id=cast.acme.id, export_id=made.id)
    with pytest.raises(ObjectDoesNotExist):
        export_get(actor=cast.charlie, organization_id=cast.other.id, export_id=made.id)


def test_one_organization_cannot_fill_the_queue(month: Month) -> None:
    spec = month_spec(month.cast.acme.id, "usage")
    for _ in range(services.OPEN_MAX):
        asked_for(month.cast, spec)
    with pytest.raises(ValidationError, match="in progress"):
        asked_for(month.cast, spec)
    asked_for(month.cast, month_spec(month.cast.other.id, "usage"))


def test_a_refused_export_names_the_field(month: Month) -> None:
    acme = month.cast.acme.id
    day = date(2025, 10, 1)
    for field, wrong in (
        ("kind", {"kind": "xml"}),
        ("grain", {"grain": "week"}),
        ("end", {"end": day}),
        ("end", {"end": day + timedelta(days=367)}),
        ("start", {"start": date(1999, 1, 1)}),
    ):
        wish = {"kind": "usage", "start": day, "end": day + timedelta(days=1), **wrong}
        with pytest.raises(ValidationError) as refused:
            spec_of(acme, **wish)  # type: ignore[arg-type]  # One of the values is wrong in type.
        assert set(refused.value.message_dict) == {field}


def test_long_files_are_not_streamed(month: Month, monkeypatch: pytest.MonkeyPatch) -> None:
    cast = month.cast
    for kind in ("usage", "detail"):
        spec = month_spec(cast.acme.id, kind)
        export_streamable(actor=cast.alice, spec=spec)
        with monkeypatch.context() as patch:
            patch.setattr("controlplane.billing.exports.selectors.STREAMED_LINES_MAX", 20)
            with pytest.raises(ValidationError, match="create an export instead"):
                export_streamable(actor=cast.alice, spec=spec)


def test_tasks_write_and_find_what_is_left(month: Month, redis_url: str) -> None:
    cast = month.cast
    spec = month_spec(cast.acme.id, "usage")
    made = export_create(actor=cast.alice, spec=spec, enqueue=tasks.export_enqueue)
    assert tasks.exports_resume() == 1
    assert not tasks.export_write(str(spec.organization), str(made.id))
    assert export_row(DueExport(spec.organization, made.id)).state == ExportState.DONE
    assert tasks.exports_resume() == 0
    assert set(tasks.EVERY_S) == {"billing.exports_resume"}
    assert os.path.exists(_path(DueExport(spec.organization, made.id)))
