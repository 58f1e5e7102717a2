"""How a request's outcome is told: a tone for its mark, and words."""

from controlplane.kernel.statuses import CLIENT_LEFT
from controlplane.telemetry.models import RequestRecord

CLIENT_FAILED_FROM = 400
SERVER_FAILED_FROM = 500


def status_of(record: RequestRecord) -> tuple[str, str]:
    """Tone (ok, warn, bad, off) and text; status codes below 400 need no words."""
    if record.status >= SERVER_FAILED_FROM:
        return "bad", f"{record.status} {record.error_code}".strip()
    if record.status == CLIENT_LEFT:
        return "off", "499 client closed request"
    if record.status >= CLIENT_FAILED_FROM:
        return "warn", f"{record.status} {record.error_code}".strip()
    return "ok", str(record.status)
