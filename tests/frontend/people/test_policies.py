"""The form of a project's policies: what it saves, shows again, and tells where it is wrong."""

import pytest

from controlplane.tenants.selectors import project_get
from tests.support.people import Cast, make_cast, signed_in


@pytest.fixture
def cast(database: str) -> Cast:
    return make_cast()


def save(cast: Cast, **fields: str) -> tuple[dict[str, object], str]:
    """What is saved after the form was sent, and the page that follows."""
    path = f"/projects/proj_{cast.project.id.hex}/policies"
    answer = signed_in(cast.alice).post(path, fields, follow=True)
    found = project_get(user=cast.alice, project_id=cast.project.id)
    policies: dict[str, object] = found.policies
    return policies, answer.content.decode()


def test_what_is_typed_is_saved_and_shown_again(cast: Cast) -> None:
    policies, page = save(
        cast,
        require_max_tokens="on",
        unstreamed_tokens_max="1000",
        tools_max="",
        calls_max="4",
        personal_email="mask",
        personal_card="refuse",
        patterns="staff mask ACME-[0-9]{6}\n\n secret refuse top secret \n",
    )
    assert policies == {
        "require_max_tokens": True,
        "unstreamed_tokens_max": 1000,
        "calls_max": 4,
        "personal": {"card": "refuse", "email": "mask"},
        "patterns": [
            {"name": "staff", "pattern": "ACME-[0-9]{6}", "action": "mask"},
            {"name": "secret", "pattern": "top secret", "action": "refuse"},
        ],
    }
    assert "staff mask ACME-[0-9]{6}\nsecret refuse top secret" in page
    assert save(cast)[0] == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools_max": "many"}, "Tools max: Must be a whole number."),
        ({"patterns": "staff ACME"}, "Enter a name, mask or refuse, and a pattern"),
        ({"patterns": "a mask (?=x)"}, "RE2 does not take the pattern"),
        ({"patterns": "a hide x"}, "Invalid enum value"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_saved(
    cast: Cast, fields: dict[str, str], said: str
) -> None:
    policies, page = save(cast, **fields)
    assert policies == {} and said in page
