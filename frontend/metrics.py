"""`/metrics` of the web role: what the database knows of pools, ledger, objectives and roll-ups,
and before it what this process has counted itself where it is a gateway, too.

Read by whoever sends the metrics token (`SLUICE_METRICS_TOKEN`, or the file `metrics-token` among
the installation's secrets) or the operator's as a bearer token, or is signed in as staff.
"""

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from controlplane.billing.ledger.metrics import write_ledger
from controlplane.core.scrape import CONTENT_TYPE, OWN_METRICS, REFUSED
from controlplane.fleet.api import may_read_metrics
from controlplane.fleet.metrics import write_fleet
from controlplane.slos.metrics import write_slos
from controlplane.telemetry.exposition import Exposition
from controlplane.telemetry.metrics import write_telemetry

WRITERS = (write_fleet, write_ledger, write_slos, write_telemetry)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_read_metrics(request):
        return HttpResponse(
            REFUSED,
            status=401,
            content_type="text/plain; charset=utf-8",
            headers={"WWW-Authenticate": "Bearer"},
        )
    page, own = Exposition(), _own(request)
    if not own:
        page.build()
    for write in WRITERS:
        write(page)
    return HttpResponse(own + page.to_bytes(), content_type=CONTENT_TYPE.decode())


def _own(request: HttpRequest) -> bytes:
    """Of this process where it is a gateway; they are added up on its event loop."""
    ask = getattr(request, "scope", {}).get(OWN_METRICS)
    return b"" if ask is None else async_to_sync(ask)()
