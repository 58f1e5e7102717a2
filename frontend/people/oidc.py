"""OpenID Connect: where a provider is asked, and what its identity token proves.

Authlib speaks the protocol: discovery, state, nonce, PKCE, the trade of the code, the token's
signature and claims. A person is known by issuer and subject, never by what may change. It is
imported where a provider is asked, since most installations have none.
"""

from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from controlplane.core.mail import is_email
from controlplane.kernel.clock import wall_s
from controlplane.tenants.people.models import SUBJECT_CHARS_MAX
from controlplane.tenants.sign_in.identities import Identity
from controlplane.tenants.sign_in.providers import EMAIL, PROVIDERS_MAX, OidcProvider
from inference.tls import own_context

TIMEOUT_S = 10
ANSWER_BYTES_MAX = 1 << 20
# How long discovery and keys are kept; a key that is not among them is looked for at once.
KEPT_S = 600
# How long a provider that did not answer is not asked again, so that no queue forms for it.
AWAY_S = 5
# Only with keys of the provider's own: none of these can be made with what a client knows.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
LEEWAY_S = 60
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
IN_BODY = "client_secret_post"


class OidcRefused(Exception):
    """The provider's answer proves nothing; the reason is for the log, not for whoever asks."""


class NotShownAnew(OidcRefused):
    """The person was to show the provider anew who they are, and it does not say that they did."""


class GroupsElsewhere(OidcRefused):
    """The token has no groups since there are too many; to go on without them would be wrong."""


class OidcAway(Exception):
    """The provider does not answer, or answers nothing that can be read."""


@dataclass(frozen=True)
class Ask:
    """One sign-in under way, as the browser's signed cookie keeps it."""

    provider: str
    state: str
    nonce: str
    verifier: str
    next: str
    # A session that is to be confirmed: the person must show the provider anew who they are.
    confirms: bool
    at_s: float


def ask_begin(
    provider: OidcProvider, next_path: str, *, redirect: str, confirms: bool
) -> tuple[Ask, str]:
    """A new sign-in, and where to send the browser; raises OidcRefused, OidcAway."""
    # Asked of those who confirm alone: others are let in by the session they have there.
    fresh = {"max_age": 0} if confirms else {}
    made = _client(provider).app.create_authorization_url(redirect, **fresh)
    secrets = (made["state"], made["nonce"], made["code_verifier"])
    return Ask(provider.id, *secrets, next_path, confirms, wall_s()), made["url"]


def identity_of(provider: OidcProvider, ask: Ask, *, code: str, redirect: str) -> Identity:
    """Trade the code for a token and check it; raises OidcRefused, OidcAway."""
    from authlib.common.errors import AuthlibBaseError
    from joserfc.errors import JoseError

    client = _client(provider)
    try:
        token = client.app.fetch_access_token(redirect, code=code, code_verifier=ask.verifier)
        claims = client.app.parse_id_token(token, ask.nonce, client.wanted(), leeway=LEEWAY_S)
        if claims is None:
            raise OidcRefused("no identity token")
        claims = client.completed(claims, token)
        shown_at_s = float(claims.get("auth_time") or 0)
    except RequestException as error:
        raise OidcAway(str(error)) from error
    except (AuthlibBaseError, JoseError, KeyError, TypeError, ValueError) as error:
        raise OidcRefused(str(error)) from error
    subject = str(claims["sub"])
    if not 0 < len(subject) <= SUBJECT_CHARS_MAX:
        raise OidcRefused("sub")
    if ask.confirms and shown_at_s < ask.at_s - LEEWAY_S:
        raise NotShownAnew(f"auth_time {shown_at_s:.0f}, asked at {ask.at_s:.0f}")
    email = _email(provider, claims)
    _require_domain(provider, claims, email)
    return Identity(provider, subject, email, _groups(provider, claims), shown_at_s)


def _claim(claims: dict[str, Any], name: str) -> Any:
    """A claim by its name or, as `realm_access.roles`, within others; None without it."""
    if name in claims:
        return claims[name]
    outer, _, rest = name.partition(".")
    inner = claims.get(outer)
    return _claim(inner, rest) if rest and isinstance(inner, dict) else None


def _email(provider: OidcProvider, claims: dict[str, Any]) -> str:
    email = str(_claim(claims, provider.email_claim) or "").strip().lower()
    trusted = provider.email_trusted and email.rpartition("@")[2] in provider.domains
    # That is about `email`, whatever another claim holds.
    verified = provider.email_claim == EMAIL and claims.get("email_verified") is True
    return email if (trusted or verified) and is_email(email) else ""


def _require_domain(provider: OidcProvider, claims: dict[str, Any], email: str) -> None:
    """Return if people of that domain may come in; raises OidcRefused."""
    found = email.rpartition("@")[2]
    if provider.domain_claim is not None:
        found = str(_claim(claims, provider.domain_claim) or "").lower()
    if provider.domains and found not in provider.domains:
        raise OidcRefused(f"domain {found[:200]!r} is not among domains")


