"""The Routing pages through Django's client: who may, what they say, what their buttons do."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.permissions import Role
from controlplane.core.versions.models import State
from controlplane.routing.selectors import ruleset_get, ruleset_in_force, ruleset_on_trial
from controlplane.routing.services import RuleVersions
from controlplane.tenants.people.services import membership_set
from controlplane.tenants.services import organization_create
from tests.support.forms import fields_of
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in
from tests.support.rules import generates, make_models, publish
from tests.support.traffic import asked, routed, store

TO_SMALL = generates("all", "small")
TO_LARGE = generates("all", "large")
PAGES = ("/routing", "/routing/1", "/routing/1/dry-run")
BUTTONS = (
    "draft", "rollback", "1/save", "1/publish", "1/canary", "1/promote", "1/stop", "1/discard",
)  # fmt: skip


@pytest.fixture
def cast(database: str) -> Cast:
    """People, of whom Stella runs the installation and sees Acme; two models."""
    make_models("small", "large")
    made = make_cast()
    membership_set(actor=made.alice, organization=made.acme, user=made.stella, role=Role.VIEWER)
    return made


@pytest.fixture
def stella(cast: Cast) -> Client:
    """Staff, signed in."""
    return signed_in(cast.stella)


def draft(*rules: dict[str, Any]) -> int:
    return RuleVersions(OPERATOR).draft_create(list(rules)).version


def read(client: Client, path: str, status: int = 200) -> str:
    """A page's words, without its tags."""
    answer = client.get(path)
    assert answer.status_code == status
    return plain(answer.content)


def plain(content: bytes) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", content.decode())).split())


def state(version: int) -> str:
    return ruleset_get(actor=OPERATOR, version=version).state


def test_only_staff_see_the_pages_and_press_their_buttons(cast: Cast, stella: Client) -> None:
    draft(TO_SMALL)
    alice = signed_in(cast.alice)
    for path in PAGES:
        assert Client().get(path)["Location"].startswith("/sign-in")
        assert alice.get(path).status_code == 403
        assert stella.get(path).status_code == 200
    for button in BUTTONS:
        assert alice.post(f"/routing/{button}").status_code == 403
        assert stella.get(f"/routing/{button}").status_code == 405
    assert state(1) == State.DRAFT
    assert 'href="/routing"' in stella.get("/").content.decode()
    assert 'href="/routing"' not in alice.get("/").content.decode()
    assert stella.get("/routing/9").status_code == 404


def test_without_any_version_the_page_says_what_to_do(stella: Client) -> None:
    text = read(stella, "/routing")
    assert "No rules: every request goes to the model it names" in text
    assert "No version yet" in text
    assert "Roll back" not in text


def test_rules_are_told_in_words(cast: Cast, stella: Client) -> None:
    steps = [
        {"targets": [{"model": "large", "weight": 3}, {"model": "small", "weight": 1}],
         "queue_s": 5},
        {"targets": [{"model": "small", "pool": "default"}], "queue_s": 0},
    ]  # fmt: skip
    match = {
        "aliases": ["chat"], "tasks": ["generate"], "organizations": [cast.acme.id.hex],
        "projects": [cast.project.id.hex], "tags": ["x", "y"], "priorities": [2],
        "prompt_tokens_min": 8_000,
    }  # fmt: skip
    publish({"name": "long", "match": match, "steps": steps, "deadline_s": 60, "degrade_order": 3})
    text = read(stella, "/routing")
    assert (
        "model = chat and task = generate and organization = Acme and project ="
        " Acme · web and key tag is one of x, y and priority = high and prompt ≥ 8,000 tokens"
    ) in text
    assert "75 % large or 25 % small, waits up to 5 s" in text
    assert "else small in default, no waiting" in text
    assert "otherwise reject" in text
    assert "deadline 60 s degrade order 3" in text


