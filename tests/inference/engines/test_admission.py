"""What no engine takes: each refusal has its code and names the field."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inference.contract.capabilities import Capability
from inference.contract.frames import Sampling
from inference.engines.admission import NEEDS, check_job
from inference.engines.base import EngineFacts
from inference.errors import JobRefused
from tests.inference.compact.tiny import job_of

FACTS = EngineFacts(
    engine="any",
    device="none",
    dtype="none",
    model="tiny",
    context_window=100,
    vocab_size=50,
    block_size=10,
    kv_blocks=9,
    credits=1,
    capabilities=tuple(Capability),
)


@pytest.mark.parametrize(
    ("fields", "code", "named"),
    [
        ({"model": "other"}, "unknown_model", "model"),
        ({"tokens": []}, "bad_job", "tokens"),
        ({"tokens": [50]}, "bad_job", "tokens"),
        ({"tokens": [-1]}, "bad_job", "tokens"),
        ({"tokens": [1] * 100}, "too_long", "tokens"),
        ({"tokens": [1] * 90}, "too_long", "tokens"),
        ({"deadline_ms": 0}, "bad_job", "deadline_ms"),
    ],
    ids=str,
)
def test_fields(fields: dict[str, Any], code: str, named: str) -> None:
    with pytest.raises(JobRefused, match=named) as refused:
        check_job(replace(job_of([1]), **fields), FACTS)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "sampling",
    [
        {"max_tokens": 0},
        {"n": 0},
        {"n": 9},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": 2.0},
        {"logprobs": 21},
        {"frequency_penalty": float("inf")},
        {"presence_penalty": float("nan")},
        {"logit_bias": {50: 1.0}},
        {"logit_bias": {1: float("nan")}},
    ],
    ids=str,
)
def test_sampling(sampling: dict[str, Any]) -> None:
    with pytest.raises(JobRefused, match=rf"sampling\.{next(iter(sampling))}") as refused:
        check_job(job_of([1], **sampling), FACTS)
    assert refused.value.code == "bad_job"


def test_a_good_job_passes() -> None:
    check_job(job_of([1, 2], logit_bias={49: -100.0}, top_p=0.0, logprobs=20), FACTS)


@pytest.mark.parametrize(
    ("sampling", "capability"),
    [
        ({"n": 2}, Capability.N),
        ({"temperature": 0.5}, Capability.TEMPERATURE),
        ({"top_p": 0.5}, Capability.TOP_P),
        ({"top_k": 5}, Capability.TOP_K),
        ({"min_p": 0.5}, Capability.MIN_P),
        ({"frequency_penalty": 1.0}, Capability.FREQUENCY_PENALTY),
        ({"presence_penalty": 1.0}, Capability.PRESENCE_PENALTY),
        ({"seed": 0}, Capability.SEED),
        ({"logprobs": 0}, Capability.LOGPROBS),
        ({"logit_bias": {1: 1.0}}, Capability.LOGIT_BIAS),
    ],
    ids=str,
)
def test_what_an_engine_does_not_declare(sampling: dict[str, Any], capability: Capability) -> None:
    others = tuple(each for each in Capability if each is not capability)
    check_job(job_of([1], **sampling), FACTS)
    with pytest.raises(JobRefused, match=rf"sampling\.{next(iter(sampling))}") as refused:
        check_job(job_of([1], **sampling), replace(FACTS, capabilities=others))
    assert refused.value.code == "bad_job"


def test_stop_tokens_that_an_engine_does_not_declare() -> None:
    job = replace(job_of([1]), stop_tokens=[2])
    check_job(job, FACTS)
    with pytest.raises(JobRefused, match="stop_tokens"):
        check_job(job, replace(FACTS, capabilities=()))


def test_the_default_job_needs_nothing() -> None:
    check_job(
        replace(job_of([1]), sampling=Sampling(max_tokens=1)), replace(FACTS, capabilities=())
    )
    assert {"max_tokens", *NEEDS} == set(Sampling.__struct_fields__)
