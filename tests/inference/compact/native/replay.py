"""Steps of a native decoder, recorded for replay.c: for emulated machines and sanitizers."""

from __future__ import annotations

import ctypes
import subprocess
from array import array
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.compact.native.build import SOURCE
from inference.compact.native.library import Layer, Linear, Model, Step
from inference.compact.native.packing import PANEL

DRIVER = Path(__file__).with_name("replay.c")
END, OPEN, STEP, CLOSE = range(4)
SECONDS_MAX = 250
# Of rotary embeddings; recorded steps are shorter.
POSITIONS = 256
FLAGS = ("-std=gnu11", "-fno-strict-aliasing", "-pthread", "-Wall", "-Wextra", "-Werror")


class Recorder:
    """Stands before a library: what is called goes there, and into a file with it. Each step is
    run by another number of threads than the last, from one to as many as there are.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._written = bytearray()
        self._threads = 1
        self._logits: list[bytes] = []

    def sluice_open(self, model: Model, threads: int, spin_ns: int) -> Any:
        self._model(model)
        self._ints(OPEN, threads, spin_ns)
        self._outputs, self._threads = model.head.outputs, threads
        return self._library.sluice_open(model, threads, spin_ns)

    def sluice_step(self, engine: int, step: Step) -> int:
        step.threads = len(self._logits) % self._threads + 1
        self._ints(STEP, step.rows, step.chunk_count, step.sampled_count, step.threads)
        chunks = ctypes.string_at(step.chunks, 16 * step.chunk_count)
        records = array("i", chunks)
        last = records[-4:]
        blocks = last[3] + (last[2] + last[1] - 1) // 32 + 1
        self._block(step.tokens, 4 * step.rows)
        self._block(step.tables, 4 * blocks)
        self._block(step.sampled, 4 * step.sampled_count)
        self._block(step.chunks, len(chunks))
        failed: int = self._library.sluice_step(engine, step)
        self._logits.append(ctypes.string_at(step.logits, 4 * step.sampled_count * self._outputs))
        return failed

    def sluice_close(self, engine: int) -> None:
        self._ints(CLOSE)
        self._library.sluice_close(engine)

    def reopen(self, threads: int, spin_ns: int) -> None:
        """When replayed, another engine takes over here; the cache stays."""
        self._ints(CLOSE, OPEN, threads, spin_ns)

    def write(self, path: Path) -> Tensor:
        """To be called after the engine was closed; logits of all steps."""
        self._ints(END)
        path.write_bytes(self._written)
        return _floats(b"".join(self._logits))

    def _ints(self, *values: int) -> None:
        self._written += array("i", values).tobytes()

    def _floats(self, *values: float) -> None:
        self._written += array("f", values).tobytes()

    def _block(self, address: int | None, size: int) -> None:
        self._ints(size if address else 0)
        self._written += ctypes.string_at(address, size) if address else b""

    def _model(self, m: Model) -> None:
        self._ints(m.hidden, m.inner, m.heads, m.kv_heads, m.head_dim, m.depth, m.blocks)
        self._floats(m.norm_eps)
        self._block(m.embedding, 2 * m.hidden * m.head.outputs)
        self._block(m.norm, 4 * m.hidden)
        self._linear(m.head)
        for index in range(m.depth):
            self._layer(m, m.layers[index])

    def _layer(self, m: Model, layer: Layer) -> None:
        self._block(layer.input_norm, 4 * m.hidden)
        self._block(layer.mlp_norm, 4 * m.hidden)
        self._block(layer.q_norm, 4 * m.head_dim)
        self._block(layer.k_norm, 4 * m.head_dim)
        self._block(layer.rope, 4 * 2 * m.head_dim * POSITIONS)
        for each in (layer.qkv, layer.out, layer.gate_up, layer.down):
            self._linear(each)
        self._ints(layer.window)

    def _linear(self, linear: Linear) -> None:
        outputs = linear.panels * PANEL
        self._ints(linear.k, linear.panels, linear.outputs)
        self._ints(linear.bits, linear.group, linear.centred)
        self._floats(linear.unit)
        size = 2 * outputs * linear.k
        if linear.bits:
            # Codes, and a scale and perhaps a centre in half precision for each group.
            groups = linear.k // linear.group
            size = outputs * (linear.k * linear.bits // 8 + 2 * groups * (1 + linear.centred))
        self._block(linear.weights, size)
        self._block(linear.bias, 4 * outputs)


def build_driver(folder: Path, compiler: str, *flags: str) -> Path:
    """replay.c with the step in it; a warning fails."""
    program = folder / "replay"
    command = [compiler, *FLAGS, *flags, f"-I{SOURCE}", "-o", str(program), str(DRIVER), "-lm"]
    _run(command)
    return program


def replay(recorded: Path, *command: str) -> Tensor:
    """Logits of all steps, one behind the other."""
    return _floats(_run([*command, str(recorded)]))


def _floats(found: bytes) -> Tensor:
    return torch.frombuffer(bytearray(found), dtype=torch.float32)


def _run(command: list[str]) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return done.stdout
