"""Services of second factors: authenticator apps, passkeys, and codes for when those are lost; and
of what an organization requires of its members.

The checks themselves are pyotp's and fido2's. A code works once: an app's by the 30 s step it
belongs to, a recovery code by its row.
"""

import secrets
import uuid
from contextlib import suppress
from hashlib import sha256
from typing import Any

import pyotp
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.seal import sealed, unsealed
from controlplane.kernel.clock import wall_s
from controlplane.tenants import models
from controlplane.tenants.access import LACKS_FACTOR, require
from controlplane.tenants.services import clean_name

FACTORS_MAX = 10
STEP_S = 30
# One step to each side: a phone's clock may be half a minute off.
STEPS_OFF_MAX = 1
RECOVERY_CODES = 10
RECOVERY_BYTES = 10
CODE_CHARS_MAX = 64
APP_LABEL = "Authenticator app"
_PURPOSE = "second_factors.material"


def has_factors(*, user: models.User) -> bool:
    """Whether sign-in asks this user for more than the first factor."""
    return models.SecondFactor.objects.filter(user=user).exists()


def factor_list(*, user: models.User) -> list[models.SecondFactor]:
    return list(models.SecondFactor.objects.filter(user=user).order_by("id"))


def recovery_codes_left(*, user: models.User) -> int:
    return models.RecoveryCode.objects.filter(user=user, used_at=None).count()


def app_secret() -> str:
    """A new secret for an authenticator app; it counts once a code of it was shown."""
    return pyotp.random_base32()


def app_secret_kept(*, user: models.User, kept: object) -> tuple[str, str]:
    """A secret that waits for its code, and the sealed form in which a session may keep it.

    `kept` is what this user's session kept before; anything else than that makes a new secret.
    """
    place = f"{_PURPOSE}:unconfirmed:{user.id}".encode()
    if isinstance(kept, str):
        with suppress(ValueError):
            before = settings.FACTOR_KEYS_BEFORE
            found = unsealed(settings.FACTOR_KEY, bytes.fromhex(kept), place, before)
            return found.decode(), kept
    secret = app_secret()
    return secret, sealed(settings.FACTOR_KEY, secret.encode(), place).hex()


def app_address(*, user: models.User, secret: str) -> str:
    return pyotp.TOTP(secret).provisioning_uri(name=user.email, issuer_name="Sluice")


def app_add(*, user: models.User, secret: str, code: str) -> list[str]:
    """Add the app whose code this is; returns recovery codes where it is the first factor.

    Raises ValidationError (`code`).
    """
    step = _step_of(secret, code, after=0)
    if step is None:
        raise ValidationError({"code": "The code is incorrect. Check the clock of your phone."})
    with transaction.atomic():
        _lock(user)
        if models.SecondFactor.objects.filter(user=user, kind=models.FactorKind.TOTP).exists():
            raise ValidationError(
                {"code": "You already have an authenticator app; remove it first."}
            )
        made = models.SecondFactor(
            user=user, kind=models.FactorKind.TOTP, label=APP_LABEL, last_step=step
        )
        made.material = sealed(settings.FACTOR_KEY, secret.encode(), _place(made))
        return _add(made)


def passkey_add(
    *, user: models.User, label: str, credential_id: bytes, material: bytes
) -> list[str]:
    """Add a passkey that fido2 has checked; returns recovery codes where it is the first factor.

    Raises ValidationError (`label`, `passkey`).
    """
    label = clean_name(label, field_name="label")
    with transaction.atomic():
        _lock(user)
        if models.SecondFactor.objects.filter(credential_id=credential_id).exists():
            raise ValidationError({"passkey": "This passkey is already registered."})
        return _add(
            models.SecondFactor(
                user=user,
                kind=models.FactorKind.PASSKEY,
                label=label,
                credential_id=credential_id,
                material=material,
            )
        )


def passkey_used(*, user: models.User, credential_id: bytes, counter: int) -> bool:
    """Note a use of a passkey; False where its counter has not grown, as a copy's has not.

    Those that are kept in several devices do not count: theirs is always 0.
    """
    rows = models.SecondFactor.objects.filter(user=user, credential_id=credential_id)
    grown = Q(last_step__lt=counter) if counter else Q(last_step=0)
    # The condition decides between two uses at once; losing it is a refusal.
    return bool(rows.filter(grown).update(last_step=counter, last_used_at=timezone.now()))


def factor_remove(*, user: models.User, factor_id: Any) -> bool:
    """Remove one of one's own factors; with the last one recovery codes go too."""
    with transaction.atomic():
        _lock(user)
        factor = models.SecondFactor.objects.filter(user=user, id=factor_id).first()
        if factor is None:
            return False
        models.SecondFactor.objects.filter(id=factor.id).delete()
        if not has_factors(user=user):
            models.RecoveryCode.objects.filter(user=user).delete()
        _audit(user, "second_factor.remove", factor)
    return True


def factors_reset(*, actor: Actor, user: models.User) -> int:
    """Remove all factors of someone who has lost them; returns how many."""
    require(actor, Action.USER_CREATE)
    with transaction.atomic():
        _lock(user)
        count, _ = models.SecondFactor.objects.filter(user=user).delete()
        models.RecoveryCode.objects.filter(user=user).delete()
        facts: Facts = {"user": user.email, "factors": count}
        audit_record(actor, "second_factor.reset", subject=user, detail=facts)
    return count


