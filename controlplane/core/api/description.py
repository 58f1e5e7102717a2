"""`GET /api/schema`: the API's description of itself, for whoever may call any of it."""

from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.permissions import IsAuthenticated


class Description(SpectacularJSONAPIView):
    """In OpenAPI 3.1; for callers who are known, since it takes a while."""

    permission_classes = (IsAuthenticated,)
