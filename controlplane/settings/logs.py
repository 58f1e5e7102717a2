"""Logs: one JSON object a line on standard error (plain lines on a terminal), through structlog."""

import re
import sys
from typing import Any

import structlog

from controlplane.settings import env

LOG_FORMAT = env.choice("SLUICE_LOG_FORMAT", "auto", ("auto", "json", "plain"))
LOG_LEVEL = env.choice("SLUICE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))

_plain = LOG_FORMAT == "plain" or (LOG_FORMAT == "auto" and sys.stderr.isatty())
_renderer: Any = structlog.dev.ConsoleRenderer() if _plain else structlog.processors.JSONRenderer()
_shared: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]

_SETUP_LINK = re.compile(r"(/(?:setup|invitation)/)[\w%.~-]+")


def mask_setup_links(_logger: Any, _method: str, line: str) -> str:
    """Take one-time tokens out of a finished line, wherever in it they stand."""
    return _SETUP_LINK.sub(r"\1***", line)


structlog.configure(
    processors=[*_shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "lines": {
            "()": structlog.stdlib.ProcessorFormatter,
            "processors": [
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer,
                mask_setup_links,
            ],
            "foreign_pre_chain": _shared,
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "uvicorn": {"handlers": [], "propagate": True},
        "uvicorn.access": {"handlers": [], "propagate": False},
        # Tells of each letter that goes into an invoice's PDF file.
        "fontTools": {"level": "WARNING"},
    },
}
