"""What a version would change in the rules in force: in words, rule by rule, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import count

import msgspec

from controlplane.kernel.rules import RouteRule
from controlplane.routing.models import RuleSet
from frontend.routing.rows import rule_words
from frontend.shared.formats import MISSING
from frontend.shared.versions import difference

CHANGES_SHOWN_MAX = 50
TONES = {"added": "ok", "removed": "bad", "changed": "warn", "moved": "off", "renamed": "off"}
Key = tuple[str, int]


@dataclass(frozen=True)
class RuleChange:
    """What happens to one rule; `fields` are those that differ, as they were and as they are."""

    name: str
    what: tuple[str, ...]
    note: str
    fields: list[tuple[str, str, str]]

    @property
    def tones(self) -> list[tuple[str, str]]:
        return [(word, TONES[word]) for word in self.what]


@dataclass(frozen=True)
class Comparison:
    """From one version to another; `left_out` changes are not among those in words."""

    before: str
    after: str
    changes: list[RuleChange]
    left_out: int
    json: str


def comparison_of(
    before: RuleSet | None, after: RuleSet | None, changes: list[RuleChange]
) -> Comparison:
    names = [f"version {each.version}" if each else "no rules" for each in (before, after)]
    contents = [each.rules if each else [] for each in (before, after)]
    told = difference(contents[0], contents[1], (names[0], names[1]))
    left_out = max(0, len(changes) - CHANGES_SHOWN_MAX)
    return Comparison(names[0], names[1], changes[:CHANGES_SHOWN_MAX], left_out, told)


def rule_changes(
    before: Sequence[RouteRule], after: Sequence[RouteRule], names: Mapping[str, str]
) -> list[RuleChange]:
    """Rules that are not as they were, in their new order, then those removed.

    Rules are known by their names; `names` are of tenants by hex id.
    """
    old, new = _keyed(before), _keyed(after)
    renamed = _renamed(old, new)
    stays = _stays(list(old), [renamed.get(key, key) for key in new])
    places = {key: place for place, key in enumerate(old, 1)}
    found = []
    for place, (key, rule) in enumerate(new.items(), 1):
        was = renamed.get(key, key)
        fields = _fields(old.get(was), rule, names)
        if was not in old:
            found.append(RuleChange(rule.name, ("added",), f"as rule {place}", fields))
            continue
        told = {"renamed": was != key, "changed": bool(fields), "moved": was not in stays}
        notes = [f"was {was[0]}"] if told["renamed"] else []
        notes += [f"from rule {places[was]} to {place}"] if told["moved"] else []
        if any(told.values()):
            what = tuple(word for word, holds in told.items() if holds)
            found.append(RuleChange(rule.name, what, ", ".join(notes), fields))
    kept = {renamed.get(key, key) for key in new}
    for key in (key for key in old if key not in kept):
        note, fields = f"was rule {places[key]}", _fields(old[key], None, names)
        found.append(RuleChange(key[0], ("removed",), note, fields))
    return found


def _keyed(rules: Sequence[RouteRule]) -> dict[Key, RouteRule]:
    """By name; a draft may have one twice, so each with how many of its name are above it."""
    seen: dict[str, count[int]] = {}
    return {(rule.name, next(seen.setdefault(rule.name, count()))): rule for rule in rules}


def _renamed(old: Mapping[Key, RouteRule], new: Mapping[Key, RouteRule]) -> dict[Key, Key]:
    """New names, each with the old one of a rule that is the same but for that."""
    gone = {_nameless(rule): key for key, rule in old.items() if key not in new}
    added = ((key, _nameless(rule)) for key, rule in new.items() if key not in old)
    return {key: was for key, bare in added if (was := gone.pop(bare, None)) is not None}


def _nameless(rule: RouteRule) -> RouteRule:
    return msgspec.structs.replace(rule, name="", version=0)


def _stays(old: list[Key], new: list[Key]) -> set[Key]:
    """Those whose order among the others is as before."""
    both = set(old) & set(new)
    first, second = ([key for key in keys if key in both] for keys in (old, new))
    blocks = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    return {key for block in blocks for key in first[block.a : block.a + block.size]}


def _fields(
    before: RouteRule | None, after: RouteRule | None, names: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    old, new = (rule_words(rule, names) if rule else {} for rule in (before, after))
    labels = dict.fromkeys([*old, *new])
    pairs = ((label, old.get(label, MISSING), new.get(label, MISSING)) for label in labels)
    return [each for each in pairs if each[1] != each[2]]