def test_tenants_are_typed_and_shown_by_name_and_kept_by_id(cast: Cast, stella: Client) -> None:
    draft(TO_SMALL)
    at, acme = "rule-0", f"org_{cast.acme.id.hex}"

    def press(act: str, **fields: str) -> tuple[dict[str, str], str]:
        shown = stella.post("/routing/1/edit", fields | {"act": act}).content
        form = shown.decode().partition('<form id="draft-form"')[2].partition("</form>")[0]
        return {name: str(value) for name, value in fields_of(form).items()}, plain(shown)

    fields, _ = press("open-0", revision="1", **{f"{at}-json": json.dumps(TO_SMALL)})
    typed = {f"{at}-organizations": "Acme, Zeta", f"{at}-projects": "Acme · web"}
    _, told = press("check", **fields | typed)
    assert "Unknown organization 'Zeta'" in told and "Unknown project" not in told
    for named in ("Acme", acme):
        typed[f"{at}-organizations"] = named
        fields["revision"] = str(ruleset_get(actor=OPERATOR, version=1).revision)
        assert stella.post("/routing/1/save", fields | typed)["Location"] == "/routing/1"
        [rule] = ruleset_get(actor=OPERATOR, version=1).rules
        assert rule["match"]["organizations"] == [acme]
        assert rule["match"]["projects"] == [f"proj_{cast.project.id.hex}"]
    assert press("check", **fields | typed)[0].items() >= {
        f"{at}-organizations": "Acme", f"{at}-projects": "Acme · web"
    }.items()  # fmt: skip
    # Of two with one name only the id says which is meant.
    organization_create(actor=OPERATOR, name="Acme", owner=cast.bob)
    assert press("check", **fields | typed)[0][f"{at}-organizations"] == acme


def test_a_draft_is_a_copy_of_what_is_in_force_or_of_a_chosen_version(stella: Client) -> None:
    publish(TO_SMALL)
    publish(TO_LARGE)
    assert stella.post("/routing/draft")["Location"] == "/routing/3"
    assert ruleset_get(actor=OPERATOR, version=3).rules == [TO_LARGE]
    assert stella.post("/routing/draft", {"version": "1"})["Location"] == "/routing/4"
    assert ruleset_get(actor=OPERATOR, version=4).rules == [TO_SMALL]
    assert stella.post("/routing/draft", {"version": "99"}).status_code == 404


def test_a_draft_is_saved_and_its_errors_stand_at_their_fields(stella: Client) -> None:
    draft(TO_SMALL)
    form = {"rules": json.dumps([TO_LARGE]), "note": "to large", "revision": "1"}
    assert stella.post("/routing/1/save", form)["Location"] == "/routing/1"
    saved = ruleset_get(actor=OPERATOR, version=1)
    assert (saved.rules, saved.note, saved.revision) == ([TO_LARGE], "to large", 2)
    for typed, told in (
        ('[{"name": "a"}]', "rules[0].steps : Missing."),
        ("[", "Invalid JSON"),
        ("[" * 20_000, "Invalid JSON"),
        ("", "Invalid JSON"),
    ):
        answer = stella.post("/routing/1/save", {**form, "rules": typed, "revision": "2"})
        assert answer.status_code == 422
        assert told in plain(answer.content)
        assert html.escape(typed) in answer.content.decode()
    late = stella.post("/routing/1/save", form)
    assert late.status_code == 409
    assert "This draft was changed by someone else" in plain(late.content)
    assert ruleset_get(actor=OPERATOR, version=1).revision == 2


def test_the_check_of_a_draft_is_on_its_page(stella: Client) -> None:
    draft(TO_SMALL, generates("b", "none-such"))
    text = read(stella, "/routing/1")
    assert "error rules[1].steps[0].targets[0].model : Model 'none-such' is not served." in text
    assert "warning rules[1] : Never applies" in text
    refused = stella.post("/routing/1/publish", {"revision": "1"})
    assert refused.status_code == 422
    assert "Could not save" in plain(refused.content)
    draft(TO_SMALL)
    text = read(stella, "/routing/2")
    assert "warning rules[0].steps[0].targets[0] : Nothing can serve this target" in text
    assert "The saved draft is valid" in text


def test_a_draft_full_of_slips_can_be_looked_at(stella: Client) -> None:
    version = draft(
        {"name": "a", "steps": []},
        {"name": "b", "steps": [{"targets": []}], "match": {"projects": ["z" * 32, "x"]}},
        {"name": "c", "steps": [{"targets": [{"model": "m", "weight": 0}] * 2}], "priority": 9},
    )
    text = read(stella, f"/routing/{version}")
    assert "priority 9" in text and "nowhere" in text
    assert f"Unknown project '{'z' * 32}'" in text
    tried = read(stella, f"/routing/{version}/dry-run", 422)
    assert "rules[0].steps : A step and a target are needed." in tried


