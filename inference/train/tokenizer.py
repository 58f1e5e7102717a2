"""The tokenizer of the shipped model: byte-level BPE trained on the generator's own text.

Digits stand alone, which is what lets a small model learn sums. The chat template is kept here
and written into `tokenizer_config.json`, where every public engine looks for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from inference.train.data.compose import training_stream
from inference.train.data.dialogue import Dialogue

BOS, USER, ASSISTANT = "<|bos|>", "<|user|>", "<|assistant|>"
SYSTEM, END, PAD = "<|system|>", "<|end|>", "<|pad|>"
SPECIAL_TOKENS = (PAD, BOS, SYSTEM, USER, ASSISTANT, END)
ROLE_TOKENS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}

LONG_SHARE = 0.02

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}{{ '<|system|>You may call these functions:\\n<tools>\\n' }}"
    "{% for tool in tools %}{{ (tool | tojson) + '\\n' }}{% endfor %}"
    "{{ '</tools>\\nA call is written so:\\n<tool_call>\\n' }}"
    '{{ \'{"name": NAME, "arguments": OBJECT}\\n</tool_call><|end|>\' }}{% endif %}'
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}{{ '<|user|>' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "{% elif message['role'] in ['system', 'developer'] %}{{ '<|system|>' }}"
    "{% elif message['role'] == 'tool' %}{{ '<|user|><tool_response>\\n' }}"
    "{% else %}{{ raise_exception('Unknown role: ' + message['role']) }}"
    "{% endif %}"
    "{{ message['content'] | trim }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{% if message['content'] or not loop.first %}{{ '\\n' }}{% endif %}"
    "{{ '<tool_call>\\n{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ (call['function']['arguments'] | tojson) + '}\\n</tool_call>' }}{% endfor %}"
    "{% if message['role'] == 'tool' %}{{ '\\n</tool_response>' }}{% endif %}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def texts(seed: int, count: int) -> Iterator[str]:
    for dialogue in islice(training_stream(seed, long_share=LONG_SHARE), count):
        for turn in dialogue.turns:
            yield turn.text


def train_tokenizer(seed: int, *, vocab_size: int, dialogues: int) -> Tokenizer:
    """A byte-level BPE; it can encode any text, since every byte is in its alphabet."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(seed, dialogues), trainer)
    return tokenizer


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a special token; a tokenizer without it is none of ours."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"tokenizer: {token} is missing")
    return found


@dataclass(frozen=True)
class Encoded:
    """A dialogue as token ids, and which of them the model is trained to say."""

    ids: list[int]
    said: list[bool]


class Encoder:
    """Turns dialogues into ids exactly as the chat template and the tokenizer would."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special = {token: special_id(tokenizer, token) for token in SPECIAL_TOKENS}
        self.pad = self.special[PAD]
        self.end = self.special[END]

    def encode(self, dialogue: Dialogue) -> Encoded:
        """Ids of the whole dialogue; only what the assistant says is marked as said."""
        if dialogue.turns[0].role == "text":
            body = self.tokenizer.encode(dialogue.turns[0].text, add_special_tokens=False).ids
            return Encoded([*body, self.end], [True] * (len(body) + 1))
        ids, said = [self.special[BOS]], [False]
        for turn in dialogue.turns:
            body = self.tokenizer.encode(turn.text, add_special_tokens=False).ids
            spoken = turn.role == "assistant"
            ids += [self.special[ROLE_TOKENS[turn.role]], *body, self.end]
            said += [False] + [spoken] * (len(body) + 1)
        return Encoded(ids, said)

    def prompt(self, dialogue: Dialogue) -> list[int]:
        """Ids up to the point where the last answer begins."""
        asked = Dialogue(dialogue.family, dialogue.turns[:-1], dialogue.must)
        return [*self.encode(asked).ids, self.special[ASSISTANT]]
