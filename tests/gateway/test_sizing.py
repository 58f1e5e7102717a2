"""Which size class serves a request: chosen, named, moved up, held by bounds or by a shadow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from controlplane.gateway import sizing
from controlplane.gateway.ask import Ask, Assembly, Inputs, ToolUse, Turn
from controlplane.gateway.call import Call
from controlplane.gateway.plan import RoutePlan, make_plan
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.sizing import SizeMemory, choose_size, shape_of, with_size_class
from controlplane.gateway.snapshot import KeyRecord, Snapshot
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.prompts import PromptBody, PromptMessage
from controlplane.kernel.receipt import SizeChoice
from controlplane.kernel.rules import Match, RouteRule, SizeClass, Step, Target
from tests.gateway.test_plan import REQUEST, snapshot
from tests.support.ports import make_key

AUTO = RouteRule(
    name="auto",
    match=Match(aliases=frozenset({"auto"})),
    steps=(
        Step(
            targets=(
                Target(model="mini", size_class="small"),
                Target(model="mid", size_class="medium"),
                Target(model="large", size_class="large"),
            )
        ),
    ),
)
EASY = "What is the capital of Peru?"
HARD = "Why does it deadlock? Debug the race, justify the fix and prove it: n ≥ 1, x ∈ R, √2."


def ask(question: str = EASY, **changes: object) -> Ask:
    made = Ask(operation="chat", model="auto", bytes=400, turns=(Turn("user", question),))
    return msgspec.structs.replace(made, **changes)


def known(rule: RouteRule = AUTO, **models: dict[str, object]) -> Snapshot:
    return snapshot(rule, **{"mini": {}, "mid": {}, **models})


def plan(
    asked: Ask,
    memory: SizeMemory | None = None,
    *,
    current: Snapshot | None = None,
    key: KeyRecord | None = None,
) -> RoutePlan:
    return make_plan(REQUEST, asked, key or make_key(), current or known(), memory)


def choice(found: RoutePlan) -> SizeChoice:
    assert found.sized is not None
    return found.sized.choice


def test_simple_questions_go_to_the_small_model_and_hard_ones_to_the_large() -> None:
    easy, hard = plan(ask()), plan(ask(HARD))
    assert [each.steps[0].model.name for each in (easy, hard)] == ["mini", "large"]
    told = choice(easy)
    assert (told.chosen, told.served, told.by) == ("small", "small", "classifier")
    assert (told.model, told.largest) == ("mini", "large")
    assert told.why
    assert told.us > 0


@pytest.mark.parametrize("wanted", ["small", "medium", "large"])
def test_a_request_may_name_its_class(wanted: str) -> None:
    found = plan(ask(HARD, size_class=wanted))
    told = choice(found)
    assert (told.chosen, told.served, told.by) == ("large", wanted, "request")
    assert found.steps[0].model.name == {"small": "mini", "medium": "mid", "large": "large"}[wanted]


def test_the_same_prompt_again_moves_up_until_there_is_nothing_larger() -> None:
    memory, served = SizeMemory(), []
    for _ in range(4):
        found = plan(ask(), memory)
        served.append((choice(found).served, choice(found).by))
        assert found.sized is not None
        memory.note(found.sized.digest, choice(found).served)
    assert served == [
        ("small", "classifier"),
        ("medium", "retry"),
        ("large", "retry"),
        ("large", "retry"),
    ]


def rate_down(memory: SizeMemory, found: RoutePlan) -> None:
    """As feedback does, by what the receipt has kept."""
    digest = bytes.fromhex(choice(found).conversation)
    memory.note(digest, choice(found).served, sizing.RATING_WITHIN_S)


def test_a_thumbs_down_moves_up_the_next_request_of_the_conversation_and_no_more() -> None:
    memory = SizeMemory()
    rate_down(memory, plan(ask(), memory))
    other = plan(ask("What is the capital of Chile?"), memory)
    assert choice(other).by == "classifier"
    assert choice(plan(ask(user="ann"), memory)).by == "classifier"
    longer = (Turn("user", EASY), Turn("assistant", "Lima."), Turn("user", "Sure?"))
    up = plan(ask(turns=longer), memory)
    assert (choice(up).served, choice(up).by) == ("medium", "thumbs_down")
    assert up.sized is not None
    memory.ended(up.sized)
    assert choice(plan(ask(turns=(*longer, *longer)), memory)).by == "classifier"
    assert choice(plan(ask(turns=longer), memory)).by == "retry"
    rate_down(memory, up)
    told = choice(plan(ask(turns=longer), memory))
    assert (told.served, told.by) == ("large", "thumbs_down")
    memory.forget(up.sized.conversation)
    assert choice(plan(ask(turns=(*longer, *longer)), memory)).by == "classifier"


def test_the_digests_of_projects_differ_and_values_of_templates_are_told_apart() -> None:
    def told(asked: Ask, salt: bytes) -> tuple[bytes, bytes]:
        found = choose_size(asked, AUTO, make_key(), salt, None)
        assert found is not None
        return found.digest, found.conversation

    body = PromptBody(messages=(PromptMessage("user", "{{a}}"),))
    filled = [ask(turns=(), assembly=Assembly("t", 1, body, {"a": each})) for each in "xy"]
    assert len({told(each, b"s") for each in (*filled, ask())}) == 3
    assert told(ask(), b"s") != told(ask(), b"t")


class Elsewhere:
    """What another gateway remembers, and how often it was asked."""

    def __init__(self) -> None:
        self.known: dict[bytes, SizeClass] = {}
        self.looks = 0
        self.deaf = False
        self.link_number = 1

    async def look(self, digests: Sequence[bytes]) -> list[SizeClass | None]:
        self.looks += 1
        return [self.known.get(each) for each in digests]

    def note(self, digest: bytes, served: SizeClass | None, within_s: float) -> bool:
        if self.deaf:
            return False
        if served is None:
            self.known.pop(digest, None)
        else:
            self.known[digest] = served
        return True


async def test_gateways_tell_each_other_and_are_asked_where_it_could_matter() -> None:
    shared = Elsewhere()
    here, there = SizeMemory(shared), SizeMemory(shared)
    first, hard = plan(ask(), here).sized, plan(ask(HARD), here).sized
    assert first is not None and hard is not None
    assert not await here.learn(first) and not await here.learn(hard)
    assert shared.looks == 1
    here.ended(first)
    assert await there.learn(first)
    again = plan(ask(), there)
    assert (choice(again).served, choice(again).by) == ("medium", "retry")
    rate_down(here, again)
    assert again.sized is not None
    here.forget(again.sized.conversation)
    assert [*shared.known] == [first.digest]


async def test_what_others_could_not_be_told_is_remembered_here() -> None:
    shared = Elsewhere()
    here, first = SizeMemory(shared), plan(ask()).sized
    assert first is not None
    shared.deaf = True
    here.ended(first)
    shared.deaf = False
    assert not await here.learn(first)
    assert choice(plan(ask(), here)).by == "retry"
    here.ended(first)
    shared.known.clear()
    # Told by a link that is gone, it may be lost.
    shared.link_number += 1
    assert not await here.learn(first)
    shared.link_number -= 1
    assert await here.learn(first)
    assert choice(plan(ask(), here)).by == "classifier"


def test_a_rating_is_used_up_also_where_bounds_decide() -> None:
    memory, current = SizeMemory(), known(mid={"context_window": 100})
    rate_down(memory, plan(ask(), memory))
    up = plan(ask(output_tokens=200), memory, current=current)
    assert (choice(up).served, choice(up).by) == ("large", "bounds")
    assert up.sized is not None
    memory.ended(up.sized)
    assert choice(plan(ask("Sure?"), memory)).by == "classifier"
    assert memory.served(up.sized.conversation) is None


def test_only_the_same_prompt_of_the_same_key_within_the_bound_is_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, first = SizeMemory(), plan(ask())
    assert first.sized is not None
    memory.note(first.sized.digest, "small")
    longer = (Turn("user", EASY), Turn("assistant", "Lima."), Turn("user", EASY))
    for other in (
        plan(ask("What is the capital of Chile?"), memory),
        plan(ask(turns=longer), memory),
        plan(ask(), memory, key=make_key(id="c" * 32)),
    ):
        assert choice(other).by == "classifier"
    assert choice(plan(ask(), memory)).by == "retry"
    later = monotonic_s() + sizing.RETRY_WITHIN_S
    monkeypatch.setattr(sizing, "monotonic_s", lambda: later + 1)
    assert choice(plan(ask(), memory)).by == "classifier"


def test_no_more_prompts_are_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "REMEMBERED_MAX", 2)
    memory = SizeMemory()
    for each in (b"a", b"b", b"a", b"c"):
        memory.note(each, "small")
    assert [memory.served(each) for each in (b"a", b"b", b"c")] == ["small", None, "small"]


def test_what_does_not_fit_the_small_model_goes_to_the_first_that_it_fits() -> None:
    current = known(mini={"output_tokens_max": 8}, mid={"context_window": 100})
    found = plan(ask(output_tokens=9), current=current)
    assert found.steps[0].model.name == "large"
    assert (choice(found).chosen, choice(found).served, choice(found).by) == (
        "small",
        "large",
        "bounds",
    )
    with pytest.raises(Refusal) as refused:
        plan(ask(output_tokens=9, size_class="small"), current=current)
    assert refused.value.param == "max_tokens"


def test_what_fits_none_is_refused_by_the_bounds_of_the_largest() -> None:
    with pytest.raises(Refusal) as refused:
        plan(ask(output_tokens=10_000))
    assert "large" in refused.value.message


def test_a_shadow_serves_its_class_and_records_the_choice() -> None:
    memory, shadow = SizeMemory(), msgspec.structs.replace(AUTO, shadow_class="large")
    for _ in range(2):
        found = plan(ask(), memory, current=known(shadow))
        assert found.sized is not None
        told = choice(found)
        assert (told.chosen, told.served, told.by, told.model) == (
            "small",
            "large",
            "shadow",
            "mini",
        )
        assert found.steps[0].model.name == "large"
        memory.note(found.sized.digest, told.served)


def test_keys_of_few_models_get_the_next_class_that_they_may_use() -> None:
    named = msgspec.structs.replace(AUTO, match=Match(aliases=frozenset({"mid"})))
    key = make_key(models=frozenset({"mid", "large"}))
    found = plan(ask(model="mid"), current=known(named), key=key)
    assert (found.steps[0].model.name, choice(found).chosen) == ("mid", "small")


def test_rules_without_classes_and_what_generates_nothing_get_none() -> None:
    plain = msgspec.structs.replace(AUTO, steps=(Step(targets=(Target(model="mini"),)),))
    assert plan(ask(), current=known(plain)).sized is None
    embeds: dict[str, object] = {"task": "embed"}
    current = known(AUTO, mini=embeds, mid=embeds, large=embeds)
    asked = ask(operation="embedding", inputs=Inputs(texts=("a",)), turns=())
    found = plan(asked, current=current)
    assert (found.sized, found.steps[0].model.name) == (None, "mini")


def test_what_the_classifier_sees_is_the_end_of_a_conversation() -> None:
    turns = (
        Turn("system", "```\nx\n```"),
        Turn("user", "Look it up: ```y```"),
        Turn("assistant", "", calls=(ToolUse("1", "f", {}),)),
        Turn("tool", "found", call_id="1"),
    )
    asked = ask(turns=turns, tools=({}, {}), effort="high", grammar_field="tools")
    seen = shape_of(asked)
    assert (seen.question, seen.code_blocks, seen.turns) == ("Look it up: ```y```", 2, 4)
    assert (seen.tools, seen.tool_results, seen.schema, seen.effort) == (2, 1, False, "high")
    assert shape_of(ask(grammar_field="response_format")).schema
    assert shape_of(ask(turns=(), text="Prove it.")).question == "Prove it."


def test_the_header_names_a_class_unless_the_field_does() -> None:
    def read(header: bytes, field: SizeClass | None = None) -> Ask:
        return with_size_class(Call([(sizing.HEADER, header)]), ask(size_class=field))

    assert read(b"medium").size_class == "medium"
    assert read(b"medium", "small").size_class == "small"
    assert with_size_class(Call([]), ask()).size_class is None
    with pytest.raises(Refusal) as refused:
        read(b"huge")
    assert (refused.value.status, refused.value.param) == (400, "x-sluice-size-class")
