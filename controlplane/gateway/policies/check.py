"""What a project's policies say to a request: refused by field, or its texts masked."""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.plan import RoutePlan
from controlplane.gateway.policies.masks import Masks, changed, placeholder, values_changed
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.policies.personal import find_personal
from controlplane.kernel.policies.terms import Action, Policies

# Beyond this, which takes some milliseconds, a body is looked at beside the loop.
INLINE_BYTES_MAX = 65_536
# Fields of all shapes in which stands what a model reads.
TEXTS = frozenset({
    "chat_template_kwargs", "documents", "guided_choice", "guided_grammar", "guided_json",
    "guided_regex", "input", "instructions", "messages", "output_config", "prompt", "query",
    "response_format", "structured_outputs", "system", "text", "text_1", "text_2", "tools",
})  # fmt: skip
GENERATES = frozenset({"chat", "completion"})
_READERS = {"chat_template_kwargs": values_changed}
PREVIOUS = "previous_response_id"
Parse = Callable[[bytes], Ask]


def against_policy(policy: str, field: str, message: str) -> Refusal:
    """400: the project does not allow it."""
    refusal = bad_field(
        field, f"{message} The project of this key requires it.", "policy_violation"
    )
    refusal.policy = policy
    refusal.headers += (("x-sluice-policy", policy),)
    return refusal


def check_ask(ask: Ask, plan: RoutePlan, policies: Policies, *, waits: bool) -> Ask:
    """The request, if its fields keep the policies; raises `Refusal`. Without a client that `waits`
    for it, it may be unstreamed however long.
    """
    if ask.operation not in GENERATES or "previous" in ask.echo:
        # The last is read again, with what it follows.
        return ask
    if ask.output_tokens is None:
        if ask.caps_output:
            # Its prompt is counted; to run it must name a bound.
            return ask
        if policies.require_max_tokens:
            message = f"Missing parameter: '{ask.output_field}'."
            raise against_policy("require_max_tokens", ask.output_field, message)
    longest = max(step.output_tokens for step in plan.steps) * ask.choices
    most = policies.unstreamed_tokens_max
    if most is not None and waits and not ask.stream and longest > most:
        message = (
            f"Answers of more than {most} tokens must be streamed, and this may have {longest}."
        )
        raise against_policy("unstreamed_tokens_max", "stream", message)
    if policies.tools_max is not None and len(ask.tools) > policies.tools_max:
        message = f"'tools' must have at most {policies.tools_max} entries."
        raise against_policy("tools_max", "tools", message)
    if policies.calls_max is not None and ask.tools:
        return msgspec.structs.replace(ask, calls_max=policies.calls_max)
    return ask


def read_masked(body: bytes, *, parse: Parse, policies: Policies, key: bytes) -> Ask:
    """What `parse` makes of a body whose texts were looked at; raises `Refusal`.

    `key` is the tenant's secret, by which placeholders are made.
    """
    ask = parse(body)
    _check_readable(ask)
    given = msgspec.json.decode(body)
    look = _Look(policies, key)
    made = {
        name: _READERS.get(name, changed)(value, look.take, name) if name in TEXTS else value
        for name, value in given.items()
    }
    if not look.values:
        return ask
    masks = Masks(msgspec.json.encode(made), look.values, dict(look.counts))
    return with_masks(parse(masks.body), masks)


def read_following(
    body: bytes,
    *,
    parse: Callable[..., Ask],
    earlier: KeptContent,
    masks: Masks | None,
    policies: Policies | None,
    key: bytes,
) -> Ask:
    """What `parse` makes of a body, masked by `masks`, behind an `earlier` response: that was kept
    under whatever policies, so its texts are looked at as well; raises `Refusal`.
    """
    if policies is not None and policies.reads:
        look = _Look(policies, key, masks)

        def take(text: str, _: str) -> str:
            return look.take(text, PREVIOUS)

        said = msgspec.json.decode(earlier.body)["input"]
        answered = msgspec.json.decode(earlier.response)["output"]
        earlier = msgspec.structs.replace(
            earlier,
            body=msgspec.json.encode({"input": changed(said, take, "")}),
            response=msgspec.json.encode({"output": changed(answered, take, "")}),
        )
        if look.values:
            masks = Masks(body, look.values, dict(look.counts))
    return with_masks(parse(body, earlier=earlier), masks)


def with_masks(ask: Ask, masks: Masks | None) -> Ask:
    """A request read from its masked body; what its answer repeats of it is as the client wrote."""
    if masks is None:
        return ask

    def masked(read: Ask) -> Ask:
        echo = read.echo
        if "request" in echo:
            echo = {**echo, "request": masks.restore_json(echo["request"])}
        return msgspec.structs.replace(read, masks=masks, echo=echo)

    return ask.changed(masked)


def _check_readable(ask: Ask) -> None:
    """Token ids are no text that could be looked at."""
    inputs = ask.inputs
    listed = any(not isinstance(each, str) for each in ask.prompts)
    if ask.tokens is not None or listed or (inputs is not None and inputs.tokens):
        field = "prompt" if inputs is None else inputs.field(0)
        message = f"'{field}' must be text: token ids cannot be checked."
        raise against_policy("texts", field, message)


class _Look:
    """The texts of one request: what is found in them, and what was masked."""

    def __init__(self, policies: Policies, key: bytes, before: Masks | None = None) -> None:
        self._policies = policies
        self._key = key
        self.values = dict(before.values) if before else {}
        self.counts = Counter(before.counts if before else {})

    def take(self, text: str, path: str) -> str:
        """The text with its placeholders; raises `Refusal`."""
        parts: list[str] = []
        reached = 0
        for start, _, end, kind, action in sorted(self._found(text)):
            if start < reached:
                continue
            if action == "refuse":
                message = f"'{path}' must not contain: {kind}."
                raise against_policy(kind, path, message)
            self.counts[kind] += 1
            parts += text[reached:start], self._mask(kind, text[start:end])
            reached = end
        return "".join((*parts, text[reached:]))

    def _mask(self, kind: str, found: str) -> str:
        seed, mask = found, placeholder(kind, found, self._key)
        while self.values.setdefault(mask, found) != found:
            seed += "\0"
            mask = placeholder(kind, seed, self._key)
        return mask

    def _found(self, text: str) -> Iterator[tuple[int, int, int, str, Action]]:
        """Start, a rank by which the longest is first, end, kind and action."""
        for kind, action in self._policies.personal.items():
            for start, end in find_personal(text, kind):
                yield start, -end, end, kind, action
        if self._policies.patterns:
            for number, start, end in self._policies.pattern_set.find(text):
                own = self._policies.patterns[number]
                yield start, -end, end, own.name, own.action
