"""What a served request spent for nothing, told to the Hygiene port after its answer has left."""

from controlplane.gateway.after.hygiene import Past, marks_of
from controlplane.gateway.ports import Inspected
from controlplane.gateway.progress import NOTHING, Progress
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.results import Asked
from controlplane.gateway.snapshot import ModelRecord
from controlplane.kernel.insights.fixes import client_of
from controlplane.kernel.insights.hygiene import HASTY, Look, WasteFinding, find_waste
from controlplane.kernel.receipt import Miss
from inference.contract.frames import Usage

USER_AGENT, RETRY_AFTER = b"user-agent", "retry-after"
# Causes of a miss that mending the prompt ends; new text is no fault.
VOLATILE_CAUSES = frozenset({"timestamp", "identifier", "number", "tools_reordered"})


def note_waste(run: Progress, miss: Miss | None) -> None:
    """Look at it, if it is in the sample; of refused requests those that were told to come again,
    and no embeddings.
    """
    asked, step, charge = run.trail.asked, run.trail.step, run.charge
    if asked is None or asked.ask.inputs is not None:
        return
    watch, key, ask = run.state.hygiene, asked.key, asked.ask
    usage = charge.usage if charge is not None else NOTHING
    wait_s = _told_to_wait_s(run.refusal)
    if not usage.prompt_tokens and wait_s is None:
        return
    model = asked.plan.steps[0].model if step is None else step.model
    looked = watch.takes(key.id, ask)
    findings: tuple[WasteFinding, ...] = ()
    if looked:
        marks = marks_of(key.id, ask)
        past = watch.past(marks)
        watch.remember(marks, wait_s=None if usage.prompt_tokens else wait_s)
        if usage.prompt_tokens:
            findings = find_waste(look_of(asked, model, usage, miss, past))
        elif past.hasty:
            findings = (WasteFinding(HASTY, 0, 0),)
    watch.port.count(
        Inspected(
            organization=key.organization,
            project=key.project,
            key=key.id,
            model=model.name,
            client=client_of(run.call.header(USER_AGENT)),
            tokens=usage.prompt_tokens + usage.completion_tokens,
            nano=charge.amount_nano if charge is not None else 0,
            looked=looked,
            findings=findings,
        )
    )


def _told_to_wait_s(refusal: Refusal | None) -> float | None:
    told = None if refusal is None else dict(refusal.headers).get(RETRY_AFTER)
    return None if told is None else float(told)


def look_of(asked: Asked, model: ModelRecord, usage: Usage, miss: Miss | None, past: Past) -> Look:
    """What tells waste of a request. Stored templates are not the client's to mend."""
    ask = asked.ask
    tokens, nano = _volatile(miss)
    return Look(
        texts=(ask.text,) if ask.text is not None else tuple(turn.content for turn in ask.turns),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        window_tokens=model.context_window,
        output_tokens=usage.completion_tokens,
        named_bound=ask.output_tokens is not None,
        price=model.price,
        volatile_tokens=tokens,
        volatile_nano=nano,
        streams=ask.stream or asked.key.batch,
        **past._asdict(),
    )


def _volatile(miss: Miss | None) -> tuple[int, int]:
    """Tokens and nano-USD that something volatile near the beginning costs."""
    if miss is None or miss.cause not in VOLATILE_CAUSES:
        return 0, 0
    return miss.avoidable_tokens, miss.cost_nano
