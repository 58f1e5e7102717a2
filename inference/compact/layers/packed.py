"""Weights in oneDNN's own order, which projects without ordering them anew in every call: twice as
fast in bfloat16 at one row, and in float32 above a few. Called by internal names.
"""

import torch

from inference.compact.load.checkpoint import Affine

reorder = torch.ops.mkldnn._reorder_linear_weight.default


def pack(affine: Affine) -> Affine:
    """The same for `project`."""
    weight, bias = affine.plain()
    return Affine(reorder(weight), bias)
