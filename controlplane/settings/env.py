"""Typed readers of environment variables that fail loudly; not a place for defaults of settings."""

import os
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import pairwise
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ImproperlyConfigured

from inference.secret_files import secret_given

# Settings that are, or may hold, a secret: for each a file can be named instead, as NAME_FILE.
SECRETS = frozenset(
    {
        "DATABASE_BACKUP_URL",
        "DATABASE_GATEWAY_URL",
        "DATABASE_OWNER_URL",
        "DATABASE_URL",
        "REDIS_URL",
        "SLUICE_BACKUP_PASSPHRASE",
        "SLUICE_CACHE_SALT_SECRET",
        "SLUICE_CONNECTION_KEY",
        "SLUICE_CONTENT_KEY",
        "SLUICE_EMAIL_PASSWORD",
        "SLUICE_FACTOR_KEY",
        "SLUICE_KEY_PEPPER",
        "SLUICE_METRICS_TOKEN",
        "SLUICE_OIDC_PROVIDERS",
        "SLUICE_OPERATOR_TOKEN",
        "SLUICE_PLAYGROUND_TOKEN_KEY",
        "SLUICE_SECRET_KEY",
        "SLUICE_STRIPE_SECRET",
        "SLUICE_WEBHOOK_KEY",
    }
)
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
NETWORKS_MAX = 10_000


def text(name: str, default: str = "") -> str:
    """The variable without surrounding space; an empty one counts as unset."""
    # An earlier value, while a secret turns over, is one as well.
    if name.removesuffix("_BEFORE") not in SECRETS:
        return os.environ.get(name, "").strip() or default
    try:
        return secret_given(os.environ, name) or default
    except ValueError as error:
        raise ImproperlyConfigured(f"{error}.") from None


def boolean(name: str, default: bool) -> bool:
    word = text(name).lower()
    if not word:
        return default
    if word not in TRUE_WORDS | FALSE_WORDS:
        raise ImproperlyConfigured(f"{name} must be true or false, not {word!r}.")
    return word in TRUE_WORDS


def integer(name: str, default: int, *, least: int, most: int) -> int:
    """A whole number within its bounds."""
    word = text(name)
    if not word:
        return default
    try:
        value = int(word)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {word!r}.") from None
    if not least <= value <= most:
        raise ImproperlyConfigured(f"{name} must be {least} to {most}, not {value}.")
    return value


def share(name: str, default: float) -> float:
    word = text(name)
    try:
        value = float(word) if word else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number, not {word!r}.") from None
    if not 0.0 <= value <= 1.0:
        raise ImproperlyConfigured(f"{name} must be 0 to 1, not {word}.")
    return value


def integers(
    name: str, default: tuple[int, ...], *, count: int, least: int, most: int
) -> tuple[int, ...]:
    """So many whole numbers separated by commas, each larger than the one before it."""
    given = words(name)
    try:
        values = tuple(int(word) for word in given) or default
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be whole numbers, not {text(name)!r}.") from None
    rising = all(before < after for before, after in pairwise(values))
    if len(values) != count or not rising or not least <= values[0] <= values[-1] <= most:
        told = f"{count} rising numbers from {least} to {most}"
        raise ImproperlyConfigured(f"{name} must be {told}, not {text(name)!r}.")
    return values


def choice(name: str, default: str, options: tuple[str, ...]) -> str:
    word = text(name, default)
    if word not in options:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(options)}, not {word!r}.")
    return word


def words(name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    value = text(name)
    return tuple(w.strip() for w in value.split(",") if w.strip()) if value else default


def path(name: str, default: Path) -> Path:
    """An absolute path; `~` is expanded."""
    value = text(name)
    return Path(value).expanduser().absolute() if value else default


def url(name: str, schemes: tuple[str, ...]) -> SplitResult | None:
    """A URL with one of the schemes, or None where the variable is unset."""
    value = text(name)
    if not value:
        return None
    parts = urlsplit(value)
    if parts.scheme not in schemes:
        raise ImproperlyConfigured(f"{name} must start with one of {', '.join(schemes)}.")
    return parts


def networks(name: str) -> tuple[tuple[IPv4Network | IPv6Network, str], ...]:
    """Names of networks, as `10.0.0.0/8=eu, 2001:db8::/32=us`; each network once."""
    found: dict[IPv4Network | IPv6Network, str] = {}
    for entry in words(name):
        written, _, value = (part.strip() for part in entry.partition("="))
        if not value or not value.isprintable():
            raise ImproperlyConfigured(f"{name} must be network=name, not {entry!r}.")
        try:
            network = ip_network(written)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {error} (in {entry!r}).") from None
        if network in found:
            raise ImproperlyConfigured(f"{name} names {network} twice.")
        found[network] = value
    if len(found) > NETWORKS_MAX:
        raise ImproperlyConfigured(f"{name} may have at most {NETWORKS_MAX} networks.")
    return tuple(found.items())


def network_list(name: str) -> tuple[str, ...]:
    """Networks and single addresses, as `10.0.0.0/8, 192.0.2.7`."""
    found = words(name)
    for written in found:
        try:
            ip_network(written)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {error}.") from None
    if len(found) > NETWORKS_MAX:
        raise ImproperlyConfigured(f"{name} may have at most {NETWORKS_MAX} networks.")
    return found


def address(name: str, schemes: tuple[str, ...], *, chars_max: int) -> str:
    """A URL as it was given, with a host and one of the schemes; empty where it is unset."""
    parts = url(name, schemes)
    if parts is None:
        return ""
    value = text(name)
    if not parts.hostname or parts.username is not None or len(value) > chars_max:
        raise ImproperlyConfigured(f"{name} must have a host and at most {chars_max} characters.")
    return value
