"""Code that may or may not be installed, run and be right on a device: tried before it is used."""

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

log = logging.getLogger("inference.compact")

Found = TypeVar("Found")
# Module and name in it, the fastest first.
Candidates = Sequence[tuple[str, str]]


def first_that_agrees(
    candidates: Candidates, agrees: Callable[[Found], bool], *, slow: str = ""
) -> Found | None:
    """The first candidate that can be imported and passes its trial, None if there is none: then
    torch's operators do it, and what is `slow` so is a warning.
    """
    for module, name in candidates:
        try:
            kernel: Found = getattr(importlib.import_module(module), name)
            if agrees(kernel):
                log.info("kernels: %s of %s is used", name, module)
                return kernel
        except ImportError as error:
            log.info("kernels: %s of %s cannot be used: %s", name, module, error)
        except Exception as error:  # a compiler or driver that fails must not keep a node down
            log.warning("kernels: %s of %s failed its trial: %r", name, module, error)
        else:
            log.warning("kernels: %s of %s computes something else and is not used", name, module)
    if slow:
        log.warning("%s by torch's operators, which is slower", slow)
    return None
