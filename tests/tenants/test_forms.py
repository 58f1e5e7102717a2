"""A form that is sent twice makes one key, also when both posts arrive at the same moment."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client

from controlplane.tenants.keys import AlreadyCreated, apikey_create
from controlplane.tenants.selectors import apikey_list
from tests.support.people import Cast, make_cast, signed_in

POSTS = 4


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def test_posts_of_one_form_at_once_make_one_key(cast: Cast) -> None:
    session = signed_in(cast.alice).cookies[settings.SESSION_COOKIE_NAME].value
    start = Barrier(POSTS)
    form = {
        "form_id": uuid.uuid4().hex,
        "label": "nightly",
        "project": str(cast.project.id),
        "lifetime": "30",
    }

    def post(_: int) -> tuple[int, int]:
        client = Client()
        client.cookies[settings.SESSION_COOKIE_NAME] = session
        try:
            start.wait()
            answer = client.post("/keys/create", form)
            secrets = re.findall(r"sk_sluice_\w{12}_\w{43}_\w{6}", answer.content.decode())
            return answer.status_code, len(secrets)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(POSTS) as pool:
        answers = sorted(pool.map(post, range(POSTS)))
    assert answers == [(200, 1), *[(302, 0)] * (POSTS - 1)]
    assert len(apikey_list(user=cast.alice)) == 1


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
