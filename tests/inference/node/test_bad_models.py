"""A checkpoint that cannot be served ends the node with status 1 and names what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.inference.compact.tiny import save_model
from tests.inference.text.tiny import tiny_files
from tests.support.fleet import CREDENTIAL, NODE, WAIT_S


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _truncate(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def _wrong_architecture(folder: Path) -> None:
    _edit(folder / "config.json", architectures=["GPT2LMHeadModel"])


def _small_embedding(folder: Path) -> None:
    _edit(folder / "config.json", vocab_size=300)


def _wrong_size(folder: Path) -> None:
    _edit(folder / "config.json", intermediate_size=80)


def _foreign_template(folder: Path) -> None:
    _edit(folder / "tokenizer_config.json", eos_token="<|foreign|>")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_truncate, "model.safetensors"),
        (_wrong_architecture, "config.json: architectures"),
        (_small_embedding, "vocab_size is 300"),
        (_wrong_size, "model.layers.0.mlp.gate_proj.weight"),
        (_foreign_template, "tokenizer_config.json: eos_token"),
    ],
)
async def test_the_node_says_what_is_wrong_and_exits(
    tmp_path: Path, damage: Callable[[Path], None], named: str
) -> None:
    save_model(tmp_path, vocab_size=400)
    for name, data in tiny_files().items():
        (tmp_path / name).write_bytes(data)
    damage(tmp_path)
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "inference", "--gateway", "ws://127.0.0.1:1", "--name", NODE),
        *("--model", str(tmp_path), "--device", "cpu"),
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "SLUICE_NODE_CREDENTIAL": CREDENTIAL},
    )
    out, err = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 1
    last = err.decode().splitlines()[-1]
    assert "the model cannot be served" in last
    assert named in last
    assert "Traceback" not in (out + err).decode()