def _groups(provider: OidcProvider, claims: dict[str, Any]) -> frozenset[str]:
    """Groups as the provider writes them; without the claim none. Raises OidcRefused."""
    if not provider.by_groups:
        return frozenset()
    if provider.groups_claim in (claims.get("_claim_names") or ()):
        raise GroupsElsewhere(f"too many groups for the claim {provider.groups_claim}")
    found = _claim(claims, provider.groups_claim)
    found = [found] if isinstance(found, str) else found or []
    if not isinstance(found, list):
        raise OidcRefused(f"{provider.groups_claim} is no list")
    return frozenset(map(str, found))


class _Bounded(HTTPAdapter):
    """The wire to the provider: bounded in time and size, and never leading elsewhere."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """As its base, with the authorities that the installation adds."""
        super().init_poolmanager(*args, **options, ssl_context=own_context())

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **options, ssl_context=own_context())

    def send(self, request: PreparedRequest, *_: Any, **options: Any) -> Response:
        """The whole answer; raises OidcRefused, RequestException."""
        _require_safe(str(request.url))
        if urlsplit(str(request.url)).hostname in LOOPBACK:
            options["proxies"] = {}
        answer = super().send(request, **{**options, "stream": True, "timeout": TIMEOUT_S})
        content = answer.raw.read(ANSWER_BYTES_MAX + 1, decode_content=True)
        answer.close()
        if len(content) > ANSWER_BYTES_MAX or answer.is_redirect:
            raise OidcRefused(f"{request.url}: {answer.status_code}, {len(content):,} bytes")
        answer.raw = BytesIO(content)
        return answer


def _session(**options: Any) -> Session:
    from authlib.integrations.requests_client import OAuth2Session

    made: Session = OAuth2Session(**options)
    made.mount("https://", _Bounded())
    made.mount("http://", _Bounded())
    return made


class _Client:
    def __init__(self, provider: OidcProvider) -> None:
        from authlib.integrations.django_client import DjangoOAuth2App

        self.provider = provider
        scope = " ".join(provider.scopes)
        self.app = DjangoOAuth2App(
            None,
            client_id=provider.client_id,
            client_secret=provider.client_secret,
            server_metadata_url=f"{provider.issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": scope, "code_challenge_method": "S256"},
        )
        self.app.client_cls = _session
        self._away_until_s = 0.0

    def wanted(self) -> dict[str, dict[str, Any]]:
        """What an identity token must say, as Authlib has it."""
        return {
            "iss": {"essential": True, "value": self.app.server_metadata["issuer"]},
            "aud": {"essential": True, "value": self.app.client_id},
        }

    def completed(self, claims: dict[str, Any], token: dict[str, Any]) -> dict[str, Any]:
        """With what the provider tells at its userinfo endpoint alone, as Okta does with groups."""
        of = self.provider
        names = [of.email_claim, of.domain_claim, of.groups_claim if of.by_groups else None]
        lacks = any(name and _claim(claims, name) is None for name in names)
        if not lacks or "userinfo_endpoint" not in self.app.server_metadata:
            return claims
        more = self.app.userinfo(token=token)
        # A token of somebody else's could have been put in.
        if more.get("sub") != claims["sub"]:
            raise OidcRefused("userinfo tells of another subject")
        return {**more, **claims}

    def discover(self) -> None:
        """Know where to ask; raises OidcRefused, OidcAway."""
        if monotonic() < self._away_until_s:
            raise OidcAway("asked a moment ago")
        try:
            known = self.app.load_server_metadata()
        except (RequestException, ValueError) as error:
            self._away_until_s = monotonic() + AWAY_S
            raise OidcAway(str(error)) from error
        # As the provider spells it, which may be with a slash at its end.
        if str(known.get("issuer", "")).rstrip("/") != self.provider.issuer:
            raise OidcRefused(f"it calls itself {str(known.get('issuer'))[:200]}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            _require_safe(str(known.get(name, "")))
        known["id_token_signing_alg_values_supported"] = list(ALGORITHMS)
        # The header's form leaves open how a secret with special characters is written.
        if IN_BODY in known.get("token_endpoint_auth_methods_supported", ()):
            self.app.client_kwargs["token_endpoint_auth_method"] = IN_BODY


def _client(provider: OidcProvider) -> _Client:
    found = _kept(provider, int(monotonic() // KEPT_S))
    found.discover()
    return found


@lru_cache(maxsize=PROVIDERS_MAX)
def _kept(provider: OidcProvider, _period: int) -> _Client:
    return _Client(provider)


def _require_safe(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise OidcRefused(f"not over HTTPS: {address[:200]}")
