"""An answer whose node was lost goes on at another: from the prompt and the tokens delivered.

Only where nothing else of the lost node's state matters: one choice, no grammar and no penalties,
token ids that are known here. With sampling the text after the seam is another draw, a seed or not.
"""

from collections.abc import Iterable

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.nodes.stream import JobStream
from controlplane.gateway.results import Prompt
from inference.contract.blocks import chain_hashes
from inference.contract.capabilities import Capability
from inference.contract.frames import Output


class Continuation:
    """The tokens of one answer as they are delivered, over all its nodes.

    `carried` came before the node that has it now. `prompt_tokens` and `cached_tokens` are those of
    the request itself, known once another node has taken over.
    """

    __slots__ = ("_tokens", "cached_tokens", "carried", "prompt_tokens")

    def __init__(self) -> None:
        self.carried = 0
        self.prompt_tokens: int | None = None
        self.cached_tokens = 0
        self._tokens: list[int] = []

    def take(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._tokens += output.tokens

    def rest(self, prompt: Prompt, lost: JobStream) -> Prompt | None:
        """What another node has to be asked, `prompt` being what the lost one was; None where all
        tokens are there and only their end is missing.
        """
        fresh = self._tokens[self.carried :]
        output_tokens = prompt.output_tokens - len(fresh)
        if output_tokens < 1:
            return None
        if self.prompt_tokens is None:
            self.prompt_tokens, self.cached_tokens = len(prompt.tokens), lost.usage.cached_tokens
        tokens = [*prompt.tokens, *fresh]
        chains = {size: chain_hashes(tokens, size, prompt.salt) for size in prompt.chains}
        return msgspec.structs.replace(
            prompt, tokens=tokens, chains=chains, output_tokens=output_tokens
        )

    def dispatched(self) -> None:
        self.carried = len(self._tokens)


def can_continue(ask: Ask) -> bool:
    """Whether another node knows all that the lost one knew."""
    sampling = ask.sampling
    return (
        ask.stream
        and ask.choices == 1
        and not ask.repeats_prompt
        and Capability.VISION not in ask.needs
        and not sampling.min_tokens
        and sampling.grammar is None
        and sampling.frequency_penalty == 0.0
        and sampling.presence_penalty == 0.0
    )
