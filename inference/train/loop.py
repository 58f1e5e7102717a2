"""The training loop: bf16 arithmetic, float32 master weights, checkpoints that resume exactly."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from inference.train.batches import Batch, batch_of_step
from inference.train.model import Llama
from inference.train.schedule import Plan
from inference.train.tokenizer import Encoder

CHECKPOINT_FILE = "checkpoint.pt"
BETAS = (0.9, 0.95)

Report = Callable[[str], None]


@dataclass(frozen=True)
class Device:
    """Where and in which type the arithmetic runs."""

    name: str
    dtype: torch.dtype


class Trainer:
    """The state of a run: master weights, their low-precision twin and the optimizer."""

    def __init__(self, plan: Plan, tokenizer: Tokenizer, device: Device) -> None:
        self.plan = plan
        self.encoder = Encoder(tokenizer)
        self.device = device
        master = Llama(plan.model)
        master.initialize(torch.Generator().manual_seed(plan.seed))
        self.master = master.to(device.name)
        self.twin = Llama(plan.model).to(device.name, device.dtype)
        self.copy_down()
        self.optimizer = make_optimizer(self.master, plan)
        self.step = 0

    def copy_down(self) -> None:
        """Round the master weights into the twin that computes."""
        with torch.no_grad():
            for low, full in zip(self.twin.parameters(), self.master.parameters(), strict=True):
                low.copy_(full)

    def train_step(self) -> tuple[Tensor, Tensor]:
        """One update; returns the loss and the norm of the gradient before clipping."""
        plan = self.plan
        batch = batch_of_step(self.encoder, plan.stage(self.step), seed=plan.seed, step=self.step)
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        for low, full in zip(self.twin.parameters(), self.master.parameters(), strict=True):
            full.grad = None if low.grad is None else low.grad.float()
            low.grad = None
        norm = torch.nn.utils.clip_grad_norm_(self.master.parameters(), plan.gradient_norm_max)
        for group in self.optimizer.param_groups:
            group["lr"] = plan.rate(self.step)
        self.optimizer.step()
        self.copy_down()
        self.step += 1
        return loss.detach(), norm

    def loss(self, batch: Batch) -> Tensor:
        place = self.device.name
        return self.twin.loss(batch.ids.to(place), batch.targets.to(place), batch.said.to(place))

    def save(self, folder: Path) -> None:
        """Write the state in one move, so that a crash never leaves half a checkpoint."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "step": self.step,
            "plan": repr(self.plan),
            "weights": self.master.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        fresh = folder / (CHECKPOINT_FILE + ".new")
        torch.save(state, fresh)
        os.replace(fresh, folder / CHECKPOINT_FILE)

    def load(self, folder: Path) -> None:
        """Resume from a checkpoint of the same plan."""
        path = folder / CHECKPOINT_FILE
        if not path.exists():
            raise ValueError(f"resume: there is no checkpoint in {folder}")
        state = torch.load(path, map_location=self.device.name)
        if state["plan"] != repr(self.plan):
            raise ValueError(f"plan: the checkpoint in {folder} was made with another plan")
        self.master.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.copy_down()


def make_optimizer(model: Llama, plan: Plan) -> torch.optim.AdamW:
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    norms = [one for one in model.parameters() if one.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.rate_max, betas=BETAS, fused=True)


@dataclass(frozen=True)
class Limits:
    """When a run stops early and how often it saves and reports."""

    minutes_max: float
    save_every_s: float
    report_every_steps: int


def run(trainer: Trainer, folder: Path, limits: Limits, report: Report) -> bool:
    """Train to the end of the plan or of the time; True when the plan is finished."""
    started = saved = time.monotonic()
    first, total = trainer.step, 0.0
    while trainer.step < trainer.plan.steps:
        loss, norm = trainer.train_step()
        total += loss.item()
        now = time.monotonic()
        if trainer.step % limits.report_every_steps == 0:
            pace = (now - started) / (trainer.step - first)
            report(
                f"step {trainer.step}/{trainer.plan.steps} "
                f"loss {total / limits.report_every_steps:.4f} norm {norm.item():.2f} "
                f"rate {trainer.plan.rate(trainer.step - 1):.2e} {pace:.2f} s/step "
                f"{(trainer.plan.steps - trainer.step) * pace / 60:.0f} min left"
            )
            total = 0.0
        if now - saved > limits.save_every_s:
            trainer.save(folder)
            saved = time.monotonic()
        if now - started > limits.minutes_max * 60:
            break
    trainer.save(folder)
    return trainer.step >= trainer.plan.steps
