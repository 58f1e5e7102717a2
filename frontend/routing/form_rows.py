"""What the form of a draft shows: each rule in words or in fields, and what is wrong beside it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.kernel.rules import QUEUE_S_DEFAULT, SIZE_CLASSES, STEPS_MAX, TARGETS_MAX
from controlplane.routing.checks import RuleProblem
from frontend.routing.editor import (
    BOXES,
    FLAGS,
    LISTS,
    NUMBERS,
    SIZES,
    FormRule,
    Plain,
    listed_text,
    name_of,
)
from frontend.routing.rows import PRIORITY_WORDS, RuleRow

LABELS = {
    "aliases": ("Models or aliases", "As requests name them, separated by commas; empty for any."),
    "tags": ("Key tags", "Separated by commas."),
    "organizations": ("Organizations", "Names or IDs (org_…), separated by commas."),
    "projects": ("Projects", "As “Acme · web”, or IDs (proj_…)."),
    "prompt_tokens_min": ("Prompt tokens, at least", ""),
    "prompt_tokens_max": ("Prompt tokens, at most", ""),
    "deadline_s": ("Deadline, s", "Of the whole request."),
    "first_token_s": ("First token within, s", "On one node; then another is tried."),
    "degrade_order": ("Degrade order", "Lower numbers are moved or shed first under load."),
    "priority": ("Priority", ""),
    "continues_lost": ("Continue after a lost node", ""),
    "widen": ("Also models that the key does not allow", ""),
    "on_too_long": ("Next step when a prompt does not fit", ""),
    "on_content_filter": ("Next step when an answer is withheld for its content", ""),
    "shadow_class": ("Shadow: always serve", "The size class that is chosen is only recorded."),
}
TASKS = {"generate": "generate", "embed": "embed"}


class FormField(NamedTuple):
    """One input: its id, which is its name too, label, value and hint."""

    at: str
    label: str
    value: str
    hint: str = ""


class FormBox(NamedTuple):
    """A box to tick; all of a condition have its name."""

    name: str
    value: str
    label: str
    ticked: bool


class TargetRow(NamedTuple):
    path: str
    number: int
    at: str
    fields: dict[str, str]
    models: list[str]
    pools: list[str]
    classes: list[str]
    problems: list[RuleProblem]

    @property
    def words(self) -> str:
        """How its buttons are told from those of others."""
        rule, step, _ = self.path.split("-")
        return f"{self.number} of step {int(step) + 1} of rule {int(rule) + 1}"


class StepRow(NamedTuple):
    path: str
    number: int
    at: str
    queue_s: FormField
    targets: list[TargetRow]
    full: bool
    problems: list[RuleProblem]

    @property
    def words(self) -> str:
        return f"{self.number} of rule {int(self.path.split('-')[0]) + 1}"


@dataclass(frozen=True)
class FormRow:
    """A rule: `words` and `json` where it is closed, all else where it is open."""

    path: str
    number: int
    at: str
    name: str
    open: bool
    words: RuleRow | None
    json: str
    rule: Plain
    steps: list[StepRow]
    problems: list[RuleProblem]

    @property
    def place(self) -> str:
        """As buttons call it."""
        return str(self.number)

    @property
    def own_problems(self) -> list[RuleProblem]:
        """Those that stand beside none of its steps and targets."""
        told = {each for step in self.steps for each in step.problems}
        targets = (target for step in self.steps for target in step.targets)
        told |= {each for target in targets for each in target.problems}
        return [each for each in self.problems if each not in told]

    @property
    def has_options(self) -> bool:
        options = (*NUMBERS, *FLAGS, "shadow_class")
        return any(self.rule.get(name) not in (None, False) for name in options)

    @property
    def full(self) -> bool:
        return len(self.steps) >= STEPS_MAX

    @property
    def conditions(self) -> list[FormField]:
        match = self.rule.get("match", {})
        values = {name: listed_text(match.get(name, ())) for name in LISTS}
        values |= {name: _text(match.get(name)) for name in SIZES}
        return [FormField(f"{self.at}-{name}", *_labelled(name, values[name])) for name in values]

    @property
    def boxes(self) -> list[tuple[str, list[FormBox]]]:
        match = self.rule.get("match", {})
        known = TASKS, {str(value): word for value, word in PRIORITY_WORDS.items()}
        legends = "Tasks", "Priorities of keys"
        return [
            (legend, _boxes(f"{self.at}-{name}", words, match.get(name, ())))
            for legend, name, words in zip(legends, BOXES, known, strict=True)
        ]

    @property
    def numbers(self) -> list[FormField]:
        return [
            FormField(f"{self.at}-{name}", *_labelled(name, _text(self.rule.get(name))))
            for name in NUMBERS
            if name != "priority"
        ]

    @property
    def priority(self) -> FormField:
        return FormField(f"{self.at}-priority", "Priority", _text(self.rule.get("priority")))

    @property
    def priorities(self) -> list[tuple[str, str]]:
        known = {str(value): word for value, word in PRIORITY_WORDS.items()}
        value = self.priority.value
        return [*known.items(), *([(value, value)] if value and value not in known else [])]

    @property
    def shadow(self) -> FormField:
        shown = _labelled("shadow_class", _text(self.rule.get("shadow_class")))
        return FormField(f"{self.at}-shadow_class", *shown)

    @property
    def classes(self) -> list[str]:
        return _with(SIZE_CLASSES, self.shadow.value)

    @property
    def flags(self) -> list[FormBox]:
        return [
            FormBox(f"{self.at}-{name}", "1", LABELS[name][0], bool(self.rule.get(name)))
            for name in FLAGS
        ]


def form_rows(
    rules: Sequence[FormRule],
    words: Mapping[int, RuleRow],
    problems: Sequence[RuleProblem],
    models: Sequence[str],
    pools: Sequence[str],
) -> list[FormRow]:
    """The rules of a form; `words` are of those that can be read, by their places."""
    return [
        _row(place, each, words.get(place), _beneath(problems, f"rules[{place}]"), models, pools)
        for place, each in enumerate(rules)
    ]


def _row(
    place: int,
    each: FormRule,
    words: RuleRow | None,
    problems: list[RuleProblem],
    models: Sequence[str],
    pools: Sequence[str],
) -> FormRow:
    opened = each.open or words is None
    steps = [
        _step(place, number, step, problems, models, pools)
        for number, step in enumerate(each.rule.get("steps", ()))
    ]
    return FormRow(
        path=str(place),
        number=place + 1,
        at=name_of([place]),
        name=str(each.rule["name"]),
        open=opened,
        words=words,
        json="" if opened else json.dumps(each.rule),
        rule=each.rule,
        steps=steps if opened else [],
        problems=problems,
    )


def _step(
    place: int,
    number: int,
    step: Plain,
    problems: list[RuleProblem],
    models: Sequence[str],
    pools: Sequence[str],
) -> StepRow:
    at, here = name_of([place, number]), f"rules[{place}].steps[{number}]"
    targets = [
        _target([place, number, which], target, problems, models, pools)
        for which, target in enumerate(step["targets"])
    ]
    queue_s = _text(step.get("queue_s", QUEUE_S_DEFAULT))
    field = FormField(f"{at}-queue_s", "Wait for room, s", queue_s.removesuffix(".0"))
    own = [each for each in problems if each.field in (here, f"{here}.queue_s", f"{here}.targets")]
    return StepRow(
        f"{place}-{number}", number + 1, at, field, targets, len(targets) >= TARGETS_MAX, own
    )


def _target(
    path: list[int],
    target: Plain,
    problems: list[RuleProblem],
    models: Sequence[str],
    pools: Sequence[str],
) -> TargetRow:
    place, number, which = path
    fields = {"model": target["model"], "pool": target.get("pool") or ""}
    fields |= {"weight": _text(target.get("weight", 1)), "class": target.get("size_class") or ""}
    return TargetRow(
        path="-".join(map(str, path)),
        number=which + 1,
        at=name_of(path),
        fields=fields,
        models=_with(models, fields["model"]),
        pools=_with(pools, fields["pool"]),
        classes=_with(SIZE_CLASSES, fields["class"]),
        problems=_beneath(problems, f"rules[{place}].steps[{number}].targets[{which}]"),
    )


def _beneath(problems: Iterable[RuleProblem], at: str) -> list[RuleProblem]:
    """Those of a thing and of all its fields."""
    return [each for each in problems if each.field == at or each.field.startswith(f"{at}.")]


def _with(options: Sequence[str], chosen: str) -> list[str]:
    return [*options, *([chosen] if chosen and chosen not in options else [])]


def _boxes(name: str, words: Mapping[str, str], ticked: Iterable[object]) -> list[FormBox]:
    chosen = {str(each) for each in ticked}
    values = dict.fromkeys([*words, *sorted(chosen)])
    return [FormBox(name, each, words.get(each, each), each in chosen) for each in values]


def _labelled(name: str, value: str) -> tuple[str, str, str]:
    label, hint = LABELS[name]
    return label, value, hint


def _text(value: object) -> str:
    return "" if value is None else str(value)
