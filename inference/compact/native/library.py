"""The C library as Python calls it; the structures are those of model.h and gemm.h."""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path


def _all(kind: type, names: str) -> tuple[tuple[str, type], ...]:
    """Fields of one type, named as one declaration in C names them."""
    return tuple((name, kind) for name in names.split())


class Linear(Structure):
    _fields_ = (
        *_all(c_void_p, "weights bias"),
        *_all(c_int32, "k panels outputs bits group centred"),
        ("unit", c_float),
    )


class Layer(Structure):
    _fields_ = (
        *_all(c_void_p, "input_norm mlp_norm q_norm k_norm rope"),
        *_all(Linear, "qkv out gate_up down"),
        ("window", c_int32),
    )


class Model(Structure):
    _fields_ = (
        *_all(c_void_p, "embedding norm"),
        ("layers", POINTER(Layer)),
        ("cache", c_void_p),
        ("head", Linear),
        ("blocks", c_int64),
        *_all(c_int32, "hidden inner heads kv_heads head_dim depth coded_cache"),
        ("norm_eps", c_float),
    )


class Step(Structure):
    _fields_ = (
        *_all(c_void_p, "tokens tables sampled chunks logits"),
        *_all(c_int32, "rows chunk_count sampled_count threads"),
        *_all(c_int64, "lost_ns step_ns"),
    )


def load_library(path: Path) -> ctypes.CDLL:
    """Load a built library; raises `OSError`."""
    library = ctypes.CDLL(str(path))
    library.sluice_open.argtypes = (POINTER(Model), c_int32, c_int64)
    library.sluice_open.restype = c_void_p
    library.sluice_step.argtypes = (c_void_p, POINTER(Step))
    library.sluice_step.restype = c_int32
    library.sluice_close.argtypes = (c_void_p,)
    library.sluice_close.restype = None
    return library
