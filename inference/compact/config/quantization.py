"""`quantization_config` of config.json: how GPTQ, AWQ and FP8 checkpoints store projections."""

from dataclasses import dataclass

from inference.compact.config.fields import Fields

GROUP_SIZES = (-1, 32, 64, 128)
FP8 = "fp8"
# Of a module's name, what follows the last dot.
CODES, ZEROS, SCALES, GROUPS = "qweight", "qzeros", "scales", "g_idx"
COMPRESSED_WEIGHTS: dict[str, tuple[object, ...]] = {
    "type": ("float",), "num_bits": (8,), "strategy": ("tensor", "channel", "block"),
}  # fmt: skip
PARTS = (CODES, ZEROS, SCALES, GROUPS)


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """Codes of `bits`, in groups of `group` inputs (None: all); zeros lack `zero_offset`."""

    method: str
    bits: int
    group: int | None
    zero_offset: int
    # Outputs and inputs that share a scale; None where a scale is for whole outputs.
    block: tuple[int, int] | None = None


def read_quantization(fields: Fields) -> Quantization | None:
    """None where config.json tells of none; raises `ModelError` for a method or form not known."""
    if "quantization_config" not in fields.values:
        return None
    values = Fields(fields.path, "quantization_config", fields.values["quantization_config"])
    method = values.values.get("quant_method")
    if method in FP8_FORMS:
        block = FP8_FORMS[method](values)
        return Quantization(method=FP8, bits=8, group=None, zero_offset=0, block=block)
    if method not in ("gptq", "awq"):
        known = ", ".join(("gptq", "awq", *FP8_FORMS))
        raise values.error("quant_method", f"{method!r} is not supported; {known} are")
    gptq = method == "gptq"
    bits = values.integer("bits")
    values.require("bits", *((4, 8) if gptq else (4,)))
    group = values.integer("group_size", least=-1)
    values.require("group_size", *GROUP_SIZES)
    values.require("checkpoint_format", "gptq", "gptq_v2")
    values.require("version", "gemm", "GEMM")
    newer = values.values.get("checkpoint_format") == "gptq_v2"
    return Quantization(
        method=method,
        bits=bits,
        group=None if group == -1 else group,
        zero_offset=1 if gptq and not newer else 0,
    )


def _fp8_block(values: Fields) -> tuple[int, int] | None:
    """Of `quant_method` fp8; rows are rounded as they come, so `static` is refused."""
    values.require("activation_scheme", "dynamic")
    values.require("fmt", "e4m3")
    return _block(values, "weight_block_size")


def _compressed_block(values: Fields) -> tuple[int, int] | None:
    """Of compressed-tensors with one group of FP8 weights."""
    values.require("format", "float-quantized", "naive-quantized")
    groups = Fields(
        values.path, f"{values.inside}.config_groups", values.values.get("config_groups", {})
    )
    if len(groups.values) != 1:
        raise values.error("config_groups", "must have one group")
    ((name, group),) = groups.values.items()
    inside = Fields(values.path, f"{groups.inside}.{name}", group)
    weights = Fields(values.path, f"{inside.inside}.weights", inside.values.get("weights", {}))
    for field, allowed in COMPRESSED_WEIGHTS.items():
        if weights.values.get(field) not in allowed:
            raise weights.error(field, f"{weights.values.get(field)!r} is not supported")
    inputs = inside.values.get("input_activations", {"dynamic": True})
    Fields(values.path, f"{inside.inside}.input_activations", inputs).require("dynamic", True)
    block = _block(weights, "block_structure")
    if (block is None) == (weights.values["strategy"] == "block"):
        raise weights.error("block_structure", "must be there with strategy block, and only then")
    return block


def _block(values: Fields, name: str) -> tuple[int, int] | None:
    found = values.values.get(name)
    if found is None:
        return None
    sizes = found if isinstance(found, list) else []
    if len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise values.error(name, "must be two sizes")
    return sizes[0], sizes[1]


FP8_FORMS = {"fp8": _fp8_block, "compressed-tensors": _compressed_block}
