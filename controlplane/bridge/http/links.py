"""What links of clients lead to: hosts that the operator names, and no address of our networks."""

from functools import partial

from controlplane.core.outbound import NotReached, outbound
from controlplane.gateway.ports_contents import FetchLink, FetchRefused

BYTES_MAX = 8 * 1024 * 1024
OK = 200
HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "sluice-gateway"}


def fetch_from(hosts: tuple[str, ...]) -> FetchLink:
    """Hosts are as in a URL, with a port where it is another; `http://` before one allows links
    without encryption, too. A fetch takes up to `OUTBOUND_S_MAX`.
    """
    secure = {f"https://{host.removeprefix('http://')}" for host in hosts}
    return partial(_fetch, secure | {host for host in hosts if host.startswith("http://")})


def _fetch(allowed: set[str], url: str) -> bytes:
    if "/".join(url.split("/", 3)[:3]).lower() not in allowed:
        raise FetchRefused("is a link to a host that is not allowed; send a data URL")
    try:
        status, data = outbound("GET", url, headers=HEADERS, private=False, bytes_max=BYTES_MAX + 1)
    except NotReached as error:
        # What we know of its addresses is nobody's business.
        why = "its server does not answer, or has a private address"
        raise FetchRefused(f"cannot be fetched: {why}") from error
    if status != OK:
        raise FetchRefused(f"cannot be fetched: its server answered {status}")
    if len(data) > BYTES_MAX:
        raise FetchRefused(f"leads to more than {BYTES_MAX} bytes")
    return data
