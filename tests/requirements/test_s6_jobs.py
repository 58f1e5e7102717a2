"""S6: of web, worker and beat no log has a secret, and the two that listen on nothing tell truly
whether they live.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
from celery import Celery
from django.conf import settings
from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.jobs.heartbeat import is_alive, worker_name
from controlplane.core.jobs.lives import BEAT, WORKER
from controlplane.core.permissions import organization_scope
from controlplane.embedded import stack
from controlplane.slos.models import EVERYONE, Alert, Delivery
from controlplane.slos.services import channel_add, objective_create
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.sign_in.accounts import setup_link_create
from tests.support.loopback import HOST, reserve_port
from tests.support.objectives import Receiver, draft, receiver
from tests.support.people import Cast, make_cast
from tests.support.product import Child, fresh_data
from tests.support.servers import Servers, redis_door
from tests.support.waiting import WAIT_S_MAX, wait_for

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

PROMPT, QUERY, HEADER = "umbrella-orchard-prompt", "umbrella-orchard-query", "umbrella-orchard-head"
PASSWORD, HOOK = "umbrella-orchard-password", "umbrella-orchard-hook"
LOUD = {"SLUICE_LOG_LEVEL": "DEBUG", "SLUICE_LOG_FORMAT": "json", "SLUICE_WEBHOOKS_PRIVATE": "1"}
# Instead of the product's own arguments: all is told, and alerts are each second.
TOLD = {"warning": "debug", "controlplane.celery": "tests.support.hurried"}
NAMES = {WORKER: worker_name(), BEAT: ""}


class Jobs:
    """The three processes, with everything in their logs that they can tell."""

    def __init__(self, folder: Path) -> None:
        self.port = reserve_port()
        parts = (
            stack.gateway(HOST, self.port, role="web", name="web"),
            stack.worker(),
            stack.beat(),
        )
        self.children = {
            part.name: Child(
                part.name,
                [TOLD.get(word, word) for word in part.argv],
                {**part.env, **LOUD},
                folder / f"{part.name}.log",
            )
            for part in parts
        }

    def ready(self) -> bool:
        """Whether web serves, and worker and beat have given a sign of life."""
        if not all(is_alive(*each) for each in NAMES.items()):
            return False
        try:
            with self.client() as client:
                return client.get("/readyz").status_code == 200
        except httpx2.HTTPError:
            return False

    def client(self, **more: Any) -> httpx2.Client:
        """A client of pages and API that waits as long as a busy machine may take."""
        url = f"http://{HOST}:{self.port}"
        return httpx2.Client(base_url=url, trust_env=False, timeout=WAIT_S_MAX, **more)


@pytest.fixture
def cast(servers: Servers) -> Iterator[Cast]:
    with fresh_data(servers):
        yield make_cast()


@pytest.fixture
def jobs(cast: Cast) -> Iterator[Jobs]:
    with tempfile.TemporaryDirectory(prefix="sluice-jobs-") as folder:
        jobs = Jobs(Path(folder))
        try:
            for child in jobs.children.values():
                child.start()
            wait_for(jobs.ready, "readiness of web, worker and beat")
            yield jobs
        finally:
            for child in jobs.children.values():
                child.signal(signal.SIGCONT)
                child.begin_stop()
            for child in jobs.children.values():
                child.stop()
                print(f"--- {child.name}\n{child.log[-6_000:]}")


def probe(process: str) -> int:
    """The exit status that a supervisor gets."""
    command = [sys.executable, "manage.py", "sluice", "probe", process]
    return subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True).returncode


def test_logs_have_no_secret_and_probes_tell_the_truth(
    jobs: Jobs, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WEBHOOKS_PRIVATE", True)
    key = apikey_create(actor=cast.alice, project=cast.project, label="planted").secret
    token = setup_link_create(actor=OPERATOR, user=cast.alice)
    with receiver() as hooks:
        _tell_an_alert(hooks)
        _ask_pages(jobs, token)
        _ask_the_api(jobs, cast, key)
        wait_for(lambda: hooks.received, "the alert's message by the worker")
    of_ours = (settings.OPERATOR_TOKEN, settings.METRICS_TOKEN, settings.REDIS_PASSWORD)
    secrets = [PROMPT, QUERY, HEADER, PASSWORD, HOOK, key, token, *of_ours]
    wait_for(lambda: "alert_not_told" in jobs.children[WORKER].log, "the worker's line of it")
    for name, child in jobs.children.items():
        assert "DEBUG" in child.log.upper(), name
        assert [secret for secret in secrets if secret in child.log] == [], name
    _check_probes(jobs)


def _tell_an_alert(hooks: Receiver) -> None:
    """An alert fires; whoever is told of it answers that something is wrong."""
    hooks.statuses = [500]
    address = f"{hooks.url}&key={HOOK}"
    channel = channel_add(actor=OPERATOR, organization=EVERYONE, kind="webhook", address=address)
    objective = objective_create(actor=OPERATOR, organization=EVERYONE, draft=draft())
    with organization_scope([EVERYONE]):
        alert = Alert.objects.create(
            organization=EVERYONE, objective=objective, severity="page", rule="page_quick"
        )
        Delivery.objects.create(
            organization=EVERYONE,
            alert=alert,
            channel=channel,
            event="firing",
            kind="webhook",
            due_at=timezone.now(),
        )


def _ask_pages(jobs: Jobs, token: str) -> None:
    """A password is set, mistyped and used; links are wrong, and end in an error."""
    with jobs.client(follow_redirects=True) as browser:
        setup = f"/setup/{token}"
        form = _form(browser, setup) | {"password": PASSWORD, "again": PASSWORD}
        assert "/setup/" not in str(browser.post(setup, data=form).url)
    with jobs.client(follow_redirects=True) as browser:
        for password in (f"{PASSWORD}-mistyped", PASSWORD):
            form = _form(browser, "/sign-in")
            form |= {"username": "alice@example.org", "password": password}
            answer = browser.post(f"/sign-in?next=/&key={QUERY}", data=form)
        assert answer.url.path == "/"
        assert browser.get(f"/nothing?key={QUERY}", headers={"x-key": HEADER}).status_code == 404


def _form(browser: httpx2.Client, path: str) -> dict[str, str]:
    """The hidden and empty fields of a page's form."""
    page = browser.get(path).text
    fields = re.findall(r'<input[^>]*name="([^"]+)"(?:[^>]*value="([^"]*)")?', page)
    return dict(fields)


