"""`quantization_config` of config.json: how GPTQ and AWQ checkpoints store their projections."""

from dataclasses import dataclass

from inference.compact.config.fields import Fields

GROUP_SIZES = (-1, 32, 64, 128)
# Of a module's name, what follows the last dot.
CODES, ZEROS, SCALES, GROUPS = "qweight", "qzeros", "scales", "g_idx"
PARTS = (CODES, ZEROS, SCALES, GROUPS)


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """Codes of `bits`, in groups of `group` inputs (None: all); zeros lack `zero_offset`."""

    method: str
    bits: int
    group: int | None
    zero_offset: int


def read_quantization(fields: Fields) -> Quantization | None:
    """None where config.json tells of none; raises `ModelError` for a method or form not known."""
    if "quantization_config" not in fields.values:
        return None
    values = Fields(fields.path, "quantization_config", fields.values["quantization_config"])
    method = values.values.get("quant_method")
    if method not in ("gptq", "awq"):
        raise values.error("quant_method", f"{method!r} is not supported; gptq and awq are")
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
