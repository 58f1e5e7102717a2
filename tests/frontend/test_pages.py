"""Pages through Django's client: who may see what, forms, headers; drawing is for browser tests."""

import re
import uuid

import pytest
from django.db import connection
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.billing.ledger.selectors import request_lines
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.kernel.ids import public_id
from controlplane.kernel.rules import PRIORITY_HIGH
from controlplane.tenants.keys import apikey_create
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.selectors import apikey_list
from controlplane.tenants.sign_in.accounts import setup_link_create, user_create
from tests.browser.history import write_history
from tests.support.people import Cast, make_cast, signed_in

PASSWORD = "correct-horse-battery-staple"
# The price and its model, with four around them: the scope of its organization.
PRICE_QUERIES = 6
HOUR_QUERIES = 15
PAGES = ("/", "/latency", "/cache", "/requests", "/keys", "/playground")
SEEN = [
    "/",
    "/latency",
    "/cache",
    "/requests",
    "/explore",
    "/conversations",
    "/slos",
    "/stages",
    "/insights",
]
SEEN += ["/catalog"]
BUILD = ["/keys", "/playground", "/batches", "/templates", "/developers"]
OPEN = ["/projects", "/limits"]
RUN = ["/members", "/admin-keys"]
MONEY = ["/spend", "/budgets", "/ledger", "/invoices", "/wallet", "/exports"]


@pytest.fixture
def cast(database: str) -> Cast:
    """Alice, Bob and Charlie."""
    return make_cast()


def _member(cast: Cast, role: Role) -> Client:
    user = user_create(actor=OPERATOR, email=f"{role.value}@example.org")
    membership_set(actor=cast.alice, organization=cast.acme, user=user, role=role)
    return signed_in(user)


@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_is_sent_to_sign_in(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_empty(cast: Cast, path: str) -> None:
    answer = signed_in(cast.alice).get(path)
    assert answer.status_code == 200
    assert "private" in answer["Cache-Control"]
    directives = answer["Content-Security-Policy"].split("; ")
    assert "script-src 'self'" in directives
    assert "default-src 'none'" in directives


def test_nothing_sent_yet_shows_what_to_paste(cast: Cast) -> None:
    text = signed_in(cast.alice).get("/").content.decode()
    assert "curl -N http://testserver/v1/chat/completions" in text
    # Charts of nothing are a sentence, not the room of a chart.
    assert text.count('class="plot none"') == text.count('<figure class="panel">') > 0
    past = "/cache?from=2026-01-02T03:00&to=2026-01-02T04:00"
    assert "No prompts from 2026-01-02 03:00" in signed_in(cast.alice).get(past).content.decode()


def test_a_user_without_organization_is_told_what_to_do(cast: Cast) -> None:
    dora = signed_in(user_create(actor=OPERATOR, email="dora@example.org"))
    for path in ("/", "/keys"):
        answer = dora.get(path)
        assert answer.status_code == 403
        assert "You are not a member of an organization yet" in answer.content.decode()
    assert dora.get("/account").status_code == 200


def test_staff_without_organization_run_the_installation(cast: Cast) -> None:
    stella = signed_in(cast.stella)
    assert stella.get("/").headers["Location"] == "/catalog"
    for path in ("/catalog", "/organizations", "/fleet", "/routing"):
        answer = stella.get(path)
        assert answer.status_code == 200
        assert ">Overview<" not in answer.content.decode()
    answer = stella.get("/requests")
    assert answer.status_code == 403
    assert '<a href="/fleet">Fleet</a>' in answer.content.decode()


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.VIEWER, SEEN + OPEN),
        (Role.FINANCE, [*SEEN, *OPEN, "/audit", *MONEY]),
        (Role.DEVELOPER, SEEN + BUILD + OPEN),
        (Role.ADMIN, [*SEEN, *BUILD, *OPEN, *RUN, "/audit", *MONEY]),
    ],
)
def test_a_role_opens_its_pages_and_no_others(cast: Cast, role: Role, allowed: list[str]) -> None:
    client = _member(cast, role)
    links = re.findall(r'<li><a href="([^"]+)"', client.get("/").content.decode())
    assert sorted(links) == sorted(allowed)
    every = [*SEEN, *BUILD, *OPEN, *RUN, "/audit", *MONEY]
    answers = {path: client.get(path).status_code for path in every}
    assert answers == {path: 200 if path in allowed else 403 for path in every}


