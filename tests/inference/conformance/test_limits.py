"""What an engine does not take: each refusal has its code and names the field, and it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inference.contract.capabilities import Capability
from inference.contract.grammar import Grammar
from inference.errors import JobRefused
from tests.inference.conformance.served import Served, tokens_of
from tests.inference.conformance.subjects import Subject, declaring, lacking
from tests.support.shipped import long_prompt

# A use of each capability that a job can ask for.
USES: list[tuple[Capability, dict[str, Any]]] = [
    (Capability.N, {"n": 2}),
    (Capability.STOP_TOKENS, {"stop_tokens": [7]}),
    (Capability.LOGPROBS, {"logprobs": 1}),
    (Capability.GRAMMAR, {"grammar": Grammar(kind="json_object")}),
    (Capability.TEMPERATURE, {"temperature": 0.7}),
    (Capability.TOP_P, {"top_p": 0.5}),
    (Capability.TOP_K, {"top_k": 5}),
    (Capability.MIN_P, {"min_p": 0.1}),
    (Capability.FREQUENCY_PENALTY, {"frequency_penalty": 0.5}),
    (Capability.PRESENCE_PENALTY, {"presence_penalty": 0.5}),
    (Capability.LOGIT_BIAS, {"logit_bias": {7: 1.0}}),
    (Capability.SEED, {"seed": 1}),
]
UNDECLARED = [
    pytest.param(subject, wanted, id=f"{subject}-{capability}")
    for capability, wanted in USES
    for subject in lacking(capability)
]


@pytest.mark.parametrize(("subject", "wanted"), UNDECLARED)
async def test_what_is_not_declared_is_refused_by_field(
    served: Served, subject: Subject, wanted: dict[str, Any]
) -> None:
    with pytest.raises(JobRefused, match=next(iter(wanted))) as refused:
        served.submit(served.job(20, **wanted))
    assert refused.value.code in ("bad_job", "bad_request")


@declaring(Capability.TOKENS)
async def test_jobs_that_cannot_be_served(served: Served) -> None:
    window, vocabulary = served.engine.facts.context_window, served.engine.facts.vocab_size
    job = served.job(20)
    for bad, code, named in (
        (replace(job, tokens=[]), "bad_job", "tokens"),
        (replace(job, tokens=[vocabulary]), "bad_job", "tokens"),
        (replace(job, tokens=[1] * window), "too_long", "tokens"),
        (replace(job, inputs=[[1]]), "bad_job", "inputs"),
        (served.job(20, max_tokens=0), "bad_job", "max_tokens"),
        (served.job(20, temperature=-1.0), "bad_job", "temperature"),
    ):
        with pytest.raises(JobRefused, match=named) as refused:
            served.submit(bad)
        assert refused.value.code == code
    await served.run(job)


@declaring(Capability.PREFIX_CACHE, Capability.TOKENS)
async def test_more_tokens_than_the_cache_holds(served: Served) -> None:
    """Four answers that do not fit together: all come to their end, as they would alone."""
    facts = served.engine.facts
    prompts = [[token + number for token in long_prompt(100)] for number in range(4)]
    assert facts.kv_blocks * facts.block_size < 4 * 200
    jobs = [served.job(prompt, max_tokens=100) for prompt in prompts]
    served.submit(*jobs)
    for job in jobs:
        outputs = await served.finished(job)
        assert (len(tokens_of(outputs)), outputs[-1].finish) == (100, "length")
    await served.idle()
