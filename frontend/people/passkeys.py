"""Passkeys as a browser speaks of them: what is asked of it, and what its answer proves.

fido2 does the checking. The question waits in the session, is good for one answer, and belongs to
the address at which the pages were opened.
"""

import json
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from controlplane.tenants.models import FactorKind, User
from controlplane.tenants.sign_in.factors import factor_list, passkey_add, passkey_used
from frontend.people.signing import code_shown, proof_shown

STATE = "passkey_state"
ANSWER_CHARS_MAX = 20_000
UNPROVEN = "The passkey could not be verified. Try again."


def factor_kinds(user: User) -> set[str]:
    """Kinds of second factors that a user can be asked for."""
    return {str(factor.kind) for factor in factor_list(user=user)}


def factor_shown(request: HttpRequest, user: User) -> bool:
    """Whether the form that was sent holds a right code, or a passkey's right answer."""
    answer = request.POST.get("passkey", "")
    if answer:
        return proof_shown(request, user, lambda: _passkey_right(request, user, answer))
    return code_shown(request, user, request.POST.get("code", ""))


def passkey_question(request: HttpRequest, user: User) -> dict[str, Any]:
    """What a browser needs to ask for one of the user's passkeys."""
    options, state = _server(request).authenticate_begin(
        _credentials(user), user_verification=UserVerificationRequirement.PREFERRED
    )
    request.session[STATE] = state
    return dict(options)


def passkey_offer(request: HttpRequest, user: User) -> dict[str, Any]:
    """What a browser needs to make a new passkey."""
    entity = PublicKeyCredentialUserEntity(
        id=user.id.bytes, name=user.email, display_name=user.email
    )
    options, state = _server(request).register_begin(
        entity,
        _credentials(user),
        resident_key_requirement=ResidentKeyRequirement.DISCOURAGED,
        user_verification=UserVerificationRequirement.PREFERRED,
    )
    request.session[STATE] = state
    return dict(options)


def passkey_register(request: HttpRequest, user: User, *, label: str, answer: str) -> list[str]:
    """Add the passkey that a browser has made; returns recovery codes, if it is the first factor.

    Raises ValidationError (`label`, `passkey`).
    """
    state = request.session.pop(STATE, None)
    try:
        made = _server(request).register_complete(state, _read(answer)).credential_data
    except (ValueError, TypeError, KeyError) as error:
        raise ValidationError({"passkey": UNPROVEN}) from error
    if made is None:
        raise ValidationError({"passkey": UNPROVEN})
    return passkey_add(
        user=user, label=label, credential_id=made.credential_id, material=bytes(made)
    )


def _passkey_right(request: HttpRequest, user: User, answer: str) -> bool:
    state = request.session.pop(STATE, None)
    try:
        given = AuthenticationResponse.from_dict(_read(answer))
        used = _server(request).authenticate_complete(state, _credentials(user), given)
    except (ValueError, TypeError, KeyError):
        return False
    counter = given.response.authenticator_data.counter
    return passkey_used(user=user, credential_id=used.credential_id, counter=counter)


def _read(answer: str) -> Any:
    if len(answer) > ANSWER_CHARS_MAX:
        raise ValueError("too long")
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _credentials(user: User) -> list[AttestedCredentialData]:
    return [
        AttestedCredentialData(bytes(factor.material))
        for factor in factor_list(user=user)
        if factor.kind == FactorKind.PASSKEY
    ]


def _server(request: HttpRequest) -> Fido2Server:
    origin = f"{request.scheme}://{request.get_host()}"
    host = request.get_host().rsplit(":", 1)[0]
    entity = PublicKeyCredentialRpEntity(name="Sluice", id=host)
    return Fido2Server(entity, verify_origin=lambda given: given == origin)
