"""The runbooks that ship with the product: what to do about each alert, as Markdown files."""

from functools import cache

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist

from controlplane.kernel.objectives.counting import COMPOSITES, STAGE

ABSENT_RUNBOOK = "absent-data"
COMPOSITE_RUNBOOK = "composite"


@cache
def runbook_slugs() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in settings.RUNBOOKS_DIR.glob("*.md")))


def runbook_text(slug: str) -> str:
    """A runbook's Markdown; raises ObjectDoesNotExist."""
    if slug not in runbook_slugs():
        raise ObjectDoesNotExist("runbook")
    return str((settings.RUNBOOKS_DIR / f"{slug}.md").read_text(encoding="utf-8"))


def runbook_of(indicator: str) -> str:
    """The runbook of an indicator's alerts; a stage's is of the stage's name."""
    if indicator in COMPOSITES:
        return COMPOSITE_RUNBOOK
    return indicator.removeprefix(STAGE).replace("_", "-")


def runbook_url(runbook: str) -> str:
    """The same for who reads it elsewhere than on a page; the path alone without `PAGES_URL`."""
    path = runbook_path(runbook)
    return f"{settings.PAGES_URL}{path}" if path.startswith("/") else path


def runbook_path(runbook: str) -> str:
    """Where a link leads: a shipped runbook's page, or the address itself."""
    return f"/runbooks/{runbook}" if runbook in runbook_slugs() else runbook