def test_publish_and_roll_back(stella: Client) -> None:
    first, second = draft(TO_SMALL), draft(TO_LARGE)
    done = stella.post(f"/routing/{first}/publish", {"revision": "1"}, follow=True)
    assert "Version 1 is live; gateways apply it" in plain(done.content)
    assert "Roll back to no rules" in read(stella, "/routing")
    late = stella.post(f"/routing/{second}/publish", {"revision": "1"})
    assert late.status_code == 409
    assert "was published after this draft was created" in plain(late.content)
    form = {"rules": json.dumps([TO_LARGE]), "revision": "1", "rebase": "1"}
    stella.post(f"/routing/{second}/save", form)
    stella.post(f"/routing/{second}/publish", {"revision": "2"})
    assert "Roll back to version 1" in read(stella, "/routing")
    back = stella.post("/routing/rollback", {"version": "1"}, follow=True)
    assert "Version 3 is live: a copy of version 1" in plain(back.content)
    third = draft()
    none = stella.post("/routing/rollback", {"version": str(third)}, follow=True)
    assert "There is no earlier version" in plain(none.content)
    again = stella.post("/routing/rollback", {"version": "2"}, follow=True)
    assert "Version 5 is live: a copy of version 2" in plain(again.content)
    for nothing in ({}, {"version": "²"}, {"version": "99"}):
        assert stella.post("/routing/rollback", nothing).status_code == 404


def test_a_rollback_sent_twice_goes_back_to_what_its_button_named(stella: Client) -> None:
    for target in ("small", "large", "small"):
        publish(generates("all", target))
    button = stella.get("/routing").content.decode().split('<dialog id="rollback"')[1]
    (named,) = re.findall(r'name="version" value="(\d+)"', button)
    for _ in range(2):
        stella.post("/routing/rollback", {"version": named})
    current = ruleset_in_force()
    assert current is not None and current.copy_of is not None
    assert (current.version, current.copy_of.version) == (5, 2)


def test_a_draft_compared_with_what_was_in_force_until_just_now_is_compared_again(
    stella: Client,
) -> None:
    late = draft(TO_LARGE)
    publish(TO_SMALL)
    form = stella.get(f"/routing/{late}").content.decode()
    (seen,) = re.findall(r'name="rebase" value="(\d+)"', form)
    publish(TO_LARGE)
    typed = {"rules": json.dumps([TO_LARGE]), "revision": "1", "rebase": seen}
    refused = stella.post(f"/routing/{late}/save", typed)
    assert refused.status_code == 409
    assert "Version 3 is live now: compare the draft with it." in plain(refused.content)
    assert ruleset_get(actor=OPERATOR, version=late).revision == 1


def test_a_canary_is_started_shown_stopped_and_promoted(cast: Cast, stella: Client) -> None:
    publish(generates("chat", "small", aliases=["chat"]))
    version = draft(generates("chat", "large", aliases=["chat"]))
    for share in ("0", "100", "x", ""):
        wrong = stella.post(f"/routing/{version}/canary", {"revision": "1", "share": share})
        assert wrong.status_code == 422
    form = {"revision": "1", "share": "12.5", "stops_itself": "1"}
    stella.post(f"/routing/{version}/canary", form)
    canary = ruleset_on_trial()
    assert canary is not None and (canary.share_permille, canary.stops_itself) == (125, True)
    rows("UPDATE rule_sets SET canary_at = now() - interval '1 minute' WHERE state = 'canary'")
    store([routed(cast, "chat", "chat@1", draw=0.5), routed(cast, "chat", "chat@2", draw=0.1)])
    text = read(stella, "/routing")
    assert "Canary: version 2 not enough data yet" in text
    assert "12.5 % of all requests follow" in text
    assert "Server errors 0 % 0 % 1 / 1 not enough data yet" in text
    assert "promote or stop it first" in read(stella, f"/routing/{draft(TO_SMALL)}")
    stopped = stella.post(f"/routing/{version}/stop", {"reason": "slow"}, follow=True)
    assert "The canary of version 2 has ended" in plain(stopped.content)
    third = ruleset_get(actor=OPERATOR, version=draft(TO_LARGE))
    RuleVersions(OPERATOR).canary_start(third, share_permille=10)
    stella.post(f"/routing/{third.version}/promote")
    current = ruleset_in_force()
    assert current is not None and current.version == third.version


