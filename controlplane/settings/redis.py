"""Redis: channel layer, Celery broker and shared rate counters. It holds no truth."""

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from django.core.exceptions import ImproperlyConfigured

from controlplane.embedded.layout import embedded_layout
from controlplane.embedded.redis_places import (
    CHECKED,
    SECURE_SENTINEL_SCHEME,
    SENTINEL_SCHEMES,
    in_url,
    sentinels_of,
)
from controlplane.settings import env
from controlplane.settings.paths import DATA_DIR
from controlplane.settings.secret_files import SECRETS_GIVEN, kept_secret, needed
from controlplane.settings.trust import CA_FILE

# An idle receive blocks for 5 s in Redis; the client's own limit of 5 s would end it as an error.
CHANNEL_SOCKET_SECONDS_MAX = 30
CELERY_TASK_SECONDS_MAX = 300

_url = env.url("REDIS_URL", ("redis", "rediss", "unix", *SENTINEL_SCHEMES))
if _url is not None and _url.scheme in ("rediss", SECURE_SENTINEL_SCHEME):
    # Of its three clients one checks no certificate unless it is told to.
    _tls = {**CHECKED, **({"ssl_ca_certs": CA_FILE} if CA_FILE else {})}
    _url = _url._replace(query=urlencode({**_tls, **dict(parse_qsl(_url.query))}))
EMBEDDED_REDIS = _url is None
_kept = EMBEDDED_REDIS or (SECRETS_GIVEN and _url is not None and _url.password is None)
_connects = needed("gateway", "web", "worker", "beat")
REDIS_PASSWORD = kept_secret("redis") if _kept and _connects else ""
if _url is None:
    _socket = embedded_layout(DATA_DIR).redis_socket
    REDIS_URL = f"unix://:{quote(REDIS_PASSWORD, safe='')}@{_socket}"
elif REDIS_PASSWORD:
    _user, _, _place = _url.netloc.rpartition("@")
    _login = f"{_user}:{quote(REDIS_PASSWORD, safe='')}@"
    REDIS_URL = _url._replace(netloc=_login + _place).geturl()
else:
    REDIS_URL = _url.geturl()

try:
    _named = sentinels_of(REDIS_URL)
except ValueError as _error:
    raise ImproperlyConfigured(f"REDIS_URL: {_error}.") from None
_host: dict[str, Any] = {"address": REDIS_URL}
# Celery names Redis' unix sockets its own way.
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
if _named is not None:
    _host = {"sentinels": _named.places, "master_name": _named.master, **_named.wanted}
    _host["sentinel_kwargs"] = _named.asked
    CELERY_BROKER_URL = ";".join(
        f"sentinel://{_named.authority}{in_url(host)}:{port}/{_named.login['db']}"
        for host, port in _named.places
    )
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "master_name": _named.master,
        "sentinel_kwargs": _named.asked,
    }
    CELERY_BROKER_USE_SSL = _named.tls or None
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {
            "hosts": [{**_host, "socket_timeout": CHANNEL_SOCKET_SECONDS_MAX}],
            "prefix": "sluice",
        },
    }
}

CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = CELERY_TASK_SECONDS_MAX
CELERY_TASK_ACKS_LATE = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "beat-schedule")
CELERY_TIMEZONE = "UTC"
# Beat gives its sign of life with each look, and looks that often.
CELERY_BEAT_SCHEDULER = "controlplane.core.jobs.heartbeat.LivingScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
