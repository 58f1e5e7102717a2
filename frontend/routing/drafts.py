"""A draft while it is being edited: what was typed, held against what there is."""

from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import ValidationError
from django.http import QueryDict

from controlplane.catalog.selectors import model_list, pool_list
from controlplane.kernel.rules import RouteRule
from controlplane.routing import selectors
from controlplane.routing.checks import RuleProblem
from controlplane.routing.models import RuleSet
from controlplane.routing.rulesjson import read_rules, read_rules_text, write_rules
from frontend.routing.editor import FormRule, Plain, form_act, form_of, form_read
from frontend.routing.form_rows import FormRow, RuleForm
from frontend.routing.tenants import with_ids, with_names, words
from frontend.shared.access import Viewer
from frontend.shared.versions import text_of

# The button that shows the form as JSON.
JSON = "json"


@dataclass(frozen=True)
class TypedDraft:
    """What a form held: rules as JSON in `text` or as fields in `rules`.

    `revision` is the one that it changes, `compared` the version that it was compared with, and
    `focus` the id of what is looked at next.
    """

    note: str
    revision: str
    compared: str = ""
    text: str | None = None
    rules: list[FormRule] | None = None
    focus: str = ""

    @property
    def content(self) -> object:
        """Its rules; raises ValidationError where text is no JSON."""
        if self.rules is not None:
            return [each.rule for each in self.rules]
        return read_rules_text(self.text or "")


def typed_draft(viewer: Viewer, post: QueryDict) -> TypedDraft:
    """As it was posted, with ids for the names of tenants; raises ValidationError."""
    note, revision, compared = (str(post.get(name, "")) for name in ("note", "revision", "rebase"))
    if "rules" in post:
        return TypedDraft(note, revision, compared, text=str(post["rules"]))
    rules = form_read(post)
    for each in rules:
        if each.open and "match" in each.rule:
            each.rule["match"] = with_ids(viewer, each.rule["match"])
    return TypedDraft(note, revision, compared, rules=rules)


def draft_acted(typed: TypedDraft, act: str) -> TypedDraft:
    """The draft after a button; raises ValidationError where JSON cannot be shown as a form."""
    if act == JSON:
        text = text_of(_shortest(typed.content))
        return replace(typed, text=text, rules=None, focus="draft-rules")
    if typed.rules is None:
        return replace(typed, rules=form_of(write_rules(read_rules(typed.content))))
    return replace(typed, focus=form_act(typed.rules, act))


def draft_context(viewer: Viewer, rule_set: RuleSet, typed: TypedDraft | None) -> dict[str, Any]:
    """What the form of a draft shows: as it is saved, or as it was typed."""
    rules = form_of(rule_set.rules) if typed is None else typed.rules
    models = [model.name for model in model_list(enabled_only=True)]
    pools = [pool.name for pool in pool_list()]
    context: dict[str, Any] = {
        "typed": typed,
        "note": typed.note if typed else rule_set.note,
        "revision": typed.revision if typed else rule_set.revision,
        "focus": typed.focus if typed else "",
        "compared_with": typed.compared if typed else "",
        "models": models,
        "pools": pools,
    }
    if rules is None:
        return {**context, "text": typed.text if typed else ""}
    read = [_read(each.rule) for each in rules]
    known = [rule for rule in read if rule is not None]
    shown = iter(words(viewer, known))
    told = {place: next(shown) for place, rule in enumerate(read) if rule is not None}
    problems = _problems(viewer, [each.rule for each in rules])
    context["valid_typed"] = all(each.warning for each in problems)
    form = RuleForm(problems, models, pools)
    rows = [form.row(place, each, told.get(place)) for place, each in enumerate(rules)]
    return {**context, "form": [_named(viewer, row) if row.open else row for row in rows]}


def _named(viewer: Viewer, row: FormRow) -> FormRow:
    """An open rule whose fields name tenants."""
    match = with_names(viewer, row.rule.get("match", {}))
    return replace(row, rule={**row.rule, "match": match})


def _shortest(content: object) -> object:
    """Rules without what is default, as they would be saved; as they are where they cannot be."""
    try:
        return write_rules(read_rules(content))
    except ValidationError:
        return content


def _read(rule: Plain) -> RouteRule | None:
    try:
        return read_rules([rule])[0]
    except ValidationError:
        return None


def _problems(viewer: Viewer, rules: list[Plain]) -> list[RuleProblem]:
    """What is wrong with them: what cannot be read, else what the check finds."""
    try:
        return selectors.rule_problems(actor=viewer.user, rules=read_rules(rules))
    except ValidationError as error:
        pairs = error.message_dict.items()
        return [RuleProblem(field, " ".join(messages)) for field, messages in pairs]
