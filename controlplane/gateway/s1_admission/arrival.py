"""Time before the gateway, as a trusted proxy tells it in `X-Request-Start`.

The header holds a Unix time, as nginx (`t=1700000000.123`) and Heroku (milliseconds) write it.
It is another machine's clock: a value in the future, or older than `WAIT_S_MAX`, is left out.
"""

from controlplane.gateway.call import Call
from controlplane.kernel.keys.scopes import caller_within
from controlplane.kernel.spans import INDEX

ARRIVAL = INDEX["s1_admission.arrival"]
HEADER = b"x-request-start"
WAIT_S_MAX = 60
_US_PER_S = 1_000_000
_MILLISECONDS_FROM = 1e11
_MICROSECONDS_FROM = 1e14


def note_arrival(call: Call, trusted_proxies: tuple[str, ...]) -> None:
    """Write the span of the time between the proxy and this process, if it is credible.

    Only a proxy that the operator named is believed: anybody can send a header.
    """
    if not caller_within(trusted_proxies, call.peer):
        return
    text = call.header(HEADER)
    if text is None:
        return
    try:
        value = float(text.removeprefix("t="))
    except ValueError:
        return
    if value > _MICROSECONDS_FROM:
        value /= _US_PER_S
    elif value > _MILLISECONDS_FROM:
        value /= 1000
    waited_s = call.started_us / _US_PER_S - value
    if 0 <= waited_s <= WAIT_S_MAX:
        waited_us = int(waited_s * _US_PER_S)
        call.spans.set(ARRIVAL, -waited_us, waited_us)
