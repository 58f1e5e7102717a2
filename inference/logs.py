"""Logs of a node on standard error: plain lines for people, or one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime

FORMATS = ("plain", "json")
# They log every connection, and every request with its URL.
LOUD_LOGGERS = ("websockets", "httpx2", "httpcore2")
_PLAIN = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    """The same fields as the logs of gateways have."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(level: str, form: str) -> None:
    """Log to standard error in one of `FORMATS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_PLAIN))
    logging.basicConfig(level=level, handlers=[handler])
    for name in LOUD_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
