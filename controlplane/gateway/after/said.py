"""What was said in a request, once it has ended: only of projects that keep it."""

from controlplane.gateway.answer import Piece
from controlplane.gateway.progress import Progress
from controlplane.gateway.snapshot import KeyRecord
from controlplane.kernel.contents.kept import KEPT_BYTES_MAX as MOST
from controlplane.kernel.contents.kept import KeptCall, KeptChoice, KeptContent, KeptStatus
from inference.contract.parts import ToolCallDelta


def keep_said(run: Progress, key: KeyRecord) -> None:
    """Queue prompt and answer of a request that was admitted; they are sealed elsewhere."""
    content = said_in(run, key)
    if content is not None:
        run.state.contents.keep(content)


def said_in(run: Progress, key: KeyRecord) -> KeptContent | None:
    """Prompt and answer so far; None where they are not kept."""
    asked, step = run.trail.asked, run.trail.step
    if asked is None or not asked.body or run.trail.admitted is None or step is None:
        return None
    told = run.answer.told if run.answer else []
    return KeptContent(
        request=run.call.request,
        organization=key.organization,
        project=key.project,
        key=key.id,
        model=step.model.name,
        path=asked.path,
        started_us=run.call.started_us,
        end_user=asked.ask.user,
        body=asked.body[:MOST],
        choices=tuple(
            _choice(index, [piece for piece in told if piece.choice == index])
            for index in sorted({piece.choice for piece in told})
        ),
        status=_status(run),
        truncated=max(len(asked.body), sum(len(piece.text) for piece in told)) > MOST,
    )


def _choice(index: int, pieces: list[Piece]) -> KeptChoice:
    calls: dict[int, list[ToolCallDelta]] = {}
    for call in (call for piece in pieces for call in piece.calls):
        calls.setdefault(call.index, []).append(call)
    return KeptChoice(
        index=index,
        text="".join(piece.text for piece in pieces)[:MOST],
        reasoning="".join(piece.reasoning for piece in pieces)[:MOST],
        calls=tuple(
            KeptCall(
                id=parts[0].id or "",
                name=parts[0].name or "",
                arguments="".join(part.arguments for part in parts)[:MOST],
            )
            for parts in calls.values()
        ),
        finish=next((piece.finish for piece in pieces if piece.finish), ""),
    )


def _status(run: Progress) -> KeptStatus:
    if run.refusal is not None:
        return "failed"
    if (run.call.gone or run.cut) and not run.delivered:
        return "cancelled"
    cut = run.answer is not None and run.answer.finish in ("length", "content_filter")
    return "incomplete" if cut else "completed"
