"""llama.cpp by its C interface: `python -m benchmarks.sides.llama FILE THREADS`.

In its own environment, built for this machine's CPU. With `quantize FROM TO TYPE` it writes a file
instead, as `llama-quantize` does.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import llama_cpp as ll
import numpy as np

from benchmarks.sides.protocol import Timed, Watch, answer_until_closed

CONTEXT_TOKENS = 2048


class _Llama:
    def __init__(self, path: str, threads: int) -> None:
        ll.llama_backend_init()
        self.model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        settings = ll.llama_context_default_params()
        settings.n_ctx = settings.n_batch = CONTEXT_TOKENS
        settings.n_threads = settings.n_threads_batch = threads
        self.context = ll.llama_init_from_model(self.model, settings)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot read {path}")
        self.memory = ll.llama_get_memory(self.context)
        self.vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))

    def run(self, prompts: list[list[int]], outputs: list[int], width: int) -> Timed:
        """One stream after another, greedy."""
        assert width == 1
        watch = Watch()
        for request, (prompt, count) in enumerate(zip(prompts, outputs, strict=True)):
            ll.llama_memory_clear(self.memory, True)
            watch.sent(request)
            tokens = prompt
            for place in range(count):
                logits = self._decode(tokens, len(prompt) + place - len(tokens) if place else 0)
                tokens = [int(logits[-1].argmax())]
                watch.came(request, 1)
        return watch.done()

    def scores(self, prompts: list[list[int]]) -> float:
        """Sum of the log probabilities of all tokens but each prompt's first."""
        total = 0.0
        for prompt in prompts:
            ll.llama_memory_clear(self.memory, True)
            logits = self._decode(prompt, 0, every=True)[:-1].astype(np.float64)
            chosen = logits[np.arange(len(prompt) - 1), prompt[1:]]
            total += float((chosen - np.log(np.exp(logits).sum(axis=1))).sum())
        return total

    def _decode(self, tokens: list[int], start: int, *, every: bool = False) -> Any:
        """Logits `[rows, vocabulary]` of every token, or of the last."""
        batch = ll.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, start + place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = every or place + 1 == len(tokens)
        failed = ll.llama_decode(self.context, batch)
        ll.llama_batch_free(batch)
        if failed:
            raise RuntimeError(f"llama.cpp could not decode: {failed}")
        rows = len(tokens) if every else 1
        return np.ctypeslib.as_array(ll.llama_get_logits(self.context), (rows, self.vocabulary))


def quantize(source: str, target: str, kind: str) -> None:
    """Of one of llama.cpp's mixes, such as Q4_0."""
    settings = ll.llama_model_quantize_default_params()
    settings.ftype = getattr(ll, f"LLAMA_FTYPE_MOSTLY_{kind}")
    if ll.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(settings)):
        raise RuntimeError(f"llama.cpp could not quantize {source}")


def load() -> dict[str, Any]:
    """The file named on the command line."""
    model = _Llama(sys.argv[1], int(sys.argv[2]))
    return {"run": model.run, "scores": model.scores}


if __name__ == "__main__":
    if sys.argv[1] == "quantize":
        quantize(*sys.argv[2:])
    else:
        answer_until_closed(load)
