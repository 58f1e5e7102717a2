"""Tiny random checkpoints, `transformers` as their oracle, and a loop to run jobs through."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

from inference.compact.config.shape import read_shape
from inference.compact.load.placement import choose_placement
from inference.compact.options import CompactOptions
from inference.compact.run.loop import StepLoop
from inference.compact.run.runner import Runner
from inference.compact.schedule.blocks import BlockPool
from inference.compact.schedule.outputs import StopRules
from inference.compact.schedule.scheduler import Scheduler
from inference.contract.frames import Job, Output, Sampling, Step

VOCABULARY = 320
CONTEXT = 256
EOS = 3
STEPS_MAX = 5000
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}
MODELS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "mixtral": (MixtralConfig, MixtralForCausalLM),
    "qwen3-moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM),
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM),
}
SALT = b"salt-of-alice"


def save_model(folder: Path, kind: str = "llama", **overrides: Any) -> PreTrainedModel:
    """Write a random checkpoint and return the oracle that reads it back in float32."""
    shard_size = overrides.pop("max_shard_size", "1GB")
    torch.manual_seed(len(kind))
    make_config, make_model = MODELS[kind]
    model: PreTrainedModel = make_model(make_config(**{**SIZES, **overrides})).float().eval()
    for name, parameter in model.named_parameters():
        if name.endswith((".bias", "norm.weight")):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.save_pretrained(folder, max_shard_size=shard_size)
    return model


def continuation(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens of the oracle."""
    with torch.inference_mode():
        ids = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=-1,
        )
    return [int(token) for token in ids[0, len(prompt) :]]


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, VOCABULARY, (length,), generator=generator).tolist()


def job_of(tokens: list[int], number: int = 1, salt: bytes = SALT, **sampling: Any) -> Job:
    """A greedy job that ends by length, unless told otherwise."""
    settings = {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, **sampling}
    return Job(
        request=number.to_bytes(16, "big"),
        model="tiny",
        tokens=tokens,
        salt=salt,
        hashes=b"",
        sampling=Sampling(**settings),
        stop_tokens=[],
        deadline_ms=600_000,
    )


class Harness:
    """A step loop over a checkpoint, on a clock that ticks once per reading."""

    def __init__(self, folder: Path, **options: Any) -> None:
        make: type[StepLoop] = options.pop("make", StepLoop)
        settings = CompactOptions(**{"dtype": "float32", "device": "cpu", **options})
        shape = read_shape(folder)
        placement = choose_placement(shape, settings)
        self.runner = Runner.load(folder, shape, placement)
        self.pool = BlockPool(self.runner.placement.kv_blocks, placement.block_size)
        self.scheduler = Scheduler(self.pool, settings)
        ticks = itertools.count(1)
        self.stop_rules = StopRules(shape.eos, shape.context_window)
        self.loop = make(self.runner, self.scheduler, self.stop_rules, lambda: next(ticks))
        self.steps: list[Step] = []

    def accept(self, *jobs: Job) -> None:
        """Queue jobs."""
        for job in jobs:
            self.loop.accept(job, self.loop.clock_us())

    def step(self) -> Step:
        """One step, remembered."""
        self.steps.append(self.loop.step()[0])
        return self.steps[-1]

    def run(self, *jobs: Job) -> dict[tuple[int, int], list[Output]]:
        """Finish these jobs and all that run; outputs by (request number, choice)."""
        self.accept(*jobs)
        seen = len(self.steps)
        for _ in range(STEPS_MAX):
            if not self.loop.has_work:
                break
            self.step()
        assert not self.loop.has_work
        return collect(self.steps[seen:])


def collect(steps: list[Step]) -> dict[tuple[int, int], list[Output]]:
    """Outputs by (request number, choice), in order."""
    found: dict[tuple[int, int], list[Output]] = defaultdict(list)
    for step in steps:
        for output in step.outputs:
            found[int.from_bytes(output.request, "big"), output.choice].append(output)
    return found


def tokens_of(outputs: list[Output]) -> list[int]:
    """The text of one choice, with exactly one end."""
    assert [output.finish is not None for output in outputs].count(True) == 1
    assert outputs[-1].finish is not None
    return [token for output in outputs for token in output.tokens]
