"""The plan of a request: its rule's steps as the configuration in force lets them be."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from controlplane.gateway.ask import Ask, Inputs
from controlplane.gateway.plan import make_plan, within
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s1_admission.limits import counted_key
from controlplane.gateway.snapshot import Limits, ModelRecord, Snapshot
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.price import Price, PriceTerms, scaled
from controlplane.kernel.rules import (
    PRIORITY_LOW,
    PRIORITY_NORMAL,
    CanaryRules,
    Match,
    RouteRule,
    Step,
    Target,
)
from inference.contract.frames import BYTES_PER_TOKEN, Sampling
from tests.support.ports import make_key, make_snapshot

REQUEST = bytes(16)
REQUESTS = 2_000


def snapshot(*rules: RouteRule, **models: dict[str, object]) -> Snapshot:
    """`large` and what else is named, each like it but for these changes."""
    current = make_snapshot("large")
    large = current.models["large"]
    made: dict[str, ModelRecord] = {"large": large}
    for name, changes in models.items():
        made[name] = msgspec.structs.replace(large, name=name, **changes)
    names = frozenset(made)
    return msgspec.structs.replace(current, rules=rules, models=made, model_names=names)


def ask(**changes: object) -> Ask:
    """A chat with `large` of about 25 tokens, its output unbounded by the client."""
    made = Ask(
        operation="chat",
        model="large",
        stream=False,
        include_usage=False,
        sampling=Sampling(max_tokens=0),
        output_tokens=None,
        stop=(),
        bytes=25 * BYTES_PER_TOKEN,
        text="a",
    )
    return msgspec.structs.replace(made, **changes)


def chain(*models: str, **changes: object) -> RouteRule:
    """A rule with one model a step."""
    steps = tuple(Step(targets=(Target(model=model),)) for model in models)
    return msgspec.structs.replace(RouteRule(name="r", version=1, steps=steps), **changes)


def test_without_a_rule_the_named_model_serves_in_its_pool() -> None:
    plan = make_plan(REQUEST, ask(), make_key(priority=2), snapshot())
    (step,) = plan.steps
    assert (plan.label, plan.priority, plan.unfit) == ("direct", 2, ())
    assert (step.number, step.model.name, step.pool, step.output_tokens) == (
        1,
        "large",
        "default",
        64,
    )


def test_each_step_has_the_default_output_of_its_own_model() -> None:
    known = snapshot(chain("large", "small"), small={"output_tokens_default": 16, "pool": "s"})
    plan = make_plan(REQUEST, ask(), make_key(), known)
    assert [(step.pool, step.output_tokens) for step in plan.steps] == [("default", 64), ("s", 16)]


def test_of_a_gateway_with_pools_the_first_step_refuses_and_later_ones_are_left_out() -> None:
    known = snapshot(chain("large", "small", "large"), small={"pool": "s"})
    plan = make_plan(REQUEST, ask(), make_key(), known)
    assert within(plan, ()) is plan and within(plan, {"s", "default"}) is plan
    here = within(plan, {"default"})
    assert [step.number for step in here.steps] == [1, 3]
    assert [(each.step, each.reason) for each in here.unfit] == [(2, "pool_elsewhere")]
    with pytest.raises(Refusal) as caught:
        within(plan, {"s"})
    assert (caught.value.status, caught.value.code) == (421, "pool_elsewhere")


@pytest.mark.parametrize(("own", "expected"), [(None, 0), (2, 2)])
def test_a_rule_may_set_the_priority(own: int | None, expected: int) -> None:
    known = snapshot(chain("large", priority=own))
    assert make_plan(REQUEST, ask(), make_key(priority=0), known).priority == expected


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        (Match(tags=frozenset({"batch", "x"})), True),
        (Match(tags=frozenset({"x"})), False),
        (Match(priorities=frozenset({1})), True),
        (Match(prompt_tokens_min=25, prompt_tokens_max=25), True),
        (Match(prompt_tokens_min=26), False),
        (Match(tasks=frozenset({"embed"})), False),
        (Match(organizations=frozenset({"a" * 32}), projects=frozenset({"b" * 32})), True),
    ],
)
def test_rules_see_key_project_and_size(match: Match, matches: bool) -> None:
    key = make_key(tags=frozenset({"batch"}))
    plan = make_plan(REQUEST, ask(), key, snapshot(chain("large", match=match)))
    assert plan.label == ("r@1" if matches else "direct")


def test_models_out_of_service_are_left_out_wherever_they_stand() -> None:
    plan = make_plan(REQUEST, ask(), make_key(), snapshot(chain("gone", "large", "away")))
    assert [(step.number, step.model.name) for step in plan.steps] == [(2, "large")]
    assert [(step.step, step.reason) for step in plan.unfit] == [
        (1, "model_not_found"),
        (3, "model_not_found"),
    ]
    with pytest.raises(Refusal) as caught:
        make_plan(REQUEST, ask(), make_key(), snapshot(chain("gone")))
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_a_later_step_of_the_wrong_task_or_ceiling_is_left_out_and_the_first_refuses() -> None:
    known = snapshot(
        chain("large", "vectors", "small"),
        vectors={"task": "embed"},
        small={"output_tokens_max": 99},
    )
    plan = make_plan(REQUEST, ask(output_tokens=100), make_key(), known)
    assert [(step.step, step.reason) for step in plan.unfit] == [
        (2, "model_task_mismatch"),
        (3, "max_tokens"),
    ]
    turned = msgspec.structs.replace(known, rules=(chain("small", "large"),))
    with pytest.raises(Refusal, match="at most 99 tokens") as caught:
        make_plan(REQUEST, ask(output_tokens=100), make_key(), turned)
    assert caught.value.param == "max_tokens"


def test_embeddings_stay_with_models_that_embed() -> None:
    inputs = Inputs(texts=("a",), listed=False, base64=False, dimensions=None)
    asked = ask(model="vectors", text=None, inputs=inputs, operation="embedding")
    known = snapshot(chain("vectors", "large"), vectors={"task": "embed", "pool": "e"})
    plan = make_plan(REQUEST, asked, make_key(), known)
    assert [(step.model.name, step.pool) for step in plan.steps] == [("vectors", "e")]
    assert [step.reason for step in plan.unfit] == ["model_task_mismatch"]


def test_weights_and_the_trial_share_requests_and_one_request_stays_where_it_is() -> None:
    targets = (Target(model="large", weight=3), Target(model="small", pool="p"))
    rule = RouteRule(name="old", version=1, steps=(Step(targets=targets),))
    trial = CanaryRules(rules=(chain("small", name="new", version=2),), share_permille=200)
    known = msgspec.structs.replace(snapshot(rule, small={}), candidate=trial)
    went: Counter[tuple[str, str, str]] = Counter()
    for _ in range(REQUESTS):
        request = new_request_id()
        plan = make_plan(request, ask(), make_key(), known)
        assert make_plan(request, ask(), make_key(), known) == plan
        went[plan.label, plan.steps[0].model.name, plan.steps[0].pool] += 1
    shares = {place: count / REQUESTS for place, count in went.items()}
    # Six standard deviations of 2,000 draws are 0.067 at most.
    assert shares == {
        ("old@1", "large", "default"): pytest.approx(0.6, abs=0.067),
        ("old@1", "small", "p"): pytest.approx(0.2, abs=0.067),
        ("new@2", "small", "default"): pytest.approx(0.2, abs=0.067),
    }


def test_a_request_pays_its_projects_price_times_its_priority() -> None:
    key = make_key(priority=PRIORITY_LOW)
    agreed = PriceTerms(
        price=Price(version=9, input_pico=10, cached_pico=2, output_pico=30), batch_permille=500
    )
    current = snapshot(
        chain("mine", "large"),
        mine={"overrides": {key.project: agreed}},
    )
    current.models["large"] = msgspec.structs.replace(current.models["large"], batch_permille=1_500)
    first, second = make_plan(REQUEST, ask(), key, current).steps
    assert first.model.price == Price(version=9, input_pico=5, cached_pico=1, output_pico=15)
    assert second.model.price == scaled(current.models["large"].price, 1_500)
    # A rule's own priority goes before the key's.
    rule = chain("mine", priority=PRIORITY_NORMAL)
    (only,) = make_plan(REQUEST, ask(), key, msgspec.structs.replace(current, rules=(rule,))).steps
    assert only.model.price == agreed.price
    stranger = msgspec.structs.replace(make_key(), project="f" * 32)
    (theirs,) = make_plan(
        REQUEST, ask(model="mine"), stranger, msgspec.structs.replace(current, rules=())
    ).steps
    assert theirs.model.price == current.models["mine"].price


def test_a_rule_leads_no_key_beyond_its_models() -> None:
    known = snapshot(chain("small", "large"), small={})
    key = make_key(models=frozenset({"large"}))
    plan = make_plan(REQUEST, ask(), key, known)
    assert [step.model.name for step in plan.steps] == ["large"]
    assert [(one.step, one.model, one.reason) for one in plan.unfit] == [
        (1, "small", "model_not_allowed")
    ]
    assert [step.number for step in plan.steps] == [2]
    with pytest.raises(Refusal) as refused:
        make_plan(REQUEST, ask(), key, snapshot(chain("small"), small={}))
    assert (refused.value.status, refused.value.code) == (403, "model_not_allowed")


def test_a_model_out_of_service_opens_no_other_to_its_keys() -> None:
    known = snapshot(chain("small"), small={})
    served = {"small": known.models["small"]}
    without = msgspec.structs.replace(known, models=served)
    with pytest.raises(Refusal) as refused:
        make_plan(REQUEST, ask(), make_key(models=frozenset({"large"})), without)
    assert (refused.value.status, refused.value.code) == (403, "model_not_allowed")


def test_a_key_draws_among_the_targets_that_it_may_use() -> None:
    step = Step(targets=(Target(model="small", weight=1_000), Target(model="large")))
    known = snapshot(RouteRule(name="r", steps=(step,)), small={})
    key = make_key(models=frozenset({"large"}))
    for _ in range(20):
        (only,) = make_plan(new_request_id(), ask(), key, known).steps
        assert only.model.name == "large"


def test_a_rule_that_widens_leads_further_and_an_alias_is_what_it_stands_for() -> None:
    key = make_key(models=frozenset({"large", "smart"}))
    widened = snapshot(chain("small", widen=True), small={})
    assert make_plan(REQUEST, ask(), key, widened).steps[0].model.name == "small"
    alias = chain("small", match=Match(aliases=frozenset({"smart"})))
    plan = make_plan(REQUEST, ask(model="smart"), key, snapshot(alias, small={}))
    assert plan.steps[0].model.name == "small"


def test_a_clients_list_pays_the_prices_of_the_priority_by_which_it_waits() -> None:
    first = chain("small", priority=PRIORITY_NORMAL, match=Match(aliases=frozenset({"small"})))
    known = snapshot(first, small={"batch_permille": 250}, last={"batch_permille": 250})
    key = make_key(priority=PRIORITY_LOW)
    plan = make_plan(REQUEST, ask(model="small", fallbacks=("last",)), key, known)
    assert plan.priority == PRIORITY_NORMAL
    assert {step.model.price for step in plan.steps} == {known.models["last"].price}
    turned = make_plan(REQUEST, ask(model="last", fallbacks=("small",)), key, known)
    assert turned.priority == PRIORITY_LOW
    cheap = scaled(known.models["last"].price, 250)
    assert {step.model.price for step in turned.steps} == {cheap}


def test_a_clients_list_leads_on_from_what_a_model_cannot_do_and_a_rule_where_it_says_so() -> None:
    codes = ("context_length_exceeded", "content_filter", "unsupported_parameter",
             "model_task_mismatch", "invalid_api_key", None)  # fmt: skip
    listed = make_plan(REQUEST, ask(fallbacks=("small",)), make_key(), snapshot(small={}))
    assert [listed.passes(code) for code in codes] == [True] * 4 + [False] * 2
    ruled = make_plan(REQUEST, ask(), make_key(), snapshot(chain("large", on_too_long=True)))
    assert [ruled.passes(code) for code in codes] == [True] + [False] * 5


def test_limits_of_all_models_of_a_clients_list_count() -> None:
    rule = chain("large", "small", match=Match(aliases=frozenset({"large"})))
    known = snapshot(rule, small={}, other={})
    limited = make_key(limits=Limits(models={"small": Limits(requests_per_min=1)}))
    for fallbacks, models in (((), ("large",)), (("other", "large"), ("large", "small", "other"))):
        asked = ask(fallbacks=fallbacks, user="u")
        plan = make_plan(REQUEST, asked, limited, known)
        assert counted_key(limited, asked, plan, known).counted == (models, "u")
