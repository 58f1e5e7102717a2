"""The app's models, which Django looks for here: each is defined in the folder of its subject."""

from controlplane.billing.approvals import models as approvals
from controlplane.billing.budgets import models as budgets
from controlplane.billing.documents import models as documents
from controlplane.billing.exports import models as exports
from controlplane.billing.ledger import models as ledger
from controlplane.billing.months import models as months
from controlplane.billing.payments import models as payments

__all__ = ["approvals", "budgets", "documents", "exports", "ledger", "months", "payments"]
