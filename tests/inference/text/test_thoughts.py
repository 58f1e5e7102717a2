"""Which tokens are think marks, and where a prompt stands among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.text.decode import ThinkMarks, think_marks
from tests.inference.text.tiny import tiny_tokenizer
from tests.support.thinking import CLOSING, OPENING, make_thinking, text_of


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("", None), ("Hi", None), ("<think>", True), ("Hi<think>\n", True), ("<think>x", None),
        ("<think>\n\n</think>\n\n", False), ("</think>", False), ("</think>\nHi", None),
    ],
)  # fmt: skip
def test_where_a_prompt_ends(tmp_path: Path, prompt: str, opened: bool | None) -> None:
    text = text_of(make_thinking(tmp_path))
    marks = text.marks
    assert isinstance(marks, ThinkMarks)
    assert (marks.opening, marks.closing) == (OPENING, CLOSING)
    assert marks.opened(text.encode(prompt, add_special=False)) is opened


def test_most_tokenizers_have_none() -> None:
    tokenizer = tiny_tokenizer()
    assert think_marks(tokenizer) is None
    tokenizer.add_tokens(["<think>"])
    assert think_marks(tokenizer) is None, "one mark alone"
    tokenizer.add_tokens(["</think>", "\n\n", "<0x0A>"])
    marks = think_marks(tokenizer)
    assert marks is not None
    names = {tokenizer.id_to_token(token) for token in marks.blanks}
    assert names == {"\u010a", "\n\n", "<0x0A>"}
