"""`python -m inference.train`: make the text, train the tokenizer and the model, export both."""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer

from inference.train.export import export
from inference.train.loop import CHECKPOINT_FILE, Device, Limits, Trainer, run
from inference.train.schedule import Plan
from inference.train.tokenizer import train_tokenizer

WORK_FOLDER = Path("var/train")
ASSET_FOLDER = Path("inference/assets/sluice-5m")
SAVE_EVERY_S = 180.0
REPORT_EVERY_STEPS = 20
TOKENIZER_FILE = "tokenizer.json"


def arguments() -> argparse.Namespace:
    plan = Plan()
    parser = argparse.ArgumentParser(prog="python -m inference.train", description=__doc__)
    parser.add_argument("--steps", type=int, default=plan.steps, help="length of the plan")
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop early; resume later"
    )
    parser.add_argument("--work", type=Path, default=WORK_FOLDER, help="checkpoints")
    parser.add_argument("--out", type=Path, default=ASSET_FOLDER, help="the exported model")
    parser.add_argument("--resume", action="store_true", help="resume from the last checkpoint")
    parser.add_argument("--export-only", action="store_true", help="export the last checkpoint")
    parser.add_argument("--float32", action="store_true", help="no bf16 arithmetic")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def say(line: str) -> None:
    print(line, flush=True)


def make_tokenizer(plan: Plan, work: Path) -> Tokenizer:
    path = work / TOKENIZER_FILE
    if not path.exists():
        say("training the tokenizer")
        work.mkdir(parents=True, exist_ok=True)
        tokenizer = train_tokenizer(
            plan.seed, vocab_size=plan.model.vocab_size, dialogues=plan.tokenizer_dialogues
        )
        tokenizer.save(str(path))
    return Tokenizer.from_file(str(path))


def main() -> None:
    """Train, or go on training, and export what there is."""
    options = arguments()
    torch.set_num_threads(options.threads)
    plan = replace(Plan(), steps=options.steps, seed=options.seed)
    fresh = not (options.resume or options.export_only)
    if fresh:
        for name in (TOKENIZER_FILE, CHECKPOINT_FILE):
            (options.work / name).unlink(missing_ok=True)
    tokenizer = make_tokenizer(plan, options.work)
    device = Device(
        "cuda" if torch.cuda.is_available() else "cpu",
        torch.float32 if options.float32 else torch.bfloat16,
    )
    trainer = Trainer(plan, tokenizer, device)
    say(f"{trainer.master.parameter_count():,} parameters, {plan.steps} steps on {device.name}")
    if not fresh:
        trainer.load(options.work)
        say(f"going on from step {trainer.step}")
    if not options.export_only:
        limits = Limits(options.minutes, SAVE_EVERY_S, REPORT_EVERY_STEPS)
        finished = run(trainer, options.work, limits, say)
        say("finished" if finished else "stopped early")
    export(trainer.master, tokenizer, options.out)
    say(f"exported to {options.out}")


if __name__ == "__main__":
    main()
