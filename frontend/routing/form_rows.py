"""What the form of a draft shows: each rule in words or in fields, and what is wrong beside it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from controlplane.kernel.rules import QUEUE_S_DEFAULT, SIZE_CLASSES, STEPS_MAX, TARGETS_MAX
from controlplane.routing.checks import RuleProblem
from frontend.routing.editor import (
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
    "aliases": ("Models or aliases", "Names in requests, separated by commas; blank for any."),
    "tags": ("Key tags", "Separated by commas."),
    "organizations": ("Organizations", "Names or IDs (org_…), separated by commas."),
    "projects": ("Projects", "As “Acme · web”, or IDs (proj_…)."),
    "prompt_tokens_min": ("Min. prompt tokens", ""),
    "prompt_tokens_max": ("Max. prompt tokens", ""),
    "deadline_s": ("Deadline, s", "For the whole request."),
    "first_token_s": ("First token timeout, s", "Per node; then another node is tried."),
    "degrade_order": ("Degrade order", "Lower numbers are moved or shed first under load."),
    "priority": ("Priority", ""),
    "continues_lost": ("Continue when a node is lost", ""),
    "widen": ("Allow models that the key does not allow", ""),
    "on_too_long": ("Next step if the prompt is too long", ""),
    "on_content_filter": ("Next step if an answer is filtered", ""),
    "shadow_class": ("Shadow: always serve", "The chosen size class is only recorded."),
}
TASKS = {"generate": "generate", "embed": "embed"}
PRIORITIES = {str(value): word for value, word in PRIORITY_WORDS.items()}


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
        texts = [self._field(name, listed_text(match.get(name, ()))) for name in LISTS]
        return [*texts, *(self._field(name, _text(match.get(name))) for name in SIZES)]

    @property
    def boxes(self) -> list[tuple[str, list[FormBox]]]:
        match = self.rule.get("match", {})
        known = {"tasks": ("Tasks", TASKS), "priorities": ("Key priorities", PRIORITIES)}
        return [
            (legend, _boxes(f"{self.at}-{name}", words, match.get(name, ())))
            for name, (legend, words) in known.items()
        ]

    @property
    def choices(self) -> list[tuple[FormField, list[Any], str]]:
        """Fields to choose from, each with what there is and the word for nothing."""
        priority, shadow = (self._option(name) for name in ("priority", "shadow_class"))
        known = [*PRIORITIES.items()]
        if priority.value and priority.value not in PRIORITIES:
            known.append((priority.value, priority.value))
        return [
            (priority, known, "the key’s"),
            (shadow, _with(SIZE_CLASSES, shadow.value), "no shadow"),
        ]

    @property
    def numbers(self) -> list[FormField]:
        return [self._option(name) for name in NUMBERS if name != "priority"]

    @property
    def flags(self) -> list[FormBox]:
        return [
            FormBox(f"{self.at}-{name}", "1", LABELS[name][0], bool(self.rule.get(name)))
            for name in FLAGS
        ]

    def _option(self, name: str) -> FormField:
        return self._field(name, _text(self.rule.get(name)))

    def _field(self, name: str, value: str) -> FormField:
        label, hint = LABELS[name]
        return FormField(f"{self.at}-{name}", label, value, hint)


class RuleForm:
    """Rows of a form, with the `problems` of its rules, and the models and pools that there are."""

    def __init__(
        self, problems: Sequence[RuleProblem], models: Sequence[str], pools: Sequence[str]
    ) -> None:
        self._problems, self._models, self._pools = problems, models, pools

    def row(self, place: int, each: FormRule, words: RuleRow | None) -> FormRow:
        """A rule; `words` are of one that can be read."""
        opened = each.open or words is None
        steps = enumerate(each.rule.get("steps", ())) if opened else ()
        return FormRow(
            path=str(place),
            number=place + 1,
            at=name_of([place]),
            name=str(each.rule["name"]),
            open=opened,
            words=words,
            json="" if opened else json.dumps(each.rule),
            rule=each.rule,
            steps=[self._step(place, number, step) for number, step in steps],
            problems=self._beneath(f"rules[{place}]"),
        )

    def _step(self, place: int, number: int, step: Plain) -> StepRow:
        at, here = name_of([place, number]), f"rules[{place}].steps[{number}]"
        targets = [
            self._target([place, number, which], target)
            for which, target in enumerate(step["targets"])
        ]
        queue_s = _text(step.get("queue_s", QUEUE_S_DEFAULT)).removesuffix(".0")
        own = (here, f"{here}.queue_s", f"{here}.targets")
        return StepRow(
            f"{place}-{number}",
            number + 1,
            at,
            FormField(f"{at}-queue_s", "Max. wait for capacity, s", queue_s),
            targets,
            len(targets) >= TARGETS_MAX,
            [each for each in self._problems if each.field in own],
        )

    def _target(self, path: list[int], target: Plain) -> TargetRow:
        place, number, which = path
        model, pool, size = (target.get(name) or "" for name in ("model", "pool", "size_class"))
        weight = _text(target.get("weight", 1))
        return TargetRow(
            path="-".join(map(str, path)),
            number=which + 1,
            at=name_of(path),
            fields={"model": model, "pool": pool, "weight": weight, "class": size},
            models=_with(self._models, model),
            pools=_with(self._pools, pool),
            classes=_with(SIZE_CLASSES, size),
            problems=self._beneath(f"rules[{place}].steps[{number}].targets[{which}]"),
        )

    def _beneath(self, at: str) -> list[RuleProblem]:
        """Problems of a thing and of all its fields."""
        return [
            each for each in self._problems if each.field == at or each.field.startswith(f"{at}.")
        ]


def _with(options: Sequence[str], chosen: str) -> list[str]:
    return [*options, *([chosen] if chosen and chosen not in options else [])]


def _boxes(name: str, words: Mapping[str, str], ticked: Iterable[object]) -> list[FormBox]:
    chosen = {str(each) for each in ticked}
    values = dict.fromkeys([*words, *sorted(chosen)])
    return [FormBox(name, each, words.get(each, each), each in chosen) for each in values]


def _text(value: object) -> str:
    return "" if value is None else str(value)
