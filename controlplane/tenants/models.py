"""Organizations, projects, members and API keys. Tables only; rules are in services."""

import uuid
from typing import ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Least, Lower

from controlplane.core.models import BaseModel
from controlplane.core.permissions import Role
from controlplane.kernel.keys.scopes import ENDPOINTS
from controlplane.kernel.rules import PRIORITIES, PRIORITY_NORMAL
from controlplane.tenants.adminkeys.models import AdminKey as AdminKey
from controlplane.tenants.adminkeys.models import key_state
from controlplane.tenants.people.models import ISSUER_CHARS_MAX
from controlplane.tenants.people.models import FactorKind as FactorKind
from controlplane.tenants.people.models import Invitation as Invitation
from controlplane.tenants.people.models import OutsideIdentity as OutsideIdentity
from controlplane.tenants.people.models import RecoveryCode as RecoveryCode
from controlplane.tenants.people.models import SecondFactor as SecondFactor
from controlplane.tenants.people.models import UserSession as UserSession

NAME_CHARS_MAX = 100
KEY_ID_CHARS = 12
ONE_KEY_OF_A_FORM = "one_api_key_of_a_form"
DIGEST_BYTES = 32
TAGS_MAX = 16
TAG_CHARS_MAX = 40
NETWORKS_MAX = 32
NETWORK_CHARS_MAX = 43
ENDPOINT_CHARS_MAX = 16
WEIGHT_MIN, WEIGHT_MAX = 1, 100
LABELS_MAX = 8
LABEL_CHARS_MAX = 64
KEEPS_DAYS_MAX = 365
CACHE_MINUTES_MAX = 7 * 24 * 60


def owners_alone() -> list[str]:
    """Who may read what was said, until somebody decides otherwise."""
    return [Role.OWNER.value]


class SafetyMode(models.TextChoices):
    """What the safety layer does with a finding."""

    OFF = "off"
    FLAG = "flag"
    BLOCK = "block"


class UserManager(BaseUserManager["User"]):
    """Users are found by e-mail address, in lower case."""

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").lower())


class User(BaseModel, AbstractBaseUser):
    """A person. `is_staff` runs the installation: catalog, fleet and routing.

    Playground tokens made before `tokens_from` are void.
    """

    email = models.EmailField(unique=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    tokens_from = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[UserManager] = UserManager()
    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"

    class Meta:
        db_table = "users"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(email=Lower("email")), name="user_email_is_lower_case"
            )
        ]

    @property
    def actor_id(self) -> uuid.UUID | None:
        return self.id

    @property
    def actor_label(self) -> str:
        """How an audit row names them, also after the account is gone."""
        return self.email


class Organization(BaseModel):
    """The tenant: who is billed, and the border that no data crosses.

    Where `second_factor_required`, a member without one may do nothing in it.
    """

    name = models.CharField(max_length=NAME_CHARS_MAX)
    second_factor_required = models.BooleanField(default=False)

    class Meta:
        db_table = "organizations"

    @property
    def organization_id(self) -> uuid.UUID:
        """Its own: whose an audit row about it is."""
        return self.id


class Project(BaseModel):
    """A part of an organization with its own keys, budget and safety mode.

    Where it is `strict`, requests with fields that no API has are refused. Of their labels those
    named in `labels` are kept. A cached prefix of its prompts is found for `cache_minutes` at most,
    0 for as long as it is cached, and by other projects where it is `cache_shared`. What was said
    is kept for `keeps_days`, sealed with `content_key`, itself wrapped; those in the roles of
    `content_readers` may read it.
    `policies` are what else it demands of requests, in the form of the kernel's `Policies`.
    When nodes are full, tenants get work done in the proportion of their projects' `weight`.
    """

    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="projects"
    )
    name = models.CharField(max_length=NAME_CHARS_MAX)
    safety_mode = models.CharField(max_length=5, choices=SafetyMode.choices, default=SafetyMode.OFF)
    allow_content_logging = models.BooleanField(default=False)
    strict = models.BooleanField(default=False, db_default=False)
    labels = ArrayField(models.CharField(max_length=LABEL_CHARS_MAX), default=list, db_default=[])
    cache_minutes = models.SmallIntegerField(default=0, db_default=0)
    cache_shared = models.BooleanField(default=True, db_default=True)
    policies = models.JSONField(default=dict, db_default={})
    weight = models.SmallIntegerField(default=WEIGHT_MIN)
    keeps_days = models.SmallIntegerField(default=0, db_default=0)
    content_key = models.BinaryField(null=True, blank=True)
    content_readers = ArrayField(
        models.CharField(max_length=9), default=owners_alone, db_default=owners_alone()
    )

    class Meta:
        db_table = "projects"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(cache_minutes__range=(0, CACHE_MINUTES_MAX)),
                name="project_cache_minutes_bounds",
            ),
            models.CheckConstraint(
                condition=models.Q(keeps_days=0, content_key=None)
                | models.Q(keeps_days__range=(1, KEEPS_DAYS_MAX), content_key__isnull=False),
                name="project_keeps_under_a_key",
            ),
            models.CheckConstraint(
                condition=models.Q(content_readers__contained_by=[role.value for role in Role]),
                name="project_content_readers_known",
            ),
            models.UniqueConstraint(
                fields=["organization", "name"], name="project_name_once_in_organization"
            ),
            models.UniqueConstraint(
                fields=["id", "organization"], name="project_with_organization"
            ),
            models.CheckConstraint(
                condition=models.Q(safety_mode__in=SafetyMode.values),
                name="project_safety_mode_known",
            ),
            models.CheckConstraint(
                condition=models.Q(weight__range=(WEIGHT_MIN, WEIGHT_MAX)),
                name="project_weight_bounds",
            ),
        ]


