"""The C library as Python calls it; the structures are those of model.h and gemm.h."""

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path


class Linear(Structure):
    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("k", c_int32),
        ("panels", c_int32),
        ("outputs", c_int32),
    )


class Layer(Structure):
    _fields_ = (
        ("input_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("rope", c_void_p),
        ("qkv", Linear),
        ("out", Linear),
        ("gate_up", Linear),
        ("down", Linear),
        ("window", c_int32),
    )


class Model(Structure):
    _fields_ = (
        ("embedding", c_void_p),
        ("norm", c_void_p),
        ("layers", POINTER(Layer)),
        ("cache", c_void_p),
        ("head", Linear),
        ("blocks", c_int64),
        ("hidden", c_int32),
        ("inner", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("depth", c_int32),
        ("norm_eps", c_float),
    )


class Step(Structure):
    _fields_ = (
        ("tokens", c_void_p),
        ("tables", c_void_p),
        ("sampled", c_void_p),
        ("chunks", c_void_p),
        ("logits", c_void_p),
        ("rows", c_int32),
        ("chunk_count", c_int32),
        ("sampled_count", c_int32),
        ("threads", c_int32),
        ("lost_ns", c_int64),
        ("step_ns", c_int64),
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
