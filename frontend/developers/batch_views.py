"""Batches: how far each is, its files, and its end before its time."""

from datetime import UTC, datetime
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect

from controlplane.batches import services
from controlplane.core.permissions import Action
from frontend.shared.access import Viewer, page, show

TONES = {"completed": "ok", "failed": "bad", "expired": "bad", "cancelled": "off"}
CANCELLABLE = ("validating", "in_progress")


@page("batches", Action.BATCH_MANAGE, "GET")
def batches(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    found = services.batch_list(**viewer.whose)
    names = {project.id: project.name for project in viewer.projects()}
    rows = [
        {
            "batch": batch,
            "project": names.get(batch.project, ""),
            "id": UUID(batch.id.removeprefix("batch_")),
            "tone": TONES.get(batch.status, "warn"),
            "word": batch.status.replace("_", " ").capitalize(),
            "made": datetime.fromtimestamp(batch.created_at, UTC),
            "done": batch.completed + batch.failed,
            "stops": batch.status in CANCELLABLE,
            "files": [
                (kind, file)
                for kind, file in (("output", batch.output_file_id), ("error", batch.error_file_id))
                if file
            ],
        }
        for batch in found
    ]
    return show(request, viewer, "batches", "developers/batches.html", {"rows": rows})


@page("batches/<batch:batch_id>/cancel", Action.BATCH_MANAGE, "POST")
def batch_cancel(request: HttpRequest, viewer: Viewer, batch_id: UUID) -> HttpResponse:
    services.batch_cancel(**viewer.whose, batch_id=batch_id)
    return redirect("batches")


@page("batches/<batch:batch_id>/<slug:kind>", Action.BATCH_MANAGE, "GET")
def batch_file(
    request: HttpRequest, viewer: Viewer, batch_id: UUID, kind: str
) -> StreamingHttpResponse:
    batch = services.batch_get(**viewer.whose, batch_id=batch_id)
    file = {"output": batch.output_file_id, "error": batch.error_file_id}.get(kind)
    if not file:
        raise Http404
    name = f'attachment; filename="{batch.id}_{kind}.jsonl"'
    return StreamingHttpResponse(
        services.file_parts(batch.project, file),
        content_type="application/jsonl",
        headers={"Content-Disposition": name},
    )
