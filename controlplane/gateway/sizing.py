"""Which size class of a rule serves a request: asked for, chosen, or moved up since the same prompt
was answered a moment ago.

Each gateway remembers on its own: a retry that another one gets is judged like a new prompt.
"""

from collections import OrderedDict
from hashlib import blake2b

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.clock import MICROSECOND_NS, monotonic_ns, monotonic_s
from controlplane.kernel.receipt import SizeBy, SizeChoice
from controlplane.kernel.rules import LARGEST, SIZE_CLASSES, RouteRule, SizeClass
from controlplane.kernel.sizing.classifier import CLASSIFIER
from controlplane.kernel.sizing.features import AskShape
from inference.contract.frames import BYTES_PER_TOKEN

HEADER = b"x-sluice-size-class"
SIZE_CLASS = "size_class"
# A retry is the same prompt by the same key within this time of its answer.
RETRY_WITHIN_S = 120.0
REMEMBERED_MAX = 20_000
# What is looked at of a conversation: its last turns, and the end of what each says. Prompts are
# told apart by the length of these turns and a shorter end.
TURNS_SEEN_MAX = 16
TURN_CHARS_MAX = 4_000
DIGEST_CHARS_MAX = 512
FENCE = "```"
PROBABILITY_DIGITS = 4
DIGEST_BYTES = 16


class SizeMemory:
    """The size classes that answered prompts of late, by the digest of key and prompt."""

    def __init__(self) -> None:
        self._served: OrderedDict[bytes, tuple[SizeClass, float]] = OrderedDict()

    def note(self, prompt: bytes, served: SizeClass) -> None:
        """It was answered, or its client left during the answer."""
        self._served[prompt] = served, monotonic_s() + RETRY_WITHIN_S
        self._served.move_to_end(prompt)
        if len(self._served) > REMEMBERED_MAX:
            self._served.popitem(last=False)

    def served(self, prompt: bytes) -> SizeClass | None:
        """What answered it, within the bound of a retry."""
        found = self._served.get(prompt)
        return found[0] if found is not None and monotonic_s() < found[1] else None


def with_size_class(call: Call, ask: Ask) -> Ask:
    """The request with the size class that its header names; its field wins. Raises `Refusal`."""
    named = call.header(HEADER)
    if named is None or ask.size_class is not None:
        return ask
    for each in SIZE_CLASSES:
        if named == each:
            return msgspec.structs.replace(ask, size_class=each)
    name = HEADER.decode()
    raise bad_field(name, f"The header '{name}' must be one of {', '.join(SIZE_CLASSES)}.")


class SizedPrompt(msgspec.Struct, frozen=True):
    """What was chosen for a prompt, and by what digest it is remembered."""

    choice: SizeChoice
    digest: bytes


def choose_size(
    ask: Ask, rule: RouteRule, key_id: str, memory: SizeMemory | None
) -> SizedPrompt | None:
    """None where the rule has no size classes, or nothing is generated."""
    if ask.inputs is not None or not rule.has_classes:
        return None
    began = monotonic_ns()
    digest = _digest(ask, key_id)
    chosen, probability, why = CLASSIFIER.classify(shape_of(ask))
    before = memory.served(digest) if memory is not None else None
    served, by = _served(ask, rule, chosen, before)
    choice = SizeChoice(
        chosen=chosen,
        served=served,
        by=by,
        probability=round(probability, PROBABILITY_DIGITS),
        why=why,
        us=(monotonic_ns() - began) / MICROSECOND_NS,
    )
    return SizedPrompt(choice, digest)


def _served(
    ask: Ask, rule: RouteRule, chosen: SizeClass, before: SizeClass | None
) -> tuple[SizeClass, SizeBy]:
    """Of several reasons against the chosen class the first here wins."""
    if ask.size_class is not None:
        return ask.size_class, "request"
    if rule.shadow_class is not None:
        return rule.shadow_class, "shadow"
    if before is not None:
        place = SIZE_CLASSES.index(before) + 1
        larger = SIZE_CLASSES[place] if place < len(SIZE_CLASSES) else LARGEST
        if SIZE_CLASSES.index(larger) > SIZE_CLASSES.index(chosen):
            return larger, "retry"
    return chosen, "classifier"


def _digest(ask: Ask, key_id: str) -> bytes:
    """The same for the same prompt of a key."""
    digest = blake2b(f"{key_id} {len(ask.turns)}".encode(), digest_size=DIGEST_BYTES)
    texts = [each for each in (ask.text, *ask.prompts[:1]) if isinstance(each, str)]
    said = [(turn.role, turn.content) for turn in ask.turns[-TURNS_SEEN_MAX:]]
    for role, text in (*said, *(("", each) for each in texts)):
        digest.update(f"\0{role} {len(text)} {text[-DIGEST_CHARS_MAX:]}".encode())
    return digest.digest()


def shape_of(ask: Ask) -> AskShape:
    """What the classifier sees of the request, in a time that does not grow with it."""
    recent = ask.turns[-TURNS_SEEN_MAX:]
    asking = (turn.content for turn in reversed(recent) if turn.role == "user")
    fences = sum(turn.content[-TURN_CHARS_MAX:].count(FENCE) for turn in recent)
    return AskShape(
        prompt_tokens=ask.bytes // BYTES_PER_TOKEN,
        question=next(asking, ask.text or ""),
        code_blocks=(fences + 1) // 2,
        turns=len(ask.turns) or 1,
        tools=len(ask.tools),
        tool_results=sum(turn.role == "tool" for turn in ask.turns),
        schema=bool(ask.grammar_field) and not ask.tools,
        output_tokens=ask.output_tokens,
        effort=ask.effort or "",
        images=len(ask.pictures),
    )
