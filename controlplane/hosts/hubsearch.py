"""Models of the hub by words: one bounded request to its list, at the address of the settings."""

from http import HTTPStatus
from urllib.parse import urlencode

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.core.audit.entries import Actor
from controlplane.core.outbound import NotReached, outbound
from controlplane.core.permissions import Action
from controlplane.tenants.access import require
from inference.contract.hosts import HUB_NAME

WORDS_CHARS_MAX = 100
FOUND_MAX = 10
LIST_BYTES_MAX = 1 << 20
# Weights that the engines here load.
FORMAT = "safetensors"
EXPANDED = ("downloads", "gated", "pipeline_tag", FORMAT)


class HubWeights(msgspec.Struct):
    """How many numbers a checkpoint has."""

    total: int = 0


class HubModel(msgspec.Struct):
    """A repository of the hub; a `gated` one asks for the token of an account let in."""

    id: str
    downloads: int = 0
    gated: bool | str = False
    pipeline_tag: str | None = None
    safetensors: HubWeights | None = None


def hub_search(*, actor: Actor, words: str) -> list[HubModel]:
    """Repositories with such weights, the most downloaded first; raises ValidationError."""
    require(actor, Action.CATALOG_MANAGE)
    words = words.strip()
    if not settings.HUB_URL:
        raise ValidationError({"words": "Search is off: this installation asks no hub."})
    if not 1 < len(words) <= WORDS_CHARS_MAX:
        raise ValidationError({"words": f"Type 2 to {WORDS_CHARS_MAX} characters to search for."})
    asked = {"search": words, "filter": FORMAT, "sort": "downloads", "limit": FOUND_MAX}
    query = urlencode({**asked, "expand": EXPANDED}, doseq=True)
    url = f"{settings.HUB_URL}/api/models?{query}"
    try:
        # A mirror is often inside one's network; only the operator says where.
        status, body = outbound("GET", url, headers={}, private=True, bytes_max=LIST_BYTES_MAX)
        if status != HTTPStatus.OK:
            raise NotReached(f"it answered {status}")
        found = msgspec.json.decode(body, type=list[HubModel])
    except NotReached as error:
        raise ValidationError({"words": f"The hub was not reached: {error}."}) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValidationError({"words": "The hub's answer is no list of models."}) from error
    return [one for one in found if HUB_NAME.fullmatch(one.id)][:FOUND_MAX]
