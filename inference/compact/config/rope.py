"""How a checkpoint turns its queries and keys: the base, and how its angles are stretched."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from inference.compact.config.fields import Fields

BETA_FAST_DEFAULT = 32.0
BETA_SLOW_DEFAULT = 1.0
YARN_MAGNITUDE = 0.1
RAMP_LEAST = 0.001


@dataclass(frozen=True, kw_only=True)
class LinearScaling:
    """All angles divided by the factor."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """Llama 3's stretching: by wave length, long ones by the factor, short ones not at all."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, kw_only=True)
class YarnScaling:
    """YaRN's stretching: by dimension, kept up to `kept_to`, stretched by the whole factor from
    `stretched_from` on; all cosines and sines are multiplied by `magnitude`.
    """

    factor: float
    kept_to: float
    stretched_from: float
    magnitude: float
    original_context: int


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary embedding of a model, over whole heads in the rotate-half convention."""

    theta: float
    scaling: RopeScaling | None


def read_rope(fields: Fields, head_dim: int, context: int, theta_default: float) -> Rope:
    """From `rope_parameters` of newer files or `rope_scaling` of older ones; `ModelError`."""
    if head_dim % 2:
        raise fields.error("head_dim", "must be even")
    name = next((each for each in _OBJECTS if each in fields.values), _OBJECTS[0])
    values = Fields(fields.path, name, fields.values.get(name, {}))
    for source in (fields, values):
        source.require("partial_rotary_factor", 1.0)
    source = values if "rope_theta" in values.values else fields
    theta = source.number("rope_theta", theta_default)
    if theta <= 1:
        raise source.error("rope_theta", "must be a number above 1")
    kind = values.values.get("rope_type", values.values.get("type", "default"))
    if kind == "default":
        return Rope(theta=theta, scaling=None)
    if kind not in _SCALINGS:
        known = ", ".join(("default", *_SCALINGS))
        raise values.error("rope_type", f"{kind!r} is not supported; one of {known} is")
    values.values.setdefault("original_max_position_embeddings", context)
    return Rope(theta=theta, scaling=_SCALINGS[kind](values, head_dim, theta))


_OBJECTS = ("rope_parameters", "rope_scaling")


def _linear(values: Fields, head_dim: int, theta: float) -> LinearScaling:
    return LinearScaling(factor=values.number("factor"))


def _llama3(values: Fields, head_dim: int, theta: float) -> Llama3Scaling:
    low, high = values.number("low_freq_factor"), values.number("high_freq_factor")
    if low >= high:
        raise values.error("low_freq_factor", "must lie below high_freq_factor")
    return Llama3Scaling(
        factor=values.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=int(values.number("original_max_position_embeddings")),
    )


def _yarn(values: Fields, head_dim: int, theta: float) -> YarnScaling:
    factor = values.number("factor")
    original = values.number("original_max_position_embeddings")

    def dimension(rotations: float) -> float:
        """Where a wave turns this often over the original context."""
        waves = original / (rotations * 2 * math.pi)
        return head_dim * math.log(waves) / (2 * math.log(theta))

    low = dimension(values.number("beta_fast", BETA_FAST_DEFAULT))
    high = dimension(values.number("beta_slow", BETA_SLOW_DEFAULT))
    if values.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    return YarnScaling(
        factor=factor,
        kept_to=low,
        stretched_from=high if high != low else high + RAMP_LEAST,
        magnitude=_magnitude(values, factor),
        original_context=int(original),
    )


def _magnitude(values: Fields, factor: float) -> float:
    """The given one, else as YaRN's paper has it, with the two weights that some files carry."""
    if "attention_factor" in values.values:
        return values.number("attention_factor")

    def grown(weight: float) -> float:
        return 1.0 if factor <= 1 else YARN_MAGNITUDE * weight * math.log(factor) + 1.0

    if values.values.get("mscale") and values.values.get("mscale_all_dim"):
        return grown(values.number("mscale")) / grown(values.number("mscale_all_dim"))
    return grown(1.0)


_SCALINGS: dict[str, Callable[[Fields, int, float], RopeScaling]] = {
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
