"""Matrix products of rows with a model's weights, on CPUs by oneDNN where that is faster."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from inference.compact.candidates import Candidates, first_that_agrees
from inference.compact.config.shape import ModelShape
from inference.compact.load.checkpoint import Affine
from inference.compact.load.placement import FP8_CAPABILITY, PROBE_ROWS, Placement, least_seconds
from inference.compact.load.weights import Weights
from inference.compact.scaled import Scaled, scaled

log = logging.getLogger("inference.compact")

Pack = Callable[[Affine], Affine]
PACKED: Candidates = (("inference.compact.layers.packed", "pack"),)
# Inputs and outputs of the matrix in the trial.
TRIAL_K = 256
# Norm of the difference, relative to the right result.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def project(x: Tensor, affine: Affine) -> Tensor:
    """Rows `[rows, outputs]` of rows `[rows, inputs]`."""
    if isinstance(affine.weight, Scaled):
        product = affine.weight.product(x)
        return product if affine.bias is None else product + affine.bias
    weight, bias = affine.plain()
    if not weight.is_mkldnn:
        return linear(x, weight, bias)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def packed(
    weights: Weights, shape: ModelShape, placement: Placement, candidates: Candidates = PACKED
) -> Weights:
    """The same weights in the order that is fastest here; takes the layers off their list, so that
    the model never lies in memory twice. Those of experts stay as they are.
    """
    if any(isinstance(layer.down.weight, Scaled) for layer in weights.layers):
        pack: Pack | None = _narrow if multiplies_narrow(placement) else None
    else:
        pack = choose_pack(shape, placement, candidates) if placement.device == "cpu" else None
    if pack is None:
        return weights
    layers = []
    while weights.layers:
        layer = weights.layers.pop(0)
        layer = replace(layer, qkv=pack(layer.qkv), out=pack(layer.out))
        if layer.router is None:
            layer = replace(layer, gate_up=pack(layer.gate_up), down=pack(layer.down))
        layers.append(layer)
    return replace(weights, layers=layers, head=pack(Affine(weights.head)).weight)


def multiplies_narrow(placement: Placement) -> bool:
    """Whether the device multiplies FP8 rightly, which is tried; where not, the log says so."""
    why = f"a {placement.device} computing in {placement.dtype} does not multiply it"
    if placement.device == "cuda" and placement.torch_dtype == torch.bfloat16:
        why = "the device's compute capability is below 8.9"
        if torch.cuda.get_device_capability() >= FP8_CAPABILITY:
            try:
                if narrow_agrees(placement):
                    return True
                why = "torch's product of FP8 computes something else"
            except Exception as error:  # a library that fails must not keep a node down
                why = f"torch's product of FP8 failed its trial: {error!r}"
    log.warning("fp8 weights are widened to %s for each product: %s", placement.dtype, why)
    return False


def narrow_agrees(placement: Placement) -> bool:
    """Whether products of FP8 are those of the same rounded numbers in float32."""
    random = torch.Generator().manual_seed(1)
    weight, *inputs = (
        torch.randn(rows, TRIAL_K, generator=random).to(placement.device, placement.torch_dtype)
        for rows in (TRIAL_K, *PROBE_ROWS)
    )
    matrix = replace(scaled(weight), narrow=True)
    right = [linear(scaled(x).dense(), matrix.dense()) for x in inputs]
    pairs = zip([matrix.product(x).float() for x in inputs], right, strict=True)
    return all(bool((a - b).norm() <= TOLERANCES[torch.bfloat16] * b.norm()) for a, b in pairs)


def _narrow(affine: Affine) -> Affine:
    weight = affine.weight
    if not isinstance(weight, Scaled) or not weight.aligned:
        return affine
    return Affine(replace(weight, narrow=True), affine.bias)


def choose_pack(shape: ModelShape, placement: Placement, candidates: Candidates) -> Pack | None:
    """What packs, where it is right and faster over rows of prompts and of few streams."""
    inner, outer, dtype = shape.hidden_size, 2 * shape.intermediate_size, placement.torch_dtype
    generator = torch.Generator().manual_seed(1)
    plain = Affine(torch.randn(outer, inner, generator=generator).to(dtype))
    inputs = [torch.randn(rows, inner, generator=generator).to(dtype) for rows in PROBE_ROWS]

    def agrees(pack: Pack) -> bool:
        right = [project(x, plain) for x in inputs]
        found = [project(x, pack(plain)) for x in inputs]
        pairs = zip(found, right, strict=True)
        return all((a - b).norm() <= TOLERANCES[dtype] * b.norm() for a, b in pairs)

    pack: Pack | None = first_that_agrees(candidates, agrees)
    if pack is None:
        return None
    ordered = pack(plain)
    ratios = [
        least_seconds(partial(project, x, ordered), "cpu")
        / least_seconds(partial(project, x, plain), "cpu")
        for x in inputs
    ]
    return pack if sum(ratios) < len(ratios) else None