def recovery_codes_make(*, user: models.User) -> list[str]:
    """New recovery codes, known here and never again; earlier ones stop working."""
    codes = [secrets.token_hex(RECOVERY_BYTES) for _ in range(RECOVERY_CODES)]
    with transaction.atomic():
        models.RecoveryCode.objects.filter(user=user).delete()
        models.RecoveryCode.objects.bulk_create(
            models.RecoveryCode(user=user, digest=_digest(code)) for code in codes
        )
        audit_record(user, "recovery_codes.make", subject=user)
    return ["-".join(code[at : at + 5] for at in range(0, len(code), 5)) for code in codes]


def code_use(*, user: models.User, code: str) -> bool:
    """Whether this is a code of the user's app, or a recovery code, that was not used before."""
    code = code.strip().replace(" ", "").replace("-", "").lower()
    if not code.isascii() or not 1 <= len(code) <= CODE_CHARS_MAX:
        return False
    return _app_code_use(user, code) or _recovery_code_use(user, code)


def _app_code_use(user: models.User, code: str) -> bool:
    factor = models.SecondFactor.objects.filter(user=user, kind=models.FactorKind.TOTP).first()
    if factor is None:
        return False
    step = _step_of(_app_secret(factor).decode(), code, after=factor.last_step)
    # The condition decides between two who send the same code at once.
    return step is not None and bool(
        models.SecondFactor.objects.filter(id=factor.id, last_step__lt=step).update(
            last_step=step, last_used_at=timezone.now()
        )
    )


def _app_secret(factor: models.SecondFactor) -> bytes:
    before = settings.FACTOR_KEYS_BEFORE
    return unsealed(settings.FACTOR_KEY, bytes(factor.material), _place(factor), before)


def factors_reseal() -> int:
    """Seal the secrets of all apps under the present key alone; how many there are."""
    with transaction.atomic():
        rows = models.SecondFactor.objects.filter(kind=models.FactorKind.TOTP)
        found = list(rows.select_for_update())
        for each in found:
            each.material = sealed(settings.FACTOR_KEY, _app_secret(each), _place(each))
            each.save(update_fields=["material"])
    return len(found)


def _recovery_code_use(user: models.User, code: str) -> bool:
    now = timezone.now()
    with transaction.atomic():
        rows = models.RecoveryCode.objects.filter(user=user, digest=_digest(code), used_at=None)
        used = bool(rows.update(used_at=now))
        if used:
            audit_record(user, "recovery_code.use", subject=user)
    return used


def _step_of(secret: str, code: str, *, after: int) -> int | None:
    """The newest step near now, and after that one, whose code this is."""
    if not code.isascii():
        return None
    app, now = pyotp.TOTP(secret, interval=STEP_S), int(wall_s()) // STEP_S
    steps = range(now + STEPS_OFF_MAX, max(after, now - STEPS_OFF_MAX - 1), -1)
    return next((s for s in steps if secrets.compare_digest(app.generate_otp(s), code)), None)


def _add(factor: models.SecondFactor) -> list[str]:
    held = models.SecondFactor.objects.filter(user=factor.user).count()
    if held >= FACTORS_MAX:
        raise ValidationError({"label": f"At most {FACTORS_MAX} factors."})
    factor.save(force_insert=True)
    _audit(factor.user, "second_factor.add", factor)
    return [] if held else recovery_codes_make(user=factor.user)


def _audit(user: models.User, action: str, factor: models.SecondFactor) -> None:
    facts: Facts = {"kind": factor.kind, "label": factor.label}
    audit_record(user, action, subject=factor, detail=facts)


def _lock(user: models.User) -> None:
    models.User.objects.select_for_update().get(id=user.id)


def _place(factor: models.SecondFactor) -> bytes:
    return f"{_PURPOSE}:{factor.id}:{factor.user_id}".encode()


def _digest(code: str) -> bytes:
    # 80 random bits need no slow hash.
    return sha256(code.encode()).digest()


def second_factor_require(*, actor: Actor, organization_id: uuid.UUID, required: bool) -> bool:
    """Ask for a second factor of every member, or no longer; False where it was so before.

    For owners. Members without one keep their account page alone, and their Playground tokens end.
    Raises ValidationError on `second_factor_required` for an owner who has none.
    """
    require(actor, Action.SECURITY_SET, organization_id)
    if required and isinstance(actor, models.User) and not has_factors(user=actor):
        told = "Add a second factor to your own account first."
        raise ValidationError({"second_factor_required": told})
    with organization_scope([organization_id]):
        rows = models.Organization.objects.filter(id=organization_id)
        # The condition decides a race; losing it is an ordinary answer.
        if not rows.exclude(second_factor_required=required).update(
            second_factor_required=required
        ):
            return False
        lacking = models.Membership.objects.filter(LACKS_FACTOR, organization_id=organization_id)
        users = list(lacking.values_list("user_id", flat=True))
        models.User.objects.filter(id__in=users).update(tokens_from=timezone.now())
        audit_record(
            actor,
            "organization.second_factor",
            subject=rows.get(),
            detail={"members_without": len(users)},
            changed=(
                {"second_factor_required": not required},
                {"second_factor_required": required},
            ),
        )
    return True
