"""Tables about people beside accounts: invitations, sessions, second factors, outside identities.

`models.py` takes them in; organizations and users are named by text, since they are defined there.
"""

from datetime import datetime

from django.db import models
from django.db.models import CheckConstraint, Q, UniqueConstraint

from controlplane.core.models import BaseModel
from controlplane.core.permissions import Role

DIGEST_BYTES = 32
LABEL_CHARS_MAX = 100
SESSION_KEY_CHARS = 40
DEVICE_CHARS_MAX = 200
ISSUER_CHARS_MAX = 255
# As OpenID Connect bounds a subject.
SUBJECT_CHARS_MAX = 255


class FactorKind(models.TextChoices):
    TOTP = "totp", "Authenticator app"
    PASSKEY = "passkey", "Passkey or security key"


# An invitation that nobody has used or withdrawn.
UNUSED = Q(accepted_at=None, withdrawn_at=None)


class Invitation(BaseModel):
    """A one-time link into an organization for one address and role; only its hash is kept."""

    organization = models.ForeignKey(
        "tenants.Organization", on_delete=models.PROTECT, related_name="invitations"
    )
    email = models.EmailField()
    role = models.CharField(max_length=9, choices=[(role.value, role.title()) for role in Role])
    digest = models.BinaryField(max_length=DIGEST_BYTES, unique=True)
    invited_by = models.ForeignKey(
        "tenants.User", on_delete=models.PROTECT, null=True, related_name="+"
    )
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "invitations"
        constraints = [
            UniqueConstraint(
                fields=["organization", "email"],
                condition=UNUSED,
                name="one_open_invitation_of_an_address",
            ),
            CheckConstraint(
                condition=Q(role__in=[role.value for role in Role]), name="invitation_role_known"
            ),
        ]

    def state(self, now: datetime) -> str:
        """One of open, accepted, withdrawn, expired."""
        if self.accepted_at is not None:
            return "accepted"
        if self.withdrawn_at is not None:
            return "withdrawn"
        return "open" if self.expires_at > now else "expired"


class UserSession(BaseModel):
    """Where someone is signed in: one row a session, gone when it ends."""

    user = models.ForeignKey(
        "tenants.User", on_delete=models.PROTECT, related_name="signed_in_sessions"
    )
    session_key = models.CharField(max_length=SESSION_KEY_CHARS, unique=True)
    device = models.CharField(max_length=DEVICE_CHARS_MAX, blank=True)
    address = models.GenericIPAddressField(null=True)
    last_seen_at = models.DateTimeField()

    class Meta:
        db_table = "user_sessions"


class SecondFactor(BaseModel):
    """An authenticator app or a passkey of a user.

    `material` is an app's secret, sealed, or a passkey's public credential. `last_step` is the
    newest 30 s step whose code was used, or a passkey's counter: neither works twice.
    """

    user = models.ForeignKey(
        "tenants.User", on_delete=models.PROTECT, related_name="second_factors"
    )
    kind = models.CharField(max_length=7, choices=FactorKind.choices)
    label = models.CharField(max_length=LABEL_CHARS_MAX)
    material = models.BinaryField()
    credential_id = models.BinaryField(null=True, unique=True)
    last_step = models.BigIntegerField(default=0)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "second_factors"
        constraints = [
            UniqueConstraint(
                fields=["user"], condition=Q(kind="totp"), name="one_authenticator_app"
            ),
            CheckConstraint(
                condition=Q(kind__in=FactorKind.values), name="second_factor_kind_known"
            ),
        ]


class RecoveryCode(BaseModel):
    """A code that stands in for a lost second factor, once; only its hash is kept."""

    user = models.ForeignKey(
        "tenants.User", on_delete=models.PROTECT, related_name="recovery_codes"
    )
    digest = models.BinaryField(max_length=DIGEST_BYTES)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "recovery_codes"
        constraints = [UniqueConstraint(fields=["user", "digest"], name="recovery_code_once")]


class OutsideIdentity(BaseModel):
    """Who a user is at an identity provider: its issuer and subject, never an address."""

    user = models.ForeignKey(
        "tenants.User", on_delete=models.PROTECT, related_name="outside_identities"
    )
    issuer = models.CharField(max_length=ISSUER_CHARS_MAX)
    subject = models.CharField(max_length=SUBJECT_CHARS_MAX)

    class Meta:
        db_table = "outside_identities"
        constraints = [
            UniqueConstraint(fields=["issuer", "subject"], name="one_user_of_an_identity")
        ]