def test_a_draft_is_given_up(stella: Client) -> None:
    version = draft(TO_SMALL)
    stella.post(f"/routing/{version}/discard")
    assert state(version) == State.RETIRED
    assert "Save draft" not in read(stella, f"/routing/{version}")


def test_a_dry_run_is_read_on_its_page(cast: Cast, stella: Client) -> None:
    assert "No data in this range" in read(stella, f"/routing/{draft()}/dry-run")
    store([asked(cast, "small") for _ in range(3)] + [asked(cast, "large")])
    text = read(stella, f"/routing/{draft(TO_LARGE)}/dry-run?hours=1")
    assert "Judged 4" in text
    assert "100 % of the judged requests (4) would first go to large in default" in text
    assert "Moved to another model or pool 3 (75.0 %)" in text
    assert "small in default → large in default 3 3 100 %" in text
    assert "Acme 4 3 75.0 %" in text
    assert "Limitations" in text
    odd = read(stella, "/routing/1/dry-run?hours=x")
    assert "“x” is not a number of hours" in odd
    same = read(stella, f"/routing/{draft()}/dry-run?hours=1")
    assert "No request would have been treated differently" in same


def test_a_draft_says_what_it_would_change(stella: Client) -> None:
    publish(
        generates("a", "small", aliases=["a"]), generates("b", "small"), generates("c", "small")
    )
    changed = generates("a", "large", aliases=["a", "x"])
    new = [generates("c", "small"), changed, generates("d", "large", tags=["t"])]
    text = read(stella, f"/routing/{draft(*new)}")
    assert text.count("Changes from version 1") == 1
    assert "changed a model: a → a, x step 1: small, waits up to 30 s → large" in text
    assert "moved c from rule 3 to 1" in text or "moved a from rule 1 to 2" in text
    assert "added d as rule 3 task: generate key tag: t" in text
    assert "removed b was rule 2" in text
    assert "--- version 1 +++ version 2" in text
    dialog = stella.get("/routing/2").content.decode().split('<dialog id="publish"')[1]
    assert "Differences as JSON" in dialog.split("</dialog>")[0]
    renamed = {**TO_SMALL, "name": "z"}
    publish(TO_SMALL)
    assert "renamed z was all" in read(stella, f"/routing/{draft(renamed)}")
    assert "No rule differs from version 3" in read(stella, f"/routing/{draft(TO_SMALL)}")


def test_a_draft_is_edited_by_its_form_and_as_json_alike(stella: Client) -> None:
    draft(TO_SMALL)
    page = stella.get("/routing/1").content.decode()
    form = fields_of(page.split('<form id="draft-form"')[1].split("</form>")[0])

    def act(name: str) -> str:
        answer = stella.post("/routing/1/edit", {**form.dict(), "act": name})
        assert answer.status_code == 200
        return answer.content.decode().split('<form id="draft-form"')[1].split("</form>")[0]

    form = fields_of(act("open-0"))
    form["rule-0-steps-0-targets-0-model"] = "large"
    assert "Not saved yet" in act("check")
    as_text = fields_of(act("json"))
    assert json.loads(str(as_text["rules"])) == [TO_LARGE]
    form = as_text
    form = fields_of(act("form"))
    assert stella.post("/routing/1/save", form.dict())["Location"] == "/routing/1"
    assert ruleset_get(actor=OPERATOR, version=1).rules == [TO_LARGE]
    form = fields_of(act("open-0"))
    form["rule-0-steps-0-queue_s"] = "soon"
    refused = stella.post("/routing/1/save", {**form.dict(), "revision": "2"})
    assert refused.status_code == 422
    assert "rules[0].steps[0].queue_s" in plain(refused.content)
    assert 'value="soon"' in refused.content.decode()
    broken = stella.post("/routing/1/edit", {"rule-0-json": "{", "act": "check"})
    assert broken.status_code == 422


def test_one_can_go_back_to_no_rules_after_a_roll_back_as_well(stella: Client) -> None:
    publish(TO_SMALL)
    publish(TO_LARGE)
    stella.post("/routing/rollback", {"version": "1"})
    assert "Roll back to no rules" in read(stella, "/routing")
    stella.post("/routing/rollback", {"version": "0"})
    current = ruleset_in_force()
    assert current is not None and current.rules == []