def test_charlie_finds_nothing_of_acme(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="night owl").key
    requests = write_history(cast, key, "tiny")
    alice, charlie = signed_in(cast.alice), signed_in(cast.charlie)
    path = f"/requests/{requests[-1].hex}"
    assert alice.get(path).status_code == 200
    assert charlie.get(path).status_code == 404
    assert requests[-1].hex in alice.get("/requests?range=6h").content.decode()
    assert "No requests match" in charlie.get("/requests?range=6h").content.decode()
    assert charlie.post(f"/keys/{key.id.hex}/revoke").status_code == 404
    assert charlie.post("/playground/token", {"project": str(cast.project.id)}).status_code == 404
    cost = f"/playground/cost/{requests[-1].hex}"
    assert charlie.get(cost).json() == {"cost": None, "exact": None}
    assert key.label not in charlie.get("/keys").content.decode()


def test_another_organization_can_be_chosen_only_by_its_members(cast: Cast) -> None:
    membership_set(actor=cast.charlie, organization=cast.other, user=cast.bob, role=Role.VIEWER)
    bob, alice = signed_in(cast.bob), signed_in(cast.alice)
    assert bob.post("/organization", {"organization": str(cast.other.id)}).status_code == 302
    refused = bob.get("/keys")
    assert refused.status_code == 403
    told = " ".join(refused.content.decode().split())
    assert "This needs the role owner, admin or developer in Other." in told
    assert '<nav class="nav" aria-label="Pages">' in told
    assert alice.post("/organization", {"organization": str(cast.other.id)}).status_code == 404
    assert alice.post("/organization", {"organization": "x"}).status_code == 404


def _key_form(cast: Cast) -> dict[str, str]:
    return {
        "form_id": uuid.uuid4().hex,
        "label": "nightly",
        "project": str(cast.project.id),
        "lifetime": "30",
    }


def _priorities(page: str) -> list[str]:
    (choice,) = re.findall(r'<select id="key-priority".*?</select>', page, re.DOTALL)
    return re.findall(r'<option value="(\d+)"', choice)


def test_a_key_is_made_with_tags_and_a_priority_that_the_role_may_give(cast: Cast) -> None:
    alice, bob = signed_in(cast.alice), signed_in(cast.bob)
    form = {**_key_form(cast), "tags": "night, batch", "priority": str(PRIORITY_HIGH)}
    assert "sk_sluice_" in alice.post("/keys/create", form).content.decode()
    (key,) = apikey_list(user=cast.alice)
    assert (key.tags, key.priority) == (["batch", "night"], PRIORITY_HIGH)
    row = alice.get("/keys").content.decode()
    assert "high priority" in row and "tags batch, night" in row
    assert _priorities(row) == ["0", "1", "2"]
    assert re.search(r'<option value="1"\s+selected', row)
    # A developer is not offered to go before others, and cannot by asking.
    assert _priorities(bob.get("/keys").content.decode()) == ["0", "1"]
    asked = bob.post("/keys/create", {**form, "form_id": uuid.uuid4().hex})
    assert asked.status_code == 422
    wrong = alice.post("/keys/create", {**form, "form_id": uuid.uuid4().hex, "tags": "Loud"})
    assert wrong.status_code == 422 and "a-z" in wrong.content.decode()
    assert len(apikey_list(user=cast.alice)) == 1


