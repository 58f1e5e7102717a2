"""What a loaded model computes with, in words, and what of that is slower than it need be."""

from inference.compact.grouped import Matrix
from inference.compact.layers.ops import PLAIN
from inference.compact.load.placement import Placement
from inference.compact.load.weights import Weights
from inference.compact.native.choice import chosen
from inference.compact.run.eager import EagerModel
from inference.compact.run.graphs import RecordedModel, can_record
from inference.compact.run.native import NativeDecoder
from inference.compact.run.runner import LoadedModel
from inference.compact.scaled import Scaled
from inference.contract.roofline import ComputePath


def compute_path(model: LoadedModel, placement: Placement) -> ComputePath:
    """Without rates; those are measured later."""
    cache = "" if placement.kv_dtype == "auto" else f", {placement.kv_dtype} cache"
    if isinstance(model, NativeDecoder):
        name = f"native {chosen()[0].name}"
        widths = " and ".join(f"int{bits}" for bits in sorted(model.packer.bits))
        return ComputePath(kernels=name + (f", {widths} weights" if widths else "") + cache)
    eager = model.eager if isinstance(model, RecordedModel) else model
    widths = (", fp8 weights" if stored_bytes(model) else "") + cache
    if placement.device == "cpu" or not isinstance(eager, EagerModel):
        return ComputePath(kernels=f"torch{widths}", slow=placement.slow)
    decoder = eager.decoder
    by_torch = {
        "decode attention": decoder.kernels.decode_masks,
        "prefill attention": decoder.kernels.prefill_masks,
        "norms and gates": decoder.ops is PLAIN,
    }
    lacking = [name for name, holds in by_torch.items() if holds]
    slow = [f"torch computes {' and '.join(lacking)}, not Triton"] if lacking else []
    if any(isinstance(each, Scaled) and not each.narrow for each in _projections(decoder.weights)):
        slow.append("fp8 weights are widened for each product")
    if can_record(decoder) and eager is model:
        slow.append("steps are not recorded as CUDA graphs")
    kernels = "torch" if len(lacking) == len(by_torch) else "triton"
    kernels += widths
    return ComputePath(kernels=kernels, slow="; ".join(slow))


def stored_bytes(model: LoadedModel) -> int | None:
    """Of the weights that every step reads; None where all are as wide as what computes."""
    if isinstance(model, NativeDecoder):
        return model.packer.weight_bytes
    eager = model.eager if isinstance(model, RecordedModel) else model
    if not isinstance(eager, EagerModel):
        return None
    weights = eager.decoder.weights
    projections = _projections(weights)
    if not any(isinstance(each, Scaled) for each in projections):
        return None
    return sum(each.nbytes for each in [*projections, weights.head])


def _projections(weights: Weights) -> list[Matrix]:
    return [
        affine.weight
        for layer in weights.layers
        for affine in (layer.qkv, layer.out, layer.gate_up, layer.down)
    ]
