"""What Django is made of here: applications, middleware, templates, static files."""

from controlplane.kernel.ids import PREFIXES, kind
from controlplane.settings import env
from controlplane.settings.paths import BASE_DIR

# What this process is: everything, traffic only, pages only, one of the jobs' pair, what calls
# hosted providers, or a command that prepares the database. It reads the secrets of that alone.
ROLES = ("all", "gateway", "web", "worker", "beat", "connector", "setup")
SLUICE_ROLE = env.choice("SLUICE_ROLE", "all", ROLES)
DEBUG = env.boolean("SLUICE_DEBUG", False)
# Forms whose text is YAML are the longest; nothing is written to disk before a view has seen it.
DATA_UPLOAD_MAX_MEMORY_SIZE = FILE_UPLOAD_MAX_MEMORY_SIZE = 3 << 20
# Each request for a page or `/api` takes a thread and a connection to PostgreSQL.
PAGES_AT_ONCE_MAX = env.integer("SLUICE_PAGES_AT_ONCE", 24, least=1, most=1_000)

INSTALLED_APPS = [
    "controlplane.core",
    "controlplane.telemetry",
    "controlplane.tenants",
    "controlplane.catalog",
    "controlplane.fleet",
    "controlplane.hosts",
    "controlplane.quotas",
    "controlplane.billing",
    "controlplane.batches",
    "controlplane.routing",
    "controlplane.changes",
    "controlplane.slos",
    "controlplane.insights",
    "controlplane.contents",
    "controlplane.connections",
    "controlplane.blueprint",
    "controlplane.composed",
    "frontend",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "axes",
    "csp",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "controlplane.core.audit.origin.OriginMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "frontend.people.signing.SessionsListed",
    "frontend.shared.too_many_changes.TooManyChangesPage",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "controlplane.urls"
ASGI_APPLICATION = "controlplane.asgi.application"
AUTH_USER_MODEL = "tenants.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "/sign-in"
LOGIN_REDIRECT_URL = "/"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": sorted((BASE_DIR / "frontend").glob("*/templates")),
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "controlplane.core.api.callers.OperatorAuthentication",
        "controlplane.tenants.adminkeys.auth.AdminKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_SCHEMA_CLASS": "controlplane.core.api.schema.ApiSchema",
}
# Requests to the API a minute: of one caller, from one address, and where strangers show secrets.
API_CALLER_PER_MIN = env.integer("SLUICE_API_CALLER_PER_MIN", 600, least=1, most=1_000_000)
API_ADDRESS_PER_MIN = env.integer("SLUICE_API_ADDRESS_PER_MIN", 3_000, least=1, most=1_000_000)
API_DOOR_PER_MIN = env.integer("SLUICE_API_DOOR_PER_MIN", 60, least=1, most=1_000_000)
SPECTACULAR_SETTINGS = {
    "TITLE": "Sluice control plane",
    "DESCRIPTION": "Everything that the pages do. Every change is audited.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/(api|v1)/",
    "PATH_CONVERTER_OVERRIDES": {
        prefix: {"type": "string", **(kind(prefix).extra_json_schema or {})}
        for prefix in PREFIXES.values()
    },
    # A test asks of every operation what it would only print.
    "DISABLE_ERRORS_AND_WARNINGS": True,
    "POSTPROCESSING_HOOKS": ["controlplane.core.api.schema.components_add"],
}

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
# Files are served straight from the packages, so that a first start need not collect anything;
# a folder filled by `collectstatic` may be named instead.
STATIC_ROOT = env.text("SLUICE_STATIC_ROOT") or None
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "frontend.finders.PlotlyFinder",
]
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG
# Names under vendor/ carry their version.
WHITENOISE_IMMUTABLE_FILE_TEST = r"/vendor/"

SHIPPED_MODEL_DIR = BASE_DIR / "inference" / "assets" / "sluice-5m"
