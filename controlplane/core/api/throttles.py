"""How often the API may be called: by one caller, from one address, and where secrets are tried.

DRF's throttles, which count here in windows of a minute: one number each, added to in one step,
where DRF's own keep the time of every request and may count two at once as one.
"""

from math import ceil

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from controlplane.core.audit.origin import client_address
from controlplane.core.counts import counts
from controlplane.kernel.keys.scopes import address_counted


class MinuteThrottle(SimpleRateThrottle):
    """So many requests a minute, by the setting that `setting` names."""

    setting: str
    # As DRF reads them from the rate.
    num_requests: int
    duration: int

    def get_rate(self) -> str:
        return f"{getattr(settings, self.setting)}/min"

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count it; False for one beyond the limit."""
        key = self.get_cache_key(request, view)
        if key is None:
            return True
        self.now = float(self.timer())
        return counts.add(f"{key}:{int(self.now // self.duration)}", self.duration) <= (
            self.num_requests
        )

    def wait(self) -> float:
        """Seconds until the next window."""
        return ceil(self.duration - self.now % self.duration)


class CallerThrottle(MinuteThrottle):
    """By whoever is known: a person, an admin key, the operator."""

    scope = "caller"
    setting = "API_CALLER_PER_MIN"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """None for strangers, whose address alone counts."""
        user = request.user
        return (
            f"{self.scope}:{user.actor_id or user.actor_label}" if user.is_authenticated else None
        )


class AddressThrottle(MinuteThrottle):
    """By address, before anybody asks who it is."""

    scope = "address"
    setting = "API_ADDRESS_PER_MIN"

    def get_cache_key(self, request: Request, view: APIView) -> str | None:
        """The address, or the network that stands for it."""
        return f"{self.scope}:{address_counted(client_address(request))}"


class DoorThrottle(AddressThrottle):
    """By address, where a stranger's secret is tried."""

    scope = "door"
    setting = "API_DOOR_PER_MIN"
