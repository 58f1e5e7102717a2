"""What two runs cannot have alike, taken out: ids by their names, times by their shape."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from controlplane.kernel.ids import id_time_ms
from tests.recorded.client import Heard, Told

# Of a larger body only its checksum is kept.
BODY_CHARS_MAX = 20_000
MS_PER_S = 1000
LENGTH = re.compile(r"^(content-length: )\d+$")
REMAINING = "x-ratelimit-remaining-"
# What is left of a limit far above this grows while a request is under way.
WIDE = 100_000
ID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}(?![0-9a-f])")
CREATED = re.compile(r'("created":)(\d+)')
DURATION = r"(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:ms|s)"
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
# What of a text is a time, and what stands for it.
TEXTS = (
    (re.compile(r'("object":"model","created":)\d+'), r"\1<time>"),
    (re.compile(rf"(Try again in ){DURATION}\."), r"\1<time>."),
    (re.compile(r"(resets in )\d+ s"), r"\1<time>"),
    (re.compile(rf'("reset_s":){NUMBER}'), r"\1<time>"),
    (re.compile(rf'("(?:retry_after_ms|reset_ms)":){NUMBER}'), r"\1<time>"),
    (re.compile(rf'("(?:wait|prefill|active|busy|evict|overflow|cost)_ms":){NUMBER}'),
     r"\1<time>"),
    (re.compile(rf'("(?:rtt|first_thought|first_answer)_us":){NUMBER}'), r"\1<time>"),
    (re.compile(rf'("estimate_ms":){NUMBER}'), r"\1<time>"),
)  # fmt: skip
HEADERS: Mapping[str, Callable[[str], str]] = {
    "date": lambda _: "<date>",
    "openai-processing-ms": lambda value: re.sub(r"^\d+$", "<time>", value),
    "server-timing": lambda value: re.sub(r"dur=\d+\.\d{3}(?=,|$)", "dur=<time>", value),
    "x-ratelimit-reset-requests": lambda value: re.sub(rf"^{DURATION}$", "<time>", value),
    "x-ratelimit-reset-tokens": lambda value: re.sub(rf"^{DURATION}$", "<time>", value),
    "x-ratelimit-reset-requests-day": lambda value: re.sub(rf"^{DURATION}$", "<time>", value),
    "x-sluice-queue-ms": lambda value: re.sub(r"^\d+$", "<time>", value),
    "retry-after-ms": lambda value: re.sub(r"^\d+$", "<time>", value),
}


class Names:
    """Ids in hex digits, and what stands for each."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)

    def learn(self, answers: Iterable[Told], case: str) -> None:
        """The requests that answers name."""
        for number, answer in enumerate(answers, 1):
            digits = answer.header("x-request-id").removeprefix("req_")
            if digits:
                self._known.setdefault(digits, f"request {case}/{number}")

    def learn_one(self, digits: str, name: str) -> None:
        """Another id."""
        self._known.setdefault(digits, name)

    def knows(self, digits: str) -> bool:
        """Whether something stands for it."""
        return digits in self._known

    def text(self, text: str) -> str:
        """With names in place of ids, and with times by their shape."""
        text = CREATED.sub(self._created(text), text)
        text = ID.sub(self._name, text)
        for pattern, shape in TEXTS:
            text = pattern.sub(shape, text)
        return text

    def deep(self, value: Any) -> Any:
        """The same for every text in JSON."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.deep(each) for each in value]
        if isinstance(value, dict):
            return {name: self.deep(each) for name, each in value.items()}
        return value

    def _name(self, found: re.Match[str]) -> str:
        name = self._known.get(found[0].replace("-", ""))
        return found[0] if name is None else f"<{name}>"

    def _created(self, text: str) -> Callable[[re.Match[str]], str]:
        """The second in which the request came is in its id, too."""
        ids = [each.replace("-", "") for each in ID.findall(text)]
        seconds = {id_time_ms(bytes.fromhex(each)) // MS_PER_S for each in ids}

        def shape(found: re.Match[str]) -> str:
            return f"{found[1]}{'<second of its id>' if int(found[2]) in seconds else found[2]}"

        return shape


def shown(heard: Heard, names: Names) -> dict[str, Any]:
    """What a case heard, as it is kept."""
    kept: dict[str, Any] = {"answers": [_answer(each, names) for each in heard.answers]}
    kept["connection"] = heard.connection
    if heard.rest:
        kept["rest"] = names.text(heard.rest.decode("latin-1"))
    return kept


def _answer(told: Told, names: Names) -> dict[str, Any]:
    body = told.body.decode("utf-8", "backslashreplace")
    kept: dict[str, Any] = {"status": told.line}
    if told.interim:
        kept["interim"] = told.interim
    kept["headers"] = [_header(name, value, names, told) for name, value in told.headers]
    kept["framing"] = told.framing
    if told.header("content-type").startswith("text/event-stream"):
        kept["events"] = names.text(body).split("\n\n")
    else:
        kept["body"] = names.text(body)
    if len(kept.get("body", "")) > BODY_CHARS_MAX:
        digest = sha256(kept["body"].encode()).hexdigest()
        kept["body"] = f"{len(body)} characters, {digest}"
    if "<time>" in kept.get("body", "") and told.header("content-length") == str(len(told.body)):
        kept["headers"] = [LENGTH.sub(r"\1<its length>", each) for each in kept["headers"]]
    return kept


def _header(name: str, value: str, names: Names, told: Told) -> str:
    shape = HEADERS.get(name.lower())
    if name.startswith(REMAINING):
        limit = told.header(f"x-ratelimit-limit-{name.removeprefix(REMAINING)}")
        if int(limit) > WIDE and int(limit) - int(value) < WIDE:
            return f"{name}: <nearly all>"
    if name == "retry-after" and told.header("retry-after-ms"):
        # Drawn within a range, so that not all come back at once.
        return f"{name}: <time>"
    return f"{name}: {names.text(value) if shape is None else shape(value)}"


def line(record: Mapping[str, Any]) -> str:
    """A record as a line of its file."""
    return json.dumps(record, ensure_ascii=False)
