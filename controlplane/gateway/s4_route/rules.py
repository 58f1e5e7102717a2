"""Which rule sends this request where; the evaluation itself is the kernel's."""

from __future__ import annotations

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.snapshot import KeyRecord, Snapshot
from controlplane.kernel.rules import first_match
from controlplane.kernel.spans import INDEX

RULES = INDEX["s4_route.rules"]
DIRECT = "direct"


def rule_name(call: Call, ask: Ask, *, key: KeyRecord, snapshot: Snapshot) -> str:
    """Name and version of the rule that matched; `direct` when the model was named itself."""
    began = call.spans.clock()
    rule = first_match(snapshot.rules, ask.model, key.project)
    call.spans.add(RULES, began)
    return DIRECT if rule is None else f"{rule.name}@{rule.version}"
