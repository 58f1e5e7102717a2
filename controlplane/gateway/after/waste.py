"""What a served request spent for nothing, told to the Hygiene port after its answer has left."""

from controlplane.gateway.ask import Ask
from controlplane.gateway.ports import Inspected
from controlplane.gateway.progress import Progress
from controlplane.gateway.snapshot import ModelRecord
from controlplane.kernel.insights.hygiene import Look, WasteFinding, find_waste
from controlplane.kernel.receipt import Miss
from inference.contract.frames import Usage

# Causes of a miss that mending the prompt ends; new text is no fault.
VOLATILE_CAUSES = frozenset({"timestamp", "identifier", "number", "tools_reordered"})


def note_waste(run: Progress, miss: Miss | None) -> None:
    """Look at it, if it is in the sample; refused requests and embeddings are not counted."""
    asked, step, charge = run.trail.asked, run.trail.step, run.charge
    if asked is None or step is None or charge is None or not charge.usage.prompt_tokens:
        return
    if asked.ask.inputs is not None:
        return
    watch, key, ask, usage = run.state.hygiene, asked.key, asked.ask, charge.usage
    looked = watch.takes(key.id, ask)
    findings: tuple[WasteFinding, ...] = ()
    if looked:
        repeated = watch.came_before(key.id, ask)
        findings = find_waste(look_of(ask, step.model, usage, miss, repeated=repeated))
    watch.port.count(
        Inspected(
            organization=key.organization,
            project=key.project,
            key=key.id,
            model=step.model.name,
            tokens=usage.prompt_tokens + usage.completion_tokens,
            nano=charge.amount_nano,
            looked=looked,
            findings=findings,
        )
    )


def look_of(
    ask: Ask, model: ModelRecord, usage: Usage, miss: Miss | None, *, repeated: bool
) -> Look:
    """What tells waste of a request. Stored templates are not the client's to mend."""
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
        repeated=repeated,
    )


def _volatile(miss: Miss | None) -> tuple[int, int]:
    """Tokens and nano-USD that something volatile near the beginning costs."""
    if miss is None or miss.cause not in VOLATILE_CAUSES:
        return 0, 0
    return miss.avoidable_tokens, miss.cost_nano
