"""What a served request spent for nothing, told to the Hygiene port after its answer has left."""

from __future__ import annotations

from controlplane.gateway.ask import Ask
from controlplane.gateway.misses.explain import Miss
from controlplane.gateway.ports import Inspected
from controlplane.gateway.trip import Trip, made
from controlplane.kernel.hygiene import Finding, Look, find_waste

# Causes of a miss that mending the prompt ends; new text is no fault.
VOLATILE_CAUSES = frozenset({"timestamp", "identifier", "number", "tools_reordered"})


def note_waste(trip: Trip, miss: Miss | None) -> None:
    """Look at it, if it is in the sample; refused requests and embeddings are not counted."""
    admitted, charge = trip.admitted, trip.charge
    if admitted is None or charge is None or not charge.usage.prompt_tokens:
        return
    if admitted.ask.inputs is not None:
        return
    watch, key, usage = trip.world.hygiene, admitted.key, charge.usage
    looked = watch.takes(key.id, admitted.ask)
    watch.port.count(
        Inspected(
            organization=key.organization,
            project=key.project,
            key=key.id,
            model=made(trip.step).model.name,
            tokens=usage.prompt_tokens + usage.completion_tokens,
            nano=charge.amount_nano,
            looked=looked,
            findings=_findings(trip, miss) if looked else (),
        )
    )


def _findings(trip: Trip, miss: Miss | None) -> tuple[Finding, ...]:
    admitted, usage, model = made(trip.admitted), made(trip.charge).usage, made(trip.step).model
    tokens, nano = volatile_of(miss)
    return find_waste(
        Look(
            texts=texts_of(admitted.ask),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            window_tokens=model.context_window,
            output_tokens=usage.completion_tokens,
            named_bound=admitted.ask.output_tokens is not None,
            price=model.price,
            volatile_tokens=tokens,
            volatile_nano=nano,
            repeated=trip.world.hygiene.came_before(admitted.key.id, admitted.ask),
        )
    )


def texts_of(ask: Ask) -> tuple[str, ...]:
    """What the client wrote itself; stored templates are not its to mend."""
    return (ask.text,) if ask.text is not None else tuple(turn.content for turn in ask.turns)


def volatile_of(miss: Miss | None) -> tuple[int, int]:
    """Tokens and nano-USD that something volatile near the beginning costs."""
    if miss is None or miss.cause not in VOLATILE_CAUSES:
        return 0, 0
    return miss.avoidable_tokens, miss.cost_nano
