"""Settings of the control plane: one small file per concern, put together here."""

from controlplane.settings.alerts import *
from controlplane.settings.base import *
from controlplane.settings.billing import *
from controlplane.settings.bounds import *
from controlplane.settings.database import *
from controlplane.settings.gateway import *
from controlplane.settings.hub import *
from controlplane.settings.logs import *
from controlplane.settings.mail import *
from controlplane.settings.oidc import *
from controlplane.settings.paths import *
from controlplane.settings.redis import *
from controlplane.settings.security import *
from controlplane.settings.timeouts import *
from controlplane.settings.traces import *
from controlplane.settings.trust import *
