"""A model on several processes of this host, one per GPU: this one leads, the others follow.

The leader schedules, sends each step's rows down a pipe and draws; every process computes its
share of heads and feed-forward columns, and their sums meet in two reductions per layer. Whatever
goes wrong in a follower ends the leader's step with an error, and so the node.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from inference.compact.batch import Rows, Uploader
from inference.compact.eager import EagerModel
from inference.compact.models.decoder import Decoder
from inference.compact.models.shape import ModelShape
from inference.compact.parallel import Share, shape_of_share
from inference.compact.placement import Placement
from inference.compact.weights import load_weights
from inference.engines.base import ModelError

# How long one process waits for another: to meet and in a step, to load, and to end.
MEETING_S = 120.0
LOADING_S = 1800.0
CLOSE_WAIT_S = 10.0
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# Nobody outside this host takes part.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True, slots=True)
class SentBlocks:
    """Where a sequence's keys and values are."""

    blocks: list[int]


@dataclass(frozen=True, slots=True)
class SentRows:
    """A chunk as it goes down the pipe."""

    sequence: SentBlocks
    tokens: list[int]
    start: int
    count: int
    draws: int


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What a process needs to know to take part."""

    folder: Path
    shape: ModelShape
    placement: Placement
    meeting_file: str

    def join(self, rank: int) -> EagerModel:
        """Meet the others and load this process's share; raises `ModelError`."""
        placement = self.placement
        if placement.device == "cuda":
            torch.cuda.set_device(rank)
        if placement.threads is not None:
            torch.set_num_threads(placement.threads)
        dist.init_process_group(
            BACKENDS[placement.device],
            init_method=f"file://{self.meeting_file}",
            rank=rank,
            world_size=placement.tensor_parallel,
            timeout=timedelta(seconds=MEETING_S),
        )
        share = Share(rank, placement.tensor_parallel)
        weights = load_weights(self.folder, self.shape, placement, share)
        local = shape_of_share(self.shape, share.size)
        return EagerModel(
            Decoder(local, weights, placement, sum_over_processes), Uploader(placement.device)
        )


class TeamModel:
    """The leader's side; a `LoadedModel`. One at a time in a process."""

    def __init__(self, folder: Path, shape: ModelShape, placement: Placement) -> None:
        os.environ.update({name: os.environ.get(name, value) for name, value in LOOPBACK.items()})
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-team-")
        membership = Membership(
            folder=folder,
            shape=shape,
            placement=placement,
            meeting_file=f"{self._folder.name}/meeting",
        )
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self.followers: list[multiprocessing.process.BaseProcess] = []
        for rank in range(1, placement.tensor_parallel):
            mine, theirs = context.Pipe()
            follower = context.Process(target=follow, args=(theirs, membership, rank), daemon=True)
            follower.start()
            theirs.close()
            self._pipes.append(mine)
            self.followers.append(follower)
        try:
            self._model = membership.join(0)
            for pipe in self._pipes:
                self._hear(pipe)
        except BaseException:
            self.close()
            raise

    def forward(self, chunks: Sequence[Rows]) -> Tensor:
        """Logits `[drawn rows, vocabulary]`, float32, in the order of the chunks."""
        sent = [
            SentRows(
                SentBlocks(chunk.sequence.blocks),
                chunk.tokens,
                chunk.start,
                chunk.count,
                chunk.draws,
            )
            for chunk in chunks
        ]
        for pipe in self._pipes:
            pipe.send(sent)
        return self._model.forward(chunks)

    def close(self) -> None:
        """End the followers. No `forward` may follow."""
        for pipe in self._pipes:
            pipe.close()
        for follower in self.followers:
            follower.join(CLOSE_WAIT_S)
            if follower.is_alive():
                follower.kill()
        self._pipes = []
        if dist.is_initialized():
            dist.destroy_process_group()
        self._folder.cleanup()

    def __del__(self) -> None:
        if self._pipes:
            self.close()

    def _hear(self, pipe: Connection) -> None:
        """A follower's word on its loading: nothing, or what is wrong."""
        if not pipe.poll(LOADING_S):
            raise ModelError(f"tensor_parallel: a process did not load within {LOADING_S:.0f} s")
        try:
            complaint = pipe.recv()
        except EOFError as error:
            raise ModelError("tensor_parallel: a process ended while loading") from error
        if complaint is not None:
            raise ModelError(complaint)


def follow(pipe: Connection, membership: Membership, rank: int) -> None:
    """The whole life of a follower: it ends when the leader does."""
    # Signals for the whole group are the leader's to act on: it still needs us while it drains.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with torch.inference_mode():
        try:
            model = membership.join(rank)
        except ModelError as error:
            pipe.send(str(error))
            return
        pipe.send(None)
        while True:
            try:
                chunks = pipe.recv()
            except EOFError:
                break
            model.forward(chunks)
    dist.destroy_process_group()


def sum_over_processes(x: Tensor) -> Tensor:
    """Add up, in place, what all processes hold."""
    dist.all_reduce(x)
    return x
