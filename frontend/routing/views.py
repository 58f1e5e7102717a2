"""Routing: the rules in force, the canary beside them, every version, and what one would change."""

from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.core.permissions import Action
from controlplane.core.versions.models import NOTE_CHARS_MAX, State
from controlplane.core.versions.selectors import before
from controlplane.kernel.rules import PERMILLE
from controlplane.routing import selectors
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules
from controlplane.routing.selectors import canary_report, ruleset_dry_run
from controlplane.routing.sizing import size_report
from frontend.routing import rows
from frontend.routing.changes import Comparison, comparison_of, rule_changes
from frontend.routing.drafts import TypedDraft, draft_context
from frontend.routing.sizes import size_panel
from frontend.routing.tenants import tenant_names, words
from frontend.routing.trial import trial_of
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.formats import percent
from frontend.shared.versions import (
    HOURS_OFFERED,
    SHARE_MAX,
    TONES,
    WRONG,
    hours_asked,
    listed,
    text_of,
)

HERE = "routing"
EXAMPLE = """[
  {
    "name": "long-prompts",
    "match": {"aliases": ["chat"], "tasks": ["generate"], "prompt_tokens_min": 8000},
    "steps": [
      {"targets": [{"model": "large"}], "queue_s": 10},
      {"targets": [{"model": "small", "pool": "default"}]}
    ]
  }
]"""


@page("routing", Action.ROUTING_MANAGE, "GET")
def routing(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    versions = selectors.ruleset_list(actor=viewer.user)
    current, canary = selectors.ruleset_in_force(), selectors.ruleset_on_trial()
    earlier = before(RuleSet.objects.all(), current) if current else None
    report = in_time(lambda: canary_report(actor=viewer.user)) if canary else None
    sizes = in_time(lambda: size_report(actor=viewer.user, rules=selectors.rules_now()))
    context = {
        "current": current,
        "rows": words(viewer, read_rules(current.rules)) if current else [],
        "before": earlier,
        "back": compared(viewer, current, earlier) if current else None,
        "canary": canary,
        "compared": compared(viewer, current, canary) if canary else None,
        "share": percent(canary.share_permille, PERMILLE) if canary else "",
        "report": report,
        "figures": rows.figure_rows(report.figures) if report else [],
        "verdict": rows.verdict_words(report.verdict) if report else None,
        "sizes": size_panel(sizes) if sizes else None,
        "versions": [(each, TONES[each.state]) for each in versions],
        "cut_off": len(versions) == selectors.VERSIONS_SHOWN_MAX,
    }
    return show(request, viewer, HERE, "routing/page.html", context)


@page("routing/<int:version>", Action.ROUTING_MANAGE, "GET")
def routing_version(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    """One version: its rules in words; a draft's also as text, with what is wrong with them."""
    return version_page(request, viewer, selectors.ruleset_get(actor=viewer.user, version=version))


@page("routing/<int:version>/dry-run", Action.ROUTING_MANAGE, "GET")
def routing_dry_run(request: HttpRequest, viewer: Viewer, version: int) -> HttpResponse:
    rule_set = selectors.ruleset_get(actor=viewer.user, version=version)
    hours, complaint = hours_asked(request)
    try:
        found = in_time(lambda: ruleset_dry_run(actor=viewer.user, rule_set=rule_set, hours=hours))
    except ValidationError as error:
        return version_page(request, viewer, rule_set, error=error, status=WRONG)
    context = {
        "version": version,
        "back": reverse("routing_version", args=[version]),
        "hours": hours,
        "offered": HOURS_OFFERED,
        "complaint": complaint,
        "found": trial_of(found) if found else None,
    }
    return show(request, viewer, HERE, "shared/dry_run.html", context)


def version_page(
    request: HttpRequest,
    viewer: Viewer,
    rule_set: RuleSet,
    *,
    typed: TypedDraft | None = None,
    error: ValidationError | None = None,
    status: int = 200,
) -> HttpResponse:
    """The page of a version; what was `typed` stands in the form instead of what is saved."""
    rules = read_rules(rule_set.rules)
    current = selectors.ruleset_in_force()
    draft = rule_set.state == State.DRAFT
    problems = selectors.rule_problems(actor=viewer.user, rules=rules) if draft else []
    context: dict[str, Any] = {
        "rule_set": rule_set,
        "tone": TONES[rule_set.state],
        "draft": draft,
        "rows": [] if draft else words(viewer, rules),
        "problems": problems,
        "valid": draft and error is None and all(each.warning for each in problems),
        "current": current,
        "outdated": draft and rule_set.based_on_id != (current.id if current else None),
        "on_trial": selectors.ruleset_on_trial(),
        "errors": listed(error),
        "compared": compared(viewer, current, rule_set) if rule_set != current else None,
        "note_chars_max": NOTE_CHARS_MAX,
        "share_max": SHARE_MAX,
        "example": EXAMPLE,
    }
    if draft:
        context |= draft_context(viewer, rule_set, typed)
    else:
        context["text"] = text_of(rule_set.rules)
    answer = show(request, viewer, HERE, "routing/version.html", context)
    answer.status_code = status
    return answer


def compared(viewer: Viewer, before: RuleSet | None, after: RuleSet | None) -> Comparison:
    """What would change if one version took the place of another; None is no rules."""
    old, new = (read_rules(each.rules) if each else () for each in (before, after))
    names = tenant_names(viewer, [*old, *new])
    return comparison_of(before, after, rule_changes(old, new, names))
