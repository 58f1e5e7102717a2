"""A model's tokenizer and chat templates together, as parsed from its files.

What clients write is kept text: a special token's name in a message must not become the token.
Templates put messages and their own special tokens into one text, in which a tokenizer cannot tell
whose they are. So a name inside a message is broken by a mark before it is rendered, and the text
is encoded in parts between the marks: no part has a whole name, and joined they read the same, but
for the blank that tokenizers of SentencePiece's kind put before each part.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from tokenizers import Tokenizer

from inference.contract.assets import TOKENIZER_FILE
from inference.text.chat import ChatMessage
from inference.text.decode import (
    NOTHING,
    ChannelMarks,
    ThinkMarks,
    TokenDecoder,
    channel_marks,
    think_marks,
)
from inference.text.families import HARMONY
from inference.text.frames import NO_VARIABLES
from inference.text.pieces import TEXT_CHARS_MAX, Cutter, Draft, PieceCache, cut_names
from inference.text.templates import ChatTemplates, TextFilesBroken, chat_templates

# No client can know it, so none can write it.
MARK = f"\ufdd0{secrets.token_hex(8)}\ufdd1"
_BYTE_LEVEL_SHIFT = 0x100


class SpecialNames:
    """The names of a tokenizer's special tokens. One of a single character cannot be broken."""

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted({name for name in names if len(name) > 1}, key=len, reverse=True)
        either = "|".join(map(re.escape, longest_first))
        self._found = re.compile(either) if longest_first else None
        # Names may overlap, so each place where one begins gets its own mark.
        self._begins = re.compile(f"(?={either})(.)", re.DOTALL)

    def broken(self, value: Any) -> Any:
        """A copy of texts, lists and maps with every name broken; the same where there is none."""
        if isinstance(value, str):
            if self._found is None or not self._found.search(value):
                return value
            return self._begins.sub(lambda begin: begin[0] + MARK, value)
        if isinstance(value, dict):
            return {self.broken(key): self.broken(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.broken(each) for each in value]
        return value


class ModelText:
    """`pieces` may be shared with other models; `marks` is None where thoughts have none.

    `form` is how calls of tools are written, and `names` are ids of tokens that stand in them.
    """

    def __init__(
        self, tokenizer: Tokenizer, templates: ChatTemplates, pieces: PieceCache | None = None
    ) -> None:
        self.templates = templates
        self._tokenizer = tokenizer
        self._pieces = PieceCache() if pieces is None else pieces
        names = cut_names(tokenizer)
        self._cutter = Cutter(names, partial(self._ids, add_special=False)) if names else None
        added = tokenizer.get_added_tokens_decoder()
        special = {id: token.content for id, token in added.items() if token.special}
        self._special = SpecialNames(special.values())
        self.form = templates.form if templates.shows_tools else None
        around = self.form.text if self.form is not None else ""
        self.names = {each.content: id for id, each in added.items() if each.content in around}
        self._kept = {id: name for id, name in special.items() if name in around}
        self._bytes = {char: byte for byte, char in enumerate(_byte_alphabet())}
        self.marks: ThinkMarks | ChannelMarks | None = think_marks(tokenizer)
        if templates.form is HARMONY:
            self.marks = channel_marks(tokenizer)
        self.vocab_size = tokenizer.get_vocab_size()
        # No token stands for more text than this, so a text's length bounds its tokens from below.
        self.piece_chars_max = max(map(len, tokenizer.get_vocab()), default=1)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], pieces: PieceCache | None = None) -> ModelText:
        """Parse the files; raises `TextFilesBroken`, `chat.TemplateFailed`."""
        try:
            tokenizer = Tokenizer.from_buffer(files[TOKENIZER_FILE])
        except Exception as error:  # The library raises bare Exception on every parse failure.
            raise TextFilesBroken(f"{TOKENIZER_FILE}: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(tokenizer, chat_templates(files), pieces)

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template."""
        return self.templates.chats

    @property
    def shows_tools(self) -> bool:
        """Whether the template shows tools to the model, and how to call them."""
        return self.templates.shows_tools

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """Messages to prompt text, for `encode` alone: names of special tokens in them are marked.

        Raises `chat.TemplateFailed`, LookupError without a template.
        """
        return self.templates.render(
            self._special.broken(list(messages)),
            self._special.broken(list(tools)),
            variables and self._special.broken(variables),
        )

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids; a rendered template carries its special tokens already."""
        draft = self.draft(text, add_special=add_special)
        draft.encode()
        return draft.ids()

    def draft(self, text: str, *, add_special: bool, owner: bytes | None = None) -> Draft:
        """A text to encode, of which an `owner` finds what it had encoded before."""
        parts = text.split(MARK)
        if self._cutter and owner is not None and not add_special and len(text) <= TEXT_CHARS_MAX:
            return self._cutter.draft(parts, self._pieces, owner)
        missing = [(place, (b"", "", part)) for place, part in enumerate(parts)]
        return Draft([()] * len(parts), missing, partial(self._ids, add_special=add_special))

    def _ids(self, text: str, *, add_special: bool) -> tuple[int, ...]:
        # A batch lets other threads run meanwhile, and does without the offsets of characters.
        found = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special)
        return tuple(found[0].ids)

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, with its special tokens."""
        return [each.ids for each in self._tokenizer.encode_batch_fast(texts)]

    def decoder(self, *, calls: bool = False) -> TokenDecoder:
        """With `calls` the special tokens in them are text."""
        return TokenDecoder(self._tokenizer, self._kept if calls else NOTHING)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of token ids, as those of a prompt, with the names of special ones."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))

    spelled = decode

    def unseen(self, token: int, text: str) -> int:
        """Characters of a text's first token, where a special one was put before the text."""
        name, _ = self.token_text(token)
        hidden = not self._tokenizer.decode([token], skip_special_tokens=True)
        return len(name) if hidden and not text.startswith(name) else 0

    def token_text(self, token: int) -> tuple[str, bytes]:
        """Text and bytes of one token, as logprobs show it."""
        piece = self._tokenizer.id_to_token(token)
        if piece is None:
            return "", b""
        if all(char in self._bytes for char in piece):
            data = bytes(self._bytes[char] for char in piece)
        else:
            data = piece.encode()
        return data.decode("utf-8", "replace"), data


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's scheme)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = map(chr, count(_BYTE_LEVEL_SHIFT))
    return [chr(byte) if byte in printable else next(others) for byte in range(0x100)]
