"""Span = path: folders of the stages, the table of spans and what is measured where are one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.kernel.spans import SPANS, STAGES, Span

GATEWAY = Path(__file__).parents[2] / "controlplane" / "gateway"
LAYERS_MIN = 14
# The file of each stage that calls its layers in order; it is no layer itself.
ORDER = {
    "s1_admission": "admit",
    "s2_balance": "balance",
    "s3_tokenize": "tokenize",
    "s5_infer": "dispatch",
    "s6_finish": "finisher",
}
REMOTE = {"s1_admission": "arrival", "s5_infer": "remote_spans"}
MEASURED = re.compile(r'INDEX\["(\w+\.\w+)"\]')


def stage_files(stage: str) -> set[str]:
    """The modules of a stage's folder."""
    return {path.stem for path in (GATEWAY / stage).glob("*.py")} - {"__init__"}


def measured(stage: str, module: str) -> set[str]:
    """Names of spans that a module looks up."""
    return set(MEASURED.findall((GATEWAY / stage / f"{module}.py").read_text()))


def test_a_folder_per_stage() -> None:
    folders = {path.name for path in GATEWAY.glob("s[0-9]*_*") if path.is_dir()}
    assert folders == {stage for stage, _, _ in STAGES}


@pytest.mark.parametrize("stage", [stage for stage, _, _ in STAGES])
def test_a_file_per_layer_and_no_other(stage: str) -> None:
    local = {span.layer for span in SPANS if span.stage == stage and span.layer and not span.remote}
    others = {name for name in (ORDER.get(stage), REMOTE.get(stage)) if name}
    assert stage_files(stage) == local | others


@pytest.mark.parametrize("span", [span for span in SPANS if span.layer], ids=lambda span: span.name)
def test_every_layer_is_measured_once_and_where_it_says(span: Span) -> None:
    stage = span.stage
    places = {name for name in stage_files(stage) if span.name in measured(stage, name)}
    allowed = {REMOTE[stage]} if span.remote else {span.layer, ORDER.get(stage)}
    assert len(places) == 1 and places <= allowed


def test_nothing_is_measured_that_is_not_in_the_table() -> None:
    names = {span.name for span in SPANS}
    for path in GATEWAY.rglob("*.py"):
        assert set(MEASURED.findall(path.read_text())) <= names, path


def test_the_pipeline_measures_every_stage() -> None:
    text = "".join((GATEWAY / name).read_text() for name in ("pipeline.py", "ending.py"))
    assert all(f'"{stage}"' in text for stage, _, _ in STAGES)


def test_enough_layers() -> None:
    assert len([span for span in SPANS if span.layer]) >= LAYERS_MIN
