"""What the operations under /api/billing/organizations/<id>/ share."""

from typing import Any

from rest_framework.request import Request

from controlplane.billing.access import may_see_money
from controlplane.core.api.views import ApiView


class MoneyView(ApiView, under="api/billing/organizations/<org:organization_id>/"):
    """Rights come before bodies: whoever may not see the money learns nothing else either."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        may_see_money(self.actor(), kwargs["organization_id"])
