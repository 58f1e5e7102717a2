"""Which size class of a rule serves a request: asked for, chosen, or moved up since the same prompt
was answered a moment ago, or since an answer of its conversation was rated down.

Gateways tell each other what they remember through Redis; without it each remembers on its own.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec

from controlplane.gateway.ask import Ask, Turn
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import bad_field
from controlplane.gateway.snapshot import SALT_BYTES, KeyRecord
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
# For so long a rating moves up the next request of its conversation.
RATING_WITHIN_S = 3_600.0
REMEMBERED_MAX = 20_000
# What is looked at of a conversation: its last turns, and the end of what each says. Prompts are
# told apart by the length of these turns and a shorter end.
TURNS_SEEN_MAX = 16
TURN_CHARS_MAX = 4_000
DIGEST_CHARS_MAX = 512
FENCE = "```"
PROBABILITY_DIGITS = 4
DIGEST_BYTES = 16
CHOSEN: SizeBy = "classifier"
LARGEST_PLACE = len(SIZE_CLASSES) - 1


class SharedSizes(Protocol):
    """What all gateways remember, of late and within a bound.

    `link_number` is another with each connection: what was told by an earlier one may be lost.
    """

    link_number: int

    async def look(self, digests: Sequence[bytes]) -> list[SizeClass | None] | None:
        """The class noted under each, or None; None for all where nobody can be asked."""

    def note(self, digest: bytes, served: SizeClass | None, within_s: float) -> bool:
        """Remember the class, or with None forget it, unless False; never blocks."""


class SizedPrompt(msgspec.Struct, frozen=True):
    """What was chosen for a prompt, and by what digests it and its conversation are remembered.

    `rated` where a thumbs-down of its conversation was taken into account.
    """

    choice: SizeChoice
    digest: bytes
    conversation: bytes
    rated: bool = False

    @property
    def may_move_up(self) -> bool:
        """Whether its past could change the choice."""
        return self.choice.by not in ("request", "shadow") and self.choice.chosen != LARGEST


class SizeMemory:
    """The size classes that answered prompts of late, by the digest of key and prompt, and those
    of answers that were rated down, by that of their conversation.
    """

    def __init__(self, shared: SharedSizes | None = None) -> None:
        self._shared = shared
        # With the time that each is good for, and by which link others were told.
        self._served: OrderedDict[bytes, tuple[SizeClass, float, int]] = OrderedDict()

    def note(
        self,
        digest: bytes,
        served: SizeClass,
        within_s: float = RETRY_WITHIN_S,
        *,
        tell: bool = True,
    ) -> None:
        """It was answered, or its client left during the answer; or the answer was rated down."""
        told = 0
        if self._shared is not None and (not tell or self._shared.note(digest, served, within_s)):
            told = self._shared.link_number
        self._served[digest] = served, monotonic_s() + within_s, told
        self._served.move_to_end(digest)
        if len(self._served) > REMEMBERED_MAX:
            self._served.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        """The rating was taken back, or has moved up a request."""
        self._served.pop(digest, None)
        if self._shared is not None:
            self._shared.note(digest, None, 0.0)

    def ended(self, sized: SizedPrompt) -> None:
        """Remember what answered; a rating moves up one request."""
        self.note(sized.digest, sized.choice.served)
        if sized.rated:
            self.forget(sized.conversation)

    def served(self, digest: bytes) -> SizeClass | None:
        """What answered it, within its bound."""
        found = self._served.get(digest)
        return found[0] if found is not None and monotonic_s() < found[1] else None

    async def learn(self, sized: SizedPrompt) -> bool:
        """Ask once what all gateways remember; whether it is news here. Their word counts, but for
        what they could not be told.
        """
        if self._shared is None or not sized.may_move_up:
            return False
        digests = (sized.digest, sized.conversation)
        found = await self._shared.look(digests)
        if found is None:
            return False
        before = [self.served(digest) for digest in digests]
        for digest, known, served in zip(digests, before, found, strict=True):
            if known is not None and self._served[digest][2] != self._shared.link_number:
                continue
            self._served.pop(digest, None)
            if served is not None:
                self.note(digest, served, tell=False)
        return before != [self.served(digest) for digest in digests]


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


def choose_size(
    ask: Ask, rule: RouteRule, key: KeyRecord, salt: bytes, memory: SizeMemory | None
) -> SizedPrompt | None:
    """None where the rule has no size classes, or nothing is generated. Without the project's
    `salt` nobody can tell from a digest what was said.
    """
    if ask.inputs is not None or not rule.has_classes:
        return None
    began = monotonic_ns()
    digest, conversation = _digest(ask, key.id, salt), _conversation(ask, key.id, salt)
    chosen, probability, why = CLASSIFIER.classify(shape_of(ask))
    past: list[tuple[SizeClass | None, SizeBy]] = []
    if memory is not None:
        rated, retried = memory.served(conversation), memory.served(digest)
        past = [(rated, "thumbs_down"), (retried, "retry")]
    served, by = _served(ask, rule, chosen, past)
    choice = SizeChoice(
        chosen=chosen,
        served=served,
        by=by,
        probability=round(probability, PROBABILITY_DIGITS),
        why=why,
        us=(monotonic_ns() - began) / MICROSECOND_NS,
        conversation=conversation.hex(),
    )
    moves = by not in ("request", "shadow")
    ends = moves and any(before is not None and why == "thumbs_down" for before, why in past)
    return SizedPrompt(choice, digest, conversation, ends)


def _served(
    ask: Ask, rule: RouteRule, chosen: SizeClass, past: Sequence[tuple[SizeClass | None, SizeBy]]
) -> tuple[SizeClass, SizeBy]:
    """Of several reasons against the chosen class the first here wins, of the past the largest."""
    if ask.size_class is not None:
        return ask.size_class, "request"
    if rule.shadow_class is not None:
        return rule.shadow_class, "shadow"
    place, reason = SIZE_CLASSES.index(chosen), CHOSEN
    for before, by in past:
        larger = -1 if before is None else min(SIZE_CLASSES.index(before) + 1, LARGEST_PLACE)
        if larger > place:
            place, reason = larger, by
    return SIZE_CLASSES[place], reason


def _digest(ask: Ask, key_id: str, salt: bytes) -> bytes:
    """The same for the same prompt of a key."""
    return _digest_of(f"{key_id} {len(ask.turns)}", ask, ask.turns[-TURNS_SEEN_MAX:], salt)


def _conversation(ask: Ask, key_id: str, salt: bytes) -> bytes:
    """The same for all requests of a key that begin alike, up to the first question."""
    first = next(
        (n for n, turn in enumerate(ask.turns[:TURNS_SEEN_MAX], 1) if turn.role == "user"), 1
    )
    return _digest_of(f"talk {key_id} {ask.user}", ask, ask.turns[:first], salt)


def _digest_of(whose: str, ask: Ask, turns: Sequence[Turn], salt: bytes) -> bytes:
    digest = blake2b(whose.encode(), digest_size=DIGEST_BYTES, key=salt[:SALT_BYTES])
    texts = [each for each in (ask.text, *ask.prompts[:1]) if isinstance(each, str)]
    if ask.assembly is not None:
        texts += (ask.assembly.name, *ask.assembly.values.values())
    said = [(turn.role, turn.content) for turn in turns]
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
