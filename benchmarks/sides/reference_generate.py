"""transformers' generate, static batches: `python -m benchmarks.sides.reference_generate DIR`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

from benchmarks.sides.protocol import Timed, Watch, answer_until_closed

PAD = 0


class _Stamps(LogitsProcessor):
    """Called once a step, when the logits of the next tokens are there."""

    def __init__(self, watch: Watch, batch: list[int], outputs: list[int]) -> None:
        self.watch = watch
        self.left = dict(zip(batch, outputs, strict=True))

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for request, left in self.left.items():
            if left:
                self.watch.came(request, 1)
                self.left[request] = left - 1
        return scores


class _Generate:
    def __init__(self, path: str) -> None:
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)

    def run(self, prompts: list[list[int]], outputs: list[int], width: int) -> Timed:
        """Batch after batch, each padded on the left and run to its longest answer."""
        watch = Watch()
        for start in range(0, len(prompts), width):
            batch = list(range(start, min(start + width, len(prompts))))
            for request in batch:
                watch.sent(request)
            longest = max(len(prompts[request]) for request in batch)
            rows = [[PAD] * (longest - len(prompts[r])) + prompts[r] for r in batch]
            seen = [[0] * (longest - len(prompts[r])) + [1] * len(prompts[r]) for r in batch]
            count = max(outputs[request] for request in batch)
            stamps = _Stamps(watch, batch, [outputs[request] for request in batch])
            with torch.inference_mode():
                self.model.generate(
                    torch.tensor(rows),
                    attention_mask=torch.tensor(seen),
                    do_sample=False,
                    max_new_tokens=count,
                    min_new_tokens=count,
                    pad_token_id=PAD,
                    logits_processor=LogitsProcessorList([stamps]),
                )
        return watch.done()


if __name__ == "__main__":
    answer_until_closed(lambda: {"run": _Generate(sys.argv[1]).run})
