"""What a key may be used for, checked, and whether it is within what another may."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.core.exceptions import ValidationError

from controlplane.kernel.keys.scopes import (
    ENDPOINTS,
    READ_ENDPOINTS,
    network_covered,
    parse_network,
)
from controlplane.kernel.rules import PRIORITIES, PRIORITY_NORMAL
from controlplane.tenants.models import NETWORKS_MAX, TAG_CHARS_MAX, TAGS_MAX, ApiKey
from controlplane.tenants.services import clean_models

_TAG = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{TAG_CHARS_MAX - 1}}}")


@dataclass(frozen=True)
class KeyTerms:
    """What a key may ask for, from where, and how its requests are routed and queued.

    None as `models` or `endpoints` allows every one, no `networks` callers from anywhere. A
    `read_only` key may use only what runs no model. A `priority` above normal takes the right to
    set limits. Nothing of it may be wider than the key `within` which it is made, where one is.
    """

    models: Iterable[str] | None = None
    endpoints: Iterable[str] | None = None
    read_only: bool = False
    networks: Iterable[str] = ()
    tags: Iterable[str] = ()
    priority: int = PRIORITY_NORMAL
    within: ApiKey | None = None


EVERY_MODEL = KeyTerms()


def clean_terms(terms: KeyTerms) -> KeyTerms:
    """The same in the form that is stored; raises ValidationError naming the field."""
    return KeyTerms(
        models=clean_models(terms.models),
        endpoints=clean_endpoints(terms.endpoints),
        read_only=terms.read_only,
        networks=clean_networks(terms.networks),
        tags=clean_tags(terms.tags),
        priority=_clean_priority(terms.priority),
        within=terms.within,
    )


def terms_of(key: ApiKey) -> KeyTerms:
    return KeyTerms(
        models=key.allowed_models,
        endpoints=key.allowed_endpoints,
        read_only=key.read_only,
        networks=key.networks,
        tags=key.tags,
        priority=key.priority,
    )


def require_within(terms: KeyTerms, bounds: KeyTerms) -> None:
    """Raises ValidationError naming what `terms` would allow and `bounds` does not.

    Both are clean. Tags are names that rules look for and may lead anywhere, so a narrower key has
    those of the wider one and no other.
    """
    wider = {
        "models": not _subset(terms.models, bounds.models),
        "endpoints": not _subset(endpoints_of(terms), endpoints_of(bounds)),
        "networks": not _networks_within(list(terms.networks), list(bounds.networks)),
        "tags": set(terms.tags) != set(bounds.tags),
        "priority": terms.priority > bounds.priority,
    }
    message = "Must not allow more than the key that it is created from."
    if any(wider.values()):
        raise ValidationError({name: message for name, is_so in wider.items() if is_so})


def endpoints_of(terms: KeyTerms) -> frozenset[str]:
    """What a key with these terms may really use."""
    named = frozenset(ENDPOINTS if terms.endpoints is None else terms.endpoints)
    return named & frozenset(READ_ENDPOINTS) if terms.read_only else named


def clean_endpoints(endpoints: Iterable[str] | None) -> list[str] | None:
    """In the order of the kernel's list, without repeats; raises ValidationError."""
    if endpoints is None:
        return None
    wanted = set(endpoints)
    if not wanted or not wanted <= set(ENDPOINTS):
        raise ValidationError({"endpoints": f"Must be some of {', '.join(ENDPOINTS)}, or empty."})
    return [name for name in ENDPOINTS if name in wanted]


def clean_networks(networks: Iterable[str]) -> list[str]:
    """In their usual spelling, without repeats; raises ValidationError with what is wrong."""
    try:
        wanted = list(dict.fromkeys(str(parse_network(text)) for text in networks))
    except ValueError as error:
        raise ValidationError({"networks": f"{error}."}) from error
    if len(wanted) > NETWORKS_MAX:
        raise ValidationError({"networks": f"At most {NETWORKS_MAX} networks."})
    return wanted


def clean_tags(tags: Iterable[str]) -> list[str]:
    """Names that routing rules may ask for, without repeats; raises ValidationError."""
    wanted = sorted(set(tags))
    if len(wanted) > TAGS_MAX:
        raise ValidationError({"tags": f"At most {TAGS_MAX} tags."})
    if any(_TAG.fullmatch(tag) is None for tag in wanted):
        message = f"Each tag has up to {TAG_CHARS_MAX} of a-z, 0-9, '.', '_' and '-'."
        raise ValidationError({"tags": message})
    return wanted


def _clean_priority(priority: int) -> int:
    if priority not in PRIORITIES:
        raise ValidationError({"priority": f"Must be one of {', '.join(map(str, PRIORITIES))}."})
    return priority


def _subset(inner: Iterable[str] | None, outer: Iterable[str] | None) -> bool:
    if outer is None:
        return True
    return inner is not None and set(inner) <= set(outer)


def _networks_within(inner: list[str], outer: list[str]) -> bool:
    if not outer:
        return True
    return bool(inner) and all(network_covered(one, outer) for one in inner)
