"""What the operator says of identity providers. Without models, since settings read it."""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from controlplane.core.permissions import Role
from controlplane.kernel.ids import uuid_of
from inference.secret_files import secret_given

PROVIDERS_MAX = 16
RULES_MAX = 1_000
DOMAINS_MAX = 100
SCOPES_MAX = 20
TEXT_CHARS_MAX = 255
EMAIL = "email"

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_CHARS_MAX)]
Id = Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,32}$")]


class RoleRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A role in an organization, for those in a group as the provider writes it.

    Without a group it is for everyone whom the provider's `domains` let in.
    """

    organization: Text
    role: Role
    group: Text | None = None

    def __post_init__(self) -> None:
        uuid_of(self.organization, "org")


class OidcProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A provider that speaks OpenID Connect: who we are there, and what its word is good for.

    `id` is in addresses, `name` on buttons. Only people of `domains` come in, where there are any:
    by their address, or by the claim `domain_claim`. A claim's name may be a path, as `a.b`.
    """

    id: Id
    name: Text
    issuer: Text
    client_id: Text
    client_secret: str = ""
    client_secret_file: str = ""
    scopes: Annotated[tuple[Text, ...], msgspec.Meta(max_length=SCOPES_MAX)] = (
        "openid",
        EMAIL,
        "profile",
    )
    email_claim: Text = EMAIL
    # Its addresses count without `email_verified`, which is about the claim `email` alone.
    email_trusted: bool = False
    groups_claim: Text = "groups"
    domains: Annotated[tuple[Text, ...], msgspec.Meta(max_length=DOMAINS_MAX)] = ()
    domain_claim: Text | None = None
    roles: Annotated[tuple[RoleRule, ...], msgspec.Meta(max_length=RULES_MAX)] = ()

    def __post_init__(self) -> None:
        parts = urlsplit(self.issuer)
        everyone = any(rule.group is None for rule in self.roles)
        for wrong, told in (
            (
                parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc,
                "issuer: must be a URL that begins with https://",
            ),
            ("openid" not in self.scopes, "scopes: must have openid"),
            (
                any(each != each.lower() or "@" in each for each in self.domains),
                "domains: must be as example.org, in lower case",
            ),
            (
                self.email_claim != EMAIL and not self.email_trusted,
                "email_claim: needs email_trusted, since email_verified is about email",
            ),
            (self.email_trusted and not self.domains, "email_trusted: needs domains"),
            (self.domain_claim and not self.domains, "domain_claim: needs domains"),
            (everyone and not self.domains, "roles: one without a group needs domains"),
        ):
            if wrong:
                raise ValueError(told)

    def __repr__(self) -> str:
        """Without the secret."""
        return f"{type(self).__name__}({self.id!r})"

    @property
    def by_groups(self) -> bool:
        """Whether roles depend on groups."""
        return any(rule.group is not None for rule in self.roles)


_Providers = Annotated[tuple[OidcProvider, ...], msgspec.Meta(max_length=PROVIDERS_MAX)]


def providers_read(text: str) -> tuple[OidcProvider, ...]:
    """Providers of a JSON list, each with its secret; raises ValueError that names the field."""
    try:
        found = msgspec.json.decode(text, type=_Providers)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    for field in ("id", "issuer"):
        if len({getattr(each, field).rstrip("/") for each in found}) < len(found):
            raise ValueError(f"{field}: the same in two providers")
    return tuple(_with_secret(each) for each in found)


def _with_secret(provider: OidcProvider) -> OidcProvider:
    name = "client_secret"
    given = {name: provider.client_secret, f"{name}_FILE": provider.client_secret_file}
    secret = secret_given(given, name)
    if not secret:
        raise ValueError(f"{provider.id}: {name} or {name}_file is required")
    issuer = provider.issuer.rstrip("/")
    return msgspec.structs.replace(
        provider, issuer=issuer, client_secret=secret, client_secret_file=""
    )
