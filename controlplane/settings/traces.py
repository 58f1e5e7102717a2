"""Where traces go, by the standard variables of OpenTelemetry; nowhere unless one is set.

Headers, timeout, certificate, compression and attributes of the resource are read by its library
from the variables that it documents.
"""

from controlplane.settings import env

_SCHEMES = ("http", "https")
_CHARS_MAX = 500
_BASE = env.address("OTEL_EXPORTER_OTLP_ENDPOINT", _SCHEMES, chars_max=_CHARS_MAX)
_OWN = env.address("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", _SCHEMES, chars_max=_CHARS_MAX)
_ENDPOINT = _OWN or (_BASE.rstrip("/") + "/v1/traces" if _BASE else "")
TRACES_ENDPOINT = "" if env.boolean("OTEL_SDK_DISABLED", False) else _ENDPOINT
# Of the traces that begin here; where a caller has decided, that holds.
TRACES_RATIO = env.share("OTEL_TRACES_SAMPLER_ARG", 1.0)
