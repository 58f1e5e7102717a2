"""A form that is sent twice makes one secret, also when both posts arrive at the same moment."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client

from controlplane.core.jobs.once import AlreadyCreated
from controlplane.core.permissions import Role
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import apikey_list
from tests.support.people import Cast, make_cast, signed_in

POSTS = 4


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


@pytest.mark.parametrize(
    ("page", "action", "prefix"),
    [
        ("/keys", "/keys/create", "sk"),
        ("/admin-keys", "/admin-keys/create", "admin"),
        ("/fleet", "/fleet/tokens", "enrol"),
    ],
)
def test_posts_of_one_form_at_once_make_one_secret(
    cast: Cast, page: str, action: str, prefix: str
) -> None:
    membership_set(actor=cast.alice, organization=cast.acme, user=cast.stella, role=Role.OWNER)
    client = signed_in(cast.stella)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    start = Barrier(POSTS)
    drawn = client.get(page).content.decode()
    (form_id,) = set(re.findall(r'name="form_id" value="(\w{32})"', drawn))
    form = {
        "form_id": form_id,
        "label": "nightly",
        "project": str(cast.project.id),
        "lifetime": "30",
        "actions": ["key.view"],
        "name": "n1",
        "pool": "default",
        "life_hours": "1",
    }

    def post(_: int) -> tuple[int, int]:
        client = Client()
        client.cookies[settings.SESSION_COOKIE_NAME] = session
        try:
            start.wait()
            answer = client.post(action, form)
            shown = rf"\b{prefix}_sluice_\w{{12}}_\w{{43}}_\w{{6}}"
            secrets = set(re.findall(shown, answer.content.decode()))
            return answer.status_code, len(secrets)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(POSTS) as pool:
        answers = sorted(pool.map(post, range(POSTS)))
    assert answers == [(200, 1), *[(302, 0)] * (POSTS - 1)]
    told = client.post(action, form, follow=True).content.decode()
    assert "was already created" in told and form_id not in told
    missing = client.post(action, {**form, "form_id": ""})
    assert missing.status_code == 422 and "has expired" in missing.content.decode()


def test_a_form_is_its_users_own(cast: Cast) -> None:
    """Nobody can keep another's form from working by guessing its id."""
    form = uuid.uuid4()
    for actor in (cast.alice, cast.bob):
        apikey_create(actor=actor, project=cast.project, label="x", form=form)
    with pytest.raises(AlreadyCreated):
        apikey_create(actor=cast.bob, project=cast.project, label="x", form=form)
    for _ in range(2):
        apikey_create(actor=cast.bob, project=cast.project, label="by no form")
    assert len(apikey_list(user=cast.alice)) == 4