class Membership(BaseModel):
    """Who is what in an organization; `issuer` is the provider whose rules gave it, if any."""

    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="memberships"
    )
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=9, choices=[(role.value, role.title()) for role in Role])
    issuer = models.CharField(
        max_length=ISSUER_CHARS_MAX, default="", db_default="", blank=True, editable=False
    )

    class Meta:
        db_table = "memberships"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "organization"], name="one_role_in_an_organization"
            ),
            models.CheckConstraint(
                condition=models.Q(role__in=[role.value for role in Role]),
                name="membership_role_known",
            ),
        ]


class ApiKey(BaseModel):
    """A credential of a project. Only its HMAC is kept; `allowed_models` None allows every model.

    So does None as `allowed_endpoints`; with `networks` it opens only to callers from those.
    `replaces` is the key that it was rotated from; `limits_of` the first of that line, whose limits
    and budget all of the line share; `ends_by`, where one was made within another key, is when the
    last of the line ends. Routing rules may ask for `tags`; `priority` (one of the
    kernel's) orders requests that wait.
    `form` is the id of the form that asked for it: sent twice, a form makes one key.
    When a key was last used is read from telemetry: writing it here would cost a row per request.
    """

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="api_keys")
    key_id = models.CharField(max_length=KEY_ID_CHARS, unique=True)
    digest = models.BinaryField(max_length=DIGEST_BYTES)
    redacted = models.CharField(max_length=40)
    label = models.CharField(max_length=NAME_CHARS_MAX)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True)
    allowed_models = ArrayField(models.CharField(max_length=NAME_CHARS_MAX), null=True, blank=True)
    allowed_endpoints = ArrayField(
        models.CharField(max_length=ENDPOINT_CHARS_MAX), null=True, blank=True
    )
    read_only = models.BooleanField(default=False)
    networks = ArrayField(models.CharField(max_length=NETWORK_CHARS_MAX), default=list, blank=True)
    tags = ArrayField(models.CharField(max_length=TAG_CHARS_MAX), default=list, blank=True)
    priority = models.SmallIntegerField(default=PRIORITY_NORMAL)
    expires_at = models.DateTimeField(null=True, blank=True)
    ends_by = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_reason = models.CharField(max_length=200, default="", blank=True)
    replaces = models.OneToOneField(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        editable=False,
        related_name="replaced_by",
    )
    limits_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="line"
    )
    form = models.UUIDField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "api_keys"
        constraints = [
            models.UniqueConstraint(fields=["created_by", "form"], name=ONE_KEY_OF_A_FORM),
            models.CheckConstraint(
                condition=models.Q(priority__in=PRIORITIES), name="api_key_priority_known"
            ),
            models.CheckConstraint(
                condition=models.Q(tags__len__lte=TAGS_MAX), name="api_key_tags_bound"
            ),
            models.CheckConstraint(
                condition=models.Q(allowed_endpoints__isnull=True)
                | models.Q(allowed_endpoints__contained_by=list(ENDPOINTS)),
                name="api_key_endpoints_known",
            ),
            models.CheckConstraint(
                condition=models.Q(networks__len__lte=NETWORKS_MAX), name="api_key_networks_bound"
            ),
        ]
        indexes = [
            models.Index(fields=["organization", "-id"], name="api_key_newest_first"),
            models.Index(Least("revoked_at", "expires_at"), name="api_key_ended"),
        ]

    @property
    def limits_id(self) -> uuid.UUID:
        """The id under which its limits and its budget are kept."""
        return self.limits_of_id or self.id

    @property
    def replaced(self) -> bool:
        return hasattr(self, "replaced_by")

    state = key_state


class SetupLink(BaseModel):
    """A one-time link with which a user sets a password; only its hash is kept."""

    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="setup_links")
    digest = models.BinaryField(max_length=DIGEST_BYTES, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    # Made by a member whose rights cover the account's: it ends once the account may do more.
    by_member = models.BooleanField(default=False, db_default=False)

    class Meta:
        db_table = "setup_links"
