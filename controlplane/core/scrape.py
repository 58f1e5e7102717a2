"""Who may read figures by bearer token: Prometheus and autoscalers. Needs no database, since
gateway processes ask it, too.
"""

import hmac

from django.conf import settings

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
# Where in a request's scope the view that has the rest finds what to ask for a gateway's own.
OWN_METRICS = "sluice.metrics"
REFUSED = "Send the metrics token as a bearer token.\n"


def may_scrape(token: str) -> bool:
    """Whether it is the metrics token or the operator's, in constant time."""
    given = token.encode()
    # A gateway by itself does not know the operator's.
    tokens = [settings.METRICS_TOKEN, getattr(settings, "OPERATOR_TOKEN", settings.METRICS_TOKEN)]
    return any(hmac.compare_digest(given, known.encode()) for known in tokens)
