"""`GET /api/schema`: the API's description of itself, for whoever may call any of it."""

from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView


class IsAuthenticated(BasePermission):
    """The operator, an admin key, and whoever is signed in: a description takes a while."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return bool(request.user.is_authenticated)


class Description(SpectacularJSONAPIView):
    """In OpenAPI 3.1."""

    permission_classes = (IsAuthenticated,)