def _ask_the_api(jobs: Jobs, cast: Cast, key: str) -> None:
    """A prompt is kept, tried and broken; keys are sent where they do not belong."""
    operator = {"authorization": f"Bearer {settings.OPERATOR_TOKEN}", "x-key": HEADER}
    templates = f"/api/catalog/templates/{cast.acme.id}"
    body = {"messages": [{"role": "user", "content": PROMPT}]}
    with jobs.client(headers=operator) as api:
        assert api.post(templates, json={"name": "planted"}).status_code == 201
        made = api.post(f"{templates}/planted/versions", json={"body": body})
        assert made.status_code == 201
        assert api.post(f"{templates}/planted/versions/1/dry-run", json={}).status_code == 200
        wrong = api.post(f"{templates}/planted/versions", json={"body": {"x": PROMPT}})
        assert wrong.status_code == 400
        assert api.post(templates, content=f'{{"name": {PROMPT}').status_code == 400
        stranger = {"authorization": f"Bearer {key}"}
        assert api.get(f"{templates}?key={key}", headers=stranger).status_code == 401
        assert api.get("/metrics", headers=stranger).status_code == 401
        token = {"authorization": f"Bearer {settings.METRICS_TOKEN}"}
        assert api.get("/metrics", headers=token).status_code == 200


def _check_probes(jobs: Jobs) -> None:
    """While a process stands still its sign of life goes by, and comes back with it."""
    for process in (WORKER, BEAT):
        assert probe(process) == 0, process
        jobs.children[process].signal(signal.SIGSTOP)
    with redis_door() as door:
        # As after a minute.
        door.delete(*door.keys("sluice:alive:*"))
    for process in (WORKER, BEAT):
        assert probe(process) == 1, process
        jobs.children[process].signal(signal.SIGCONT)
    wait_for(lambda: all(is_alive(*each) for each in NAMES.items()), "signs of life")


def test_a_job_that_hangs_is_ended_and_others_go_on(
    servers: Servers, redis_url: str, tmp_path: Path
) -> None:
    part = stack.worker()
    argv = [
        "tests.support.hanging" if word == "controlplane.celery" else word for word in part.argv
    ]
    worker = Child("worker", argv, part.env, tmp_path / "worker.log")
    assert settings.CELERY_TASK_TIME_LIMIT == 300
    app = Celery(broker=settings.CELERY_BROKER_URL)
    with fresh_data(servers), redis.Redis.from_url(redis_url) as store:
        worker.start()
        try:
            for _ in range(2 * int(stack.WORKERS)):
                app.send_task("tests.hang")
            app.send_task("tests.run")
            wait_for(lambda: store.get("tests:ran") == b"1", "the job behind those that hang")
            wait_for(lambda: "TimeLimitExceeded" in worker.log, "the end of those that hang")
        finally:
            worker.stop()
            print(worker.log[-6_000:])
