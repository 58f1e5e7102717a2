"""The short way to a chunk writes what the long way does, byte for byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.answer import Piece
from controlplane.gateway.ask import Ask
from controlplane.gateway.openai.render import ChatWriter, CompletionWriter
from inference.contract.frames import Sampling
from tests.support.fleet import MODEL

ASK = Ask(
    operation="chat",
    model=MODEL,
    stream=True,
    include_usage=False,
    sampling=Sampling(max_tokens=0, n=2),
    output_tokens=None,
    stop=(),
    bytes=0,
)


@pytest.mark.parametrize("kind", [ChatWriter, CompletionWriter])
@given(text=st.text(min_size=1), choice=st.integers(0, 1), usage=st.booleans())
def test_a_next_chunk_is_that_of_its_piece(
    kind: type[ChatWriter], text: str, choice: int, usage: bool
) -> None:
    ask = msgspec.structs.replace(ASK, include_usage=usage)
    writer = kind(b"r" * 16, ask, fingerprint="fp", token_text=lambda token: ("", b""))
    piece = Piece(choice=choice, text=text, logprobs=[])
    opening = writer.chunk([piece])
    for _ in range(2):
        following = writer.next_chunk(choice, text)
        assert following == writer.chunk([piece])
        assert opening.endswith(following)
