"""What no engine takes: each refusal has its code and names the field."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inference.engines.admission import check_job
from inference.engines.base import EngineFacts, JobRefused
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
    capabilities=(),
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
