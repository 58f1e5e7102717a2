"""Stored templates at admission: which version a request gets, and whether its variables fit.

Nothing is put together here: stage 3 does that. What it will add counts in the request's size, so
that limits and the hold know of it.
"""

from hashlib import sha256

import msgspec

from controlplane.gateway.ask import Ask, Assembly, PromptUse
from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.gateway.snapshot import KeyRecord, PromptRecord, Snapshot
from controlplane.kernel.prompts import BadValue, checked_values, filled_bytes
from controlplane.kernel.rules import PERMILLE


def find_prompt(request: bytes, ask: Ask, key: KeyRecord, snapshot: Snapshot) -> Ask:
    """The request with its template found and its size told; raises `Refusal` by field."""
    use = ask.prompt
    if use is None:
        return ask
    record = snapshot.prompts.get(f"{key.organization}/{use.name}")
    if record is None or record.project not in (None, key.project):
        raise _unknown(
            "prompt.id",
            f"The prompt template '{use.name}' does not exist, or this "
            "key does not have access to it.",
        )
    version = _version(request, use, record)
    body = record.versions[version]
    try:
        values = checked_values(body, use.values)
    except BadValue as error:
        field = ".".join(filter(None, ("prompt.variables", error.name)))
        raise bad_field(field, str(error), error.code) from error
    assembly = Assembly(record.name, version, body, values)
    size = ask.bytes + filled_bytes(body, values)
    return msgspec.structs.replace(ask, assembly=assembly, bytes=size)


def _version(request: bytes, use: PromptUse, record: PromptRecord) -> int:
    """The one that was asked for; else the canary for its share of requests."""
    if use.version is not None:
        if use.version not in record.versions:
            kept = ", ".join(map(str, sorted(record.versions)))
            told = (
                f"Version {use.version} of '{record.name}' cannot be used. Available versions: "
                f"{kept}."
            )
            raise _unknown("prompt.version", told)
        return use.version
    if record.canary is not None and _draw(request) < record.share_permille:
        return record.canary
    return record.published


def _draw(request: bytes) -> int:
    """Independent of the draw by which rules are chosen, so that two trials do not mix."""
    return int.from_bytes(sha256(b"prompt" + request).digest()[:8], "big") % PERMILLE


def _unknown(field: str, message: str) -> Refusal:
    return Refusal(404, "prompt_not_found", message, param=field, headers=NO_RETRY)
