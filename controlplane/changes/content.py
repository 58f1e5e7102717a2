"""What changes say: shapes of their content, as they are stored and sent. Null is none."""

from typing import NamedTuple

import msgspec

from controlplane.billing.budgets.models import BudgetPeriod
from controlplane.kernel.price import PERMILLE

# Fields that say which thing an entry is of.
NAMED = frozenset({"of", "model", "per_user", "project", "organization"})


class LimitedThing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of what something is: the id of the organization, of a project or of a key; of the requests
    to one `model`, or with `per_user` of those of each end user.
    """

    of: str
    model: str = ""
    per_user: bool = False


class LimitEntry(LimitedThing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All limits of a thing."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    requests_per_day: int | None = None
    concurrency: int | None = None


class BudgetEntry(LimitedThing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A budget, in nano-USD; null ends it. Else as `billing.budgets.services.BudgetDraft`."""

    allowance_nano: int | None = None
    period: str = BudgetPeriod.NONE.value
    zone: str = "UTC"
    rollover: bool = False
    alerts: tuple[int, ...] = ()


class LimitsContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits and budgets that are to be others."""

    limits: tuple[LimitEntry, ...] = ()
    budgets: tuple[BudgetEntry, ...] = ()


class PriceEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, in pico-USD per token and thousandths; with a `project` and its
    `organization` what that one pays instead, null to pay what all do.
    """

    model: str
    organization: str = ""
    project: str = ""
    input_pico: int | None = None
    cached_pico: int | None = None
    output_pico: int | None = None
    batch_permille: int = PERMILLE
    priority_permille: int = PERMILLE


class PricesContent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices that are to be others."""

    prices: tuple[PriceEntry, ...] = ()


class LimitPart(NamedTuple):
    """Of what requests of a thing a limit is: all, those to a model, or those of each end user."""

    model: str = ""
    per_user: bool = False

    @property
    def words(self) -> str:
        return f", {self.model}" if self.model else ", each end user" if self.per_user else ""
