"""The servers that a node can stand before: how each is recognised, and what it can."""

import logging
import re
from typing import Any, Literal

import msgspec

from inference.contract.capabilities import Capability, capabilities
from inference.errors import ModelError

# What any OpenAI-compatible server is taken to do.
STANDARD = capabilities(
    "text stream n prompts grammar temperature top_p top_k min_p frequency_penalty presence_penalty"
    " logit_bias seed cancel deadline prefix_cache"
)
_OPEN = "stop_tokens ignore_eos min_tokens repetition_penalty"
BEARER = "authorization"
VERSION_CHARS_MAX = 40
RELEASE = re.compile(r"(\d+)\.(\d+)(?!\d)")

log = logging.getLogger(__name__)


class ServerKind(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is told from others, and what sets it apart from the standard.

    `owners` are what its list of models may say it is `owned_by`, `hosts` how its address, behind
    a dot, may end. `paths` from its root tell its version in the last of `fields`; one that has all
    of them is recognised by it, too. `adds` and `lacks` are capabilities; `counts`: it counts in
    every chunk of a stream; `publishes`: it has a channel of cache events, which `tells_salts` or
    not; `scores`: it tells log probabilities by token ids. `key` is the header of its key, `also`
    are others that it demands; `messages`: its API is Anthropic's. `tested` are the first release
    that this was tested with, and the first that it was not; None: any. `tokenizes` is what its
    `/tokenize` takes: prompts alone, chats as well, or what its own template makes of a chat.
    """

    owners: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    fields: tuple[str, ...] = ("version",)
    adds: str = ""
    lacks: str = ""
    counts: bool = False
    publishes: bool = False
    tells_salts: bool = True
    scores: bool = False
    key: str = BEARER
    tested: tuple[tuple[int, int], tuple[int, int]] | None = None
    also: tuple[tuple[str, str], ...] = ()
    messages: bool = False
    tokenizes: Literal["", "prompts", "chats", "templates"] = ""

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        lacking = capabilities(self.lacks)
        kept = (each for each in STANDARD if each not in lacking)
        return (*kept, *capabilities(self.adds))

    @property
    def salts(self) -> bool:
        """Whether requests can keep the caches of tenants apart."""
        return Capability.SALT in self.capabilities


_HOSTED = "top_k min_p"
# The last is any other.
KINDS = {
    "vllm": ServerKind(
        owners=("vllm",), paths=("/version",), adds=f"{_OPEN} salt", counts=True, publishes=True,
        scores=True, tested=((0, 32), (0, 33)), tokenizes="chats",
    ),
    "sglang": ServerKind(
        owners=("sglang",), paths=("/server_info", "/get_server_info"),
        fields=("tokenizer_path", "version"), adds=f"{_OPEN} salt", counts=True, publishes=True,
        tells_salts=False, tokenizes="prompts",
    ),
    "llama.cpp": ServerKind(
        owners=("llamacpp",), paths=("/props",), fields=("total_slots", "build_info"),
        adds="ignore_eos", tokenizes="templates",
    ),
    "ollama": ServerKind(paths=("/api/version",), lacks=f"n logit_bias {_HOSTED}"),
    "tgi": ServerKind(
        paths=("/info",), fields=("model_id", "version"), lacks=f"n logit_bias {_HOSTED}"
    ),
    "anthropic": ServerKind(
        hosts=(".api.anthropic.com",),
        lacks="n prompts logit_bias seed frequency_penalty presence_penalty grammar min_p",
        key="x-api-key",
        also=(("anthropic-version", "2023-06-01"),),
        messages=True,
    ),
    "azure": ServerKind(
        hosts=(".openai.azure.com", ".services.ai.azure.com"), lacks=_HOSTED, key="api-key"
    ),
    "openai": ServerKind(hosts=(".api.openai.com",), lacks=_HOSTED),
    "other": ServerKind(),
}  # fmt: skip
AUTO = "auto"


def kind_at(host: str) -> str:
    """The kind that an address gives away; `AUTO` where only its answers can."""
    return next((n for n, kind in KINDS.items() if f".{host}".endswith(kind.hosts)), AUTO)


def kind_of_owner(owner: object) -> str:
    """The kind whose list of models says this; `AUTO` where that says nothing."""
    return next((name for name, kind in KINDS.items() if owner in kind.owners), AUTO)


def version_of(kind: ServerKind, answer: dict[str, Any]) -> str | None:
    """The version that an answer of one of its paths tells; None where it is another's answer."""
    told = [answer.get(field) for field in kind.fields]
    if None in told:
        return None
    return "".join(filter(str.isprintable, str(told[-1])))[:VERSION_CHARS_MAX]


def check_version(name: str, version: str) -> None:
    """Only where it tells no release it is served untested; raises `ModelError`."""
    tested = KINDS[name].tested
    if tested is None:
        return
    told, said = RELEASE.match(version), " to before ".join(f"{a}.{b}" for a, b in tested)
    if told is None:
        log.warning("%s does not tell its release: it may not be one from %s", name, said)
    elif not tested[0] <= (int(told[1]), int(told[2])) < tested[1]:
        raise ModelError(
            f"{name} {version}: only releases from {said} are tested; use one of them, or attach"
            " the server by --engine remote --server other, without what is not standard"
        )
