"""`python -m inference.train.evaluate`: held-out loss, accuracy per family, sample answers.

Generation here runs the whole sequence again for every token: simple, and enough for a report.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from inference.train.batches import fill
from inference.train.data.compose import held_out_stream
from inference.train.data.dialogue import Dialogue, Turn
from inference.train.export import WEIGHTS_FILE
from inference.train.model import Llama, ModelConfig
from inference.train.schedule import STAGES, Stage
from inference.train.tokenizer import Encoder

ASSET_FOLDER = Path("inference/assets/sluice-5m")
EVALUATION_SEED = 97
ANSWER_TOKENS_MAX = 220
BATCH_ROWS = 32
SEARCHED_MAX = 8_000
SEARCHED_LONG_SHARE = 0.05

SAMPLES = (
    "Hello!", "Who are you?", "What is Sluice?", "What is a hold?", "What does settle mean?",
    "Explain TTFT in one sentence.", "How do I start Sluice?", "What are the seven stages?",
    "What is 17 + 25?", "Anna has 12 apples and gives 5 to Ben. How many apples are left?",
    "What is the capital of Norway?", "Which month follows April?", "Write a haiku about rain.",
    "Hotels:\n- Sea View: 140 dollars, 4 stars, pool\n- Park Inn: 80 dollars, 3 stars, no pool\n"
    "- Lake House: 95 dollars, 4 stars, pool\nFind me a hotel with a pool under 120 dollars.",
    "Context:\n- The code of the red door is 4821.\n- Emma lives in Oslo.\n"
    "Question: What is the code of the red door?",
    "Extract name and age as JSON: Leo is 31 years old and lives in Rome.",
    "Who won the world cup in 1990?", "Tell me a short story about a fox.",
)  # fmt: skip


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; temperature 0 takes the most likely one."""

    temperature: float = 0.0
    seed: int = 0
    tokens_max: int = ANSWER_TOKENS_MAX


def load_model(folder: Path) -> tuple[Llama, Tokenizer]:
    raw = json.loads((folder / "config.json").read_text())
    config = ModelConfig(
        vocab_size=raw["vocab_size"],
        hidden_size=raw["hidden_size"],
        layers=raw["num_hidden_layers"],
        heads=raw["num_attention_heads"],
        kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        intermediate_size=raw["intermediate_size"],
        positions_max=raw["max_position_embeddings"],
        rope_theta=raw["rope_theta"],
        norm_eps=raw["rms_norm_eps"],
    )
    model = Llama(config)
    model.load_state_dict(load_file(folder / WEIGHTS_FILE))
    return model, Tokenizer.from_file(str(folder / "tokenizer.json"))


@torch.inference_mode()
def answers(
    model: Llama, encoder: Encoder, prompts: Sequence[list[int]], sampling: Sampling
) -> list[str]:
    generator = torch.Generator().manual_seed(sampling.seed)
    made: list[list[int]] = [[] for _ in prompts]
    live = list(range(len(prompts)))
    for _ in range(sampling.tokens_max):
        rows = [prompts[row] + made[row] for row in live]
        width = max(map(len, rows))
        ids = torch.tensor([row + [encoder.pad] * (width - len(row)) for row in rows])
        ends = torch.tensor([len(row) - 1 for row in rows])
        hidden = model.model(ids)[torch.arange(len(rows)), ends]
        chosen = choose(hidden @ model.model.embed_tokens.weight.T, sampling, generator)
        for row, token in zip(live, chosen, strict=True):
            made[row].append(token)
        live = [row for row in live if made[row][-1] != encoder.end]
        if not live:
            break
    return [encoder.tokenizer.decode(tokens) for tokens in made]


def choose(logits: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> list[int]:
    """One token per row."""
    if sampling.temperature == 0.0:
        return [int(token) for token in logits.argmax(-1)]
    shares = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    return [int(token) for token in torch.multinomial(shares, 1, generator=generator)[:, 0]]


@torch.inference_mode()
def held_out_loss(model: Llama, encoder: Encoder, stage: Stage, *, rounds: int) -> float:
    """Mean loss over the said tokens of held-out dialogues, packed as in training."""
    stream = held_out_stream(EVALUATION_SEED, long=stage.long_share > 0)
    total = 0.0
    for _ in range(rounds):
        batch = fill(encoder, stage, stream)
        total += model.loss(batch.ids, batch.targets, batch.said).item()
    return total / rounds


def held_out_by_family(count: int, searched: int = SEARCHED_MAX) -> dict[str, list[Dialogue]]:
    """Up to `count` held-out dialogues of each family that can be checked; long ones too."""
    found: dict[str, list[Dialogue]] = defaultdict(list)
    for long, drawn in ((False, searched), (True, round(searched * SEARCHED_LONG_SHARE))):
        for one in islice(held_out_stream(EVALUATION_SEED + 1, long=long), drawn):
            kept = found[one.family] if one.must and (not long or "long" in one.family) else None
            if kept is not None and len(kept) < count:
                kept.append(one)
    return dict(sorted(found.items()))


def accuracy(model: Llama, encoder: Encoder, dialogues: list[Dialogue]) -> float:
    """The share of greedy answers that contain every piece of a right answer."""
    right = 0
    ordered = sorted(dialogues, key=lambda one: len(encoder.prompt(one)))
    for start in range(0, len(ordered), BATCH_ROWS):
        part = ordered[start : start + BATCH_ROWS]
        said = answers(model, encoder, [encoder.prompt(one) for one in part], Sampling())
        right += sum(
            all(piece in text for piece in one.must) for one, text in zip(part, said, strict=True)
        )
    return right / len(dialogues)


def ask(model: Llama, encoder: Encoder, questions: Sequence[str], sampling: Sampling) -> list[str]:
    """Answers to plain questions, each in a chat of its own."""
    chats = [
        Dialogue("ask", (Turn("user", question), Turn("assistant", "")), ())
        for question in questions
    ]
    return answers(model, encoder, [encoder.prompt(chat) for chat in chats], sampling)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m inference.train.evaluate", description=__doc__)
    parser.add_argument("--model", type=Path, default=ASSET_FOLDER)
    parser.add_argument("--count", type=int, default=40, help="prompts per family; 0 for none")
    parser.add_argument("--temperature", type=float, default=0.0, help="for the samples")
    parser.add_argument("--ask", action="append", help="a question to ask instead of the samples")
    options = parser.parse_args()
    model, tokenizer = load_model(options.model)
    encoder = Encoder(tokenizer)
    questions = options.ask or SAMPLES
    said = ask(model, encoder, questions, Sampling(options.temperature))
    for question, text in zip(questions, said, strict=True):
        print(f"> {question}\n{text}\n")
    if options.count == 0 or options.ask:
        return
    for stage in STAGES:
        loss = held_out_loss(model, encoder, stage, rounds=8)
        print(f"held-out loss at length {stage.length}: {loss:.4f}")
    shares = []
    for family, dialogues in held_out_by_family(options.count).items():
        shares.append(accuracy(model, encoder, dialogues))
        print(f"{family:20s} {shares[-1]:6.1%} of {len(dialogues)}", flush=True)
    print(f"mean over families {sum(shares) / len(shares):.1%}")


if __name__ == "__main__":
    main()
