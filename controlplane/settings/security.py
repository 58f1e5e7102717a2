"""Keys, cookies, headers and sign-in rules of the pages, and the secrets the gateway signs with."""

from datetime import timedelta

from csp.constants import NONE, SELF

from controlplane.settings import env
from controlplane.settings.gateway import GATEWAY_URL
from controlplane.settings.secret_files import (
    FROM_VARIABLES,
    bytes_before,
    needed,
    secret,
    secrets_before,
)

if needed("web"):
    SECRET_KEY = secret("SLUICE_SECRET_KEY", "django")
    SECRET_KEY_FALLBACKS = list(secrets_before("SLUICE_SECRET_KEY", "django"))
    # Opens /api/ as the command line does; whoever has it runs the installation.
    OPERATOR_TOKEN = secret("SLUICE_OPERATOR_TOKEN", "operator-token")
    # Seals the secrets of authenticator apps; under another one, those apps must be set up again.
    FACTOR_KEY = secret("SLUICE_FACTOR_KEY", "factor-key").encode()
    FACTOR_KEYS_BEFORE = bytes_before("SLUICE_FACTOR_KEY", "factor-key")
if needed("setup"):
    # Seals the secrets in a backup; only commands read it.
    BACKUP_PASSPHRASE = env.text("SLUICE_BACKUP_PASSPHRASE")
if needed("gateway"):
    # Each tenant's prefix-cache salt is derived from this, so that tenants never share blocks.
    CACHE_SALT_SECRET = secret("SLUICE_CACHE_SALT_SECRET", "cache-salt").encode()
if needed("web", "connector"):
    # Seals the keys of hosted providers; under another one, those must be entered again.
    CONNECTION_KEY = secret("SLUICE_CONNECTION_KEY", "connection-key").encode()
    CONNECTION_KEYS_BEFORE = bytes_before("SLUICE_CONNECTION_KEY", "connection-key")
if needed("gateway", "web", "connector"):
    # API keys are kept as HMAC-SHA256 under this pepper, or an earlier one: without that they are
    # invalid. The key of the tickets that travel with nodes' jobs is derived from it.
    KEY_PEPPER = secret("SLUICE_KEY_PEPPER", "key-pepper").encode()
    KEY_PEPPERS_BEFORE = bytes_before("SLUICE_KEY_PEPPER", "key-pepper")
if needed("gateway", "web"):
    # Reads /metrics and the autoscaling signals, and nothing else.
    METRICS_TOKEN = secret("SLUICE_METRICS_TOKEN", "metrics-token")
    # The first wraps the keys of what projects keep; the others open what they once wrapped.
    CONTENT_KEYS = (
        secret("SLUICE_CONTENT_KEY", "content-key"),
        *secrets_before("SLUICE_CONTENT_KEY", "content-key"),
    )
    PLAYGROUND_TOKEN_KEY = secret("SLUICE_PLAYGROUND_TOKEN_KEY", "playground-token").encode()

# Variables by the name of the file that they stand for; for `sluice doctor`.
SECRETS_FROM_VARIABLES = FROM_VARIABLES
ALLOWED_HOSTS = list(env.words("SLUICE_ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]")))
# Whether an egress proxy looks names up, and so has to keep requests out of networks by itself.
PROXY_RESOLVES = env.boolean("SLUICE_PROXY_RESOLVES", False)
CSRF_TRUSTED_ORIGINS = list(env.words("SLUICE_TRUSTED_ORIGINS"))

# Set where TLS ends in front of us; on a plain local port secure cookies would never be sent.
HTTPS = env.boolean("SLUICE_HTTPS", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
# What `check --deploy` asks for and is decided elsewhere.
SILENCED_SYSTEM_CHECKS = [
    # HSTS for subdomains and in browsers' lists: whoever owns the domain decides, at their proxy.
    "security.W005",
    "security.W021",
    # Plain HTTP is turned into HTTPS by the proxy: behind it, scrapes and nodes' enrolment use it.
    "security.W008",
]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 60 * 60 * 12
X_FRAME_OPTIONS = "DENY"

AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AXES_HANDLER = "controlplane.tenants.sign_in.throttle.SignInThrottle"
# The form's field; by the model's, no attempt would have an account.
AXES_USERNAME_FORM_FIELD = "username"
AXES_USERNAME_CALLABLE = "controlplane.tenants.sign_in.throttle.account_of"
AXES_CLIENT_IP_CALLABLE = "controlplane.tenants.sign_in.throttle.address_of"
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
# A pair, so that a stranger cannot lock a user out from elsewhere.
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_VERBOSE = False
# Sessions are listed and audited by us.
AXES_DISABLE_ACCESS_LOG = True
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address"]
AXES_LOCKOUT_TEMPLATE = "people/locked.html"

# The empty string: Plotly makes an empty style element and fills it by script.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_UNSAFE_INLINE = "'unsafe-inline'"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "connect-src": [SELF, *([GATEWAY_URL] if GATEWAY_URL else [])],
        "img-src": [SELF, "data:", "blob:"],
        "font-src": [SELF],
        # Read by old browsers only; new ones read the two lines below it.
        "style-src": [SELF, _UNSAFE_INLINE],
        "style-src-elem": [SELF, _EMPTY_STYLE],
        "style-src-attr": [_UNSAFE_INLINE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}