def test_reloading_the_page_of_a_new_key_makes_no_other(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    drawn = set(re.findall(r'name="form_id" value="(\w{32})"', alice.get("/keys").content.decode()))
    form = {**_key_form(cast), "form_id": drawn.pop()}
    first = alice.post("/keys/create", form)
    again = alice.post("/keys/create", form, follow=True)
    assert "sk_sluice_" in first.content.decode()
    assert form["form_id"] not in first.content.decode()
    assert "This was already created" in again.content.decode()
    assert len(apikey_list(user=cast.alice)) == 1
    alice.post("/keys/create", _key_form(cast))
    assert len(apikey_list(user=cast.alice)) == 2


def test_a_key_is_shown_once_and_never_stored_by_the_browser(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    form = _key_form(cast)
    answer = alice.post("/keys/create", form)
    assert "no-store" in answer["Cache-Control"]
    (secret,) = re.findall(r"sk_sluice_\w{12}_\w{43}_\w{6}", answer.content.decode())
    assert secret not in alice.get("/keys").content.decode()
    (key,) = apikey_list(user=cast.alice)
    assert key.label == "nightly"
    assert key.expires_at is not None
    assert alice.get("/keys/create").status_code == 302


@pytest.mark.parametrize(
    "change", [{"label": ""}, {"label": "x" * 101}, {"project": str(uuid.uuid4())},
               {"project": "x"}, {"lifetime": "31"}, {"models": "none-such"}, {"form_id": "x"}],
)  # fmt: skip
def test_a_wrong_key_form_makes_no_key(cast: Cast, change: dict[str, str]) -> None:
    form = {**_key_form(cast), **change}
    answer = signed_in(cast.alice).post("/keys/create", form)
    assert answer.status_code == 422
    assert "errorlist" in answer.content.decode()
    assert apikey_list(user=cast.alice) == []


def test_a_key_is_revoked_once(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="night owl").key
    bob = signed_in(cast.bob)
    for words in ("is revoked", "was already revoked"):
        answer = bob.post(f"/keys/{key.id.hex}/revoke", {"reason": "left"}, follow=True)
        assert words in answer.content.decode()
    assert apikey_list(user=cast.alice)[0].revoked_reason == "left"


def test_a_playground_token_is_for_ten_minutes_and_not_cached(cast: Cast) -> None:
    answer = signed_in(cast.bob).post("/playground/token", {"project": str(cast.project.id)})
    assert answer.json()["lifetime_s"] == 600
    assert "no-store" in answer["Cache-Control"]
    assert signed_in(cast.bob).post("/playground/token", {"project": "x"}).status_code == 400


def test_a_one_time_link_sets_the_password_once(cast: Cast) -> None:
    path = f"/setup/{setup_link_create(actor=OPERATOR, user=cast.bob)}"
    client = Client()
    opened = client.get(path)
    assert opened["Referrer-Policy"] == "same-origin"
    assert "no-store" in opened["Cache-Control"]
    short = client.post(path, {"password": "short", "again": "short"})
    assert "too short" in short.content.decode()
    differing = client.post(path, {"password": PASSWORD, "again": PASSWORD + "x"})
    assert "The two passwords differ." in differing.content.decode()
    done = client.post(path, {"password": PASSWORD, "again": PASSWORD})
    assert done["Location"] == "/"
    assert client.get("/").status_code == 200
    assert Client().get(path).status_code == 410
    assert Client().get("/setup/none-such").status_code == 410
    assert _sign_in(Client(), PASSWORD)["Location"] == "/"


def _sign_in(client: Client, password: str) -> HttpResponseBase:
    form = {"username": "bob@example.org", "password": password}
    answer: HttpResponseBase = client.post("/sign-in", form, REMOTE_ADDR="10.0.0.9")
    return answer


def test_five_wrong_passwords_pause_the_account_from_that_address(cast: Cast) -> None:
    answers = [_sign_in(Client(), "wrong").status_code for _ in range(5)]
    assert answers[:4] == [200] * 4
    assert answers[4] == 429
    locked = _sign_in(Client(), PASSWORD)
    assert isinstance(locked, HttpResponse)
    assert "Sign-in is paused" in locked.content.decode()


def test_there_is_no_sign_up(client: Client) -> None:
    for path in ("/sign-up", "/signup", "/register", "/accounts/signup/"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "Page not found" in answer.content.decode()


def test_a_form_without_its_token_changes_nothing(cast: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(cast.alice, backend="django.contrib.auth.backends.ModelBackend")
    answer = client.post("/keys/create", {"label": "x", "project": str(cast.project.id)})
    assert answer.status_code == 403
    assert "This form is no longer valid" in answer.content.decode()
    assert apikey_list(user=cast.alice) == []


@pytest.mark.parametrize(
    ("query", "told"),
    [("range=x", {"/", "/requests"}), ("project=x&model=%00", {"/", "/requests"}),
     ("min_ms=x&key=1", {"/requests"}), ("before=x&after=y", {"/requests"}),
     ("percentile=98", {"/"}), ("from=1960-01-01&to=1960-01-02", set())],
)  # fmt: skip
def test_what_an_address_says_in_vain_is_told(cast: Cast, query: str, told: set[str]) -> None:
    alice = signed_in(cast.alice)
    answers = {path: alice.get(f"{path}?{query}") for path in ("/", "/requests")}
    assert {answer.status_code for answer in answers.values()} == {200}
    warned = {path for path, one in answers.items() if "message warn" in one.content.decode()}
    assert warned == told


def test_an_unknown_request_or_chart_is_not_found(cast: Cast) -> None:
    alice = signed_in(cast.alice)
    assert alice.get(f"/requests/{uuid.uuid4().hex}").status_code == 404
    assert alice.get("/overview/none-such.csv").status_code == 404


def test_the_overview_is_of_the_chosen_model_and_project(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="night owl").key
    everything = str(len(write_history(cast, key, "tiny")))
    alice, stranger = signed_in(cast.alice), uuid.uuid4().hex
    project = public_id("proj", cast.project.id)

    def counted(cell: str, query: str) -> str:
        text = alice.get(f"/?range=6h&{query}").content.decode()
        found: list[str] = re.findall(rf'data-cell="{cell}" title="(\d+)"', text)
        return found[0]

    def lines(query: str) -> int:
        return len(alice.get(f"/overview/ttft.csv?range=6h&{query}").content.splitlines())

    assert counted("requests", "model=tiny") == everything
    assert counted("requests", f"project={project}") == everything
    assert counted("requests", "model=large") == counted("requests", f"project={stranger}") == "0"
    assert counted("s1_admission.n", f"project={stranger}") == everything
    assert counted("s1_admission.n", "model=large") == "0"
    assert lines(f"model=tiny&project={project}") > 10
    assert lines("model=large") == lines(f"project={stranger}") == 1
    page = alice.get(f"/?range=6h&model=tiny&project={project}").content.decode()
    assert f'data-range="range=6h&amp;model=tiny&amp;project={project}"' in page
    assert f"/requests?range=6h&amp;model=tiny&amp;project={project}&amp;status=499" in page
    assert f'<option value="{project}" selected>web</option>' in page


def test_paging_by_key_sees_every_request_once(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="night owl").key
    written = {public_id("req", one) for one in write_history(cast, key, "tiny")}
    alice, seen, path = signed_in(cast.alice), [], "/requests?range=6h"
    for _ in range(len(written)):
        text = alice.get(path).content.decode()
        seen += re.findall(r"/requests/(req_[0-9a-f]{32})\?", text)
        older = re.search(r'href="(/requests\?[^"]*before=req_[0-9a-f]{32})"', text)
        if older is None:
            break
        path = older[1].replace("&amp;", "&")
    assert len(seen) == len(written)
    assert set(seen) == written


def test_ledger_lines_name_who_pays_and_ask_nothing_for_each_line(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="night owl").key
    by_lines: dict[int, uuid.UUID] = {}
    for request in write_history(cast, key, "tiny"):
        by_lines[len(request_lines(organizations=[cast.acme.id], request=request))] = request
    alice, asked = signed_in(cast.alice), set()
    alice.get("/account")
    for count, request in by_lines.items():
        with CaptureQueriesContext(connection) as queries:
            text = alice.get(f"/requests/{request.hex}?range=6h").content.decode()
        asked.add(len(queries))
        table = text[text.index("ledger-title") :]
        assert table.count("<td data-label") == 6 * count
        assert ("Receivable · Acme / web" in table) == ("Revenue · tiny" in table) == (count > 0)
        assert (f'<dd class="mono">receivable:org_{cast.acme.id.hex}</dd>' in table) == (count > 0)
    assert len(by_lines) > 1
    # The price that was charged is looked up once, with its model, however many lines there are;
    # and a request that was served is compared with its hour.
    assert max(asked) - min(asked) <= PRICE_QUERIES + HOUR_QUERIES


def test_a_charts_figures_come_as_csv(cast: Cast) -> None:
    key = apikey_create(actor=cast.alice, project=cast.project, label="night owl").key
    write_history(cast, key, "tiny")
    answer = signed_in(cast.alice).get("/overview/ttft.csv?range=6h")
    lines = answer.content.decode().splitlines()
    assert lines[0] == '"Time, UTC","p50, ms","p95, ms","p99, ms"'
    assert len(lines) > 10
