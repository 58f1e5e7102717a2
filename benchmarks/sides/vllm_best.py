"""vLLM at its best setting on few cores: in this process, compiled, a thread on every core.

`python -m benchmarks.sides.vllm_best DIR WIDTH`, in vLLM's own environment and
`started.VLLM_ENVIRONMENT`. Its defaults (several processes, eager) are 1.7 to 2 times slower here.
"""

from __future__ import annotations

import sys
from typing import Any

from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind

from benchmarks.sides.protocol import Timed, Watch, answer_until_closed

KV_BYTES = 1 << 30
BLOCK_TOKENS = 32
CONTEXT_TOKENS = 4096


class _Best:
    def __init__(self, path: str, width: int) -> None:
        self.engine: Any = LLM(
            model=path,
            dtype="bfloat16",
            block_size=BLOCK_TOKENS,
            kv_cache_memory_bytes=KV_BYTES,
            max_model_len=CONTEXT_TOKENS,
            max_num_seqs=width,
            enable_prefix_caching=True,
            disable_log_stats=True,
        ).llm_engine

    def run(self, prompts: list[list[int]], outputs: list[int], width: int) -> Timed:
        """A closed loop of `width` requests."""
        watch = Watch()
        waiting = list(range(len(prompts)))[::-1]
        running = 0
        while waiting or running:
            while waiting and running < width:
                request = waiting.pop()
                watch.sent(request)
                self._add(request, prompts[request], outputs[request])
                running += 1
            for output in self.engine.step():
                count = len(output.outputs[0].token_ids)
                if count:
                    watch.came(int(output.request_id), count)
                running -= output.finished
        return watch.done()

    def _add(self, request: int, prompt: list[int], count: int) -> None:
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=count,
            min_tokens=count,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        self.engine.add_request(str(request), {"prompt_token_ids": prompt}, parameters)


if __name__ == "__main__":
    answer_until_closed(lambda: {"run": _Best(sys.argv[1], int(sys.argv[2])).run})
