"""Token ids of a batch of outputs to text, per choice; some engines send the text themselves."""

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX
from inference.contract.frames import Output
from inference.text.decode import TokenDecoder

DETOKENIZE = INDEX["s6_finish.detokenize"]


def detokenize(call: Call, decoder: TokenDecoder | None, output: Output, *, only: bool) -> str:
    """Text of one output; its last one also flushes an unfinished character.

    `only` says that it has all tokens of its choice.
    """
    if decoder is None:
        return output.text or ""
    began = call.spans.clock()
    if only:
        text = decoder.whole(output.tokens)
    else:
        text = decoder.feed(output.tokens)
        if output.finish is not None:
            text += decoder.close()
    call.spans.add(DETOKENIZE, began)
    return text
