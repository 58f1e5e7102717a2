"""A stored template and its variables to messages, put before those that the client sent."""

import msgspec

from controlplane.gateway.ask import Ask, Turn
from controlplane.gateway.call import Call
from controlplane.kernel.prompts import filled
from controlplane.kernel.spans import INDEX

ASSEMBLE = INDEX["s3_tokenize.assemble"]


def assemble(call: Call, ask: Ask) -> Ask:
    """The request with all its messages; as it is where it names no template."""
    if ask.assembly is None:
        return ask
    began = call.spans.clock()
    found = filled(ask.assembly.body, ask.assembly.values)
    turns = tuple(Turn(message.role, message.content) for message in found)
    call.spans.add(ASSEMBLE, began)
    return msgspec.structs.replace(ask, turns=(*turns, *ask.turns))
