"""A batch that has ended, with one line in its output file, as gateways would have left it."""

from __future__ import annotations

import uuid

from tests.support.money import rows

RESULT = '{"custom_id":"a"}'


def make_batch(
    organization: uuid.UUID, project: uuid.UUID, *, status: str = "completed"
) -> uuid.UUID:
    """Its id."""
    number = uuid.uuid4()
    batch, file = f"batch_{number.hex}", f"file_{number.hex}"
    ended = status in ("completed", "failed", "expired", "cancelled")
    rows(
        "INSERT INTO batches (id, organization, project, key_id, key_label, input_file_id,"
        " endpoint, status, total, completed, output_file_id, in_progress_at,"
        " ended_at) VALUES (%s, %s, %s, 'K', 'nightly', 'file_0', '/v1/completions', %s, 3, 1,"
        " %s, 1, %s)",
        *(batch, organization, project, status, file if ended else None, 1 if ended else None),
    )
    rows(
        "INSERT INTO batch_lines (batch, number, custom_id, model, body, ok, result)"
        " VALUES (%s, 1, 'a', 'm', '', true, %s)",
        *(batch, RESULT),
    )
    if ended:
        rows(
            "INSERT INTO batch_files (id, organization, project, filename, purpose, bytes, batch,"
            " expires_at) VALUES (%s, %s, %s, 'a', 'batch_output', 18, %s, batches_now() + 3600)",
            *(file, organization, project, batch),
        )
    return number
