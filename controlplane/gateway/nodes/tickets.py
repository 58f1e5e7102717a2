"""A ticket proves that a node was given a job, and by which gateway: no report counts without.

All gateways of an installation share the key, and no node has it. A ticket is good for one
request, one model and one life of one node.
"""

import hmac
from hashlib import blake2b, sha256

import msgspec

from inference.contract.frames import Job, Report

PURPOSE = b"sluice.job-ticket"
MAC_BYTES = 32


def ticket_key(secret: bytes) -> bytes:
    """The key of tickets, derived from a secret that gateways share and nodes do not have."""
    return hmac.digest(secret, PURPOSE, sha256)


class JobTickets:
    """Gives out this gateway's tickets and checks those of all; `gateway` is its instance id."""

    def __init__(self, key: bytes, gateway: str) -> None:
        # Keyed BLAKE2 (RFC 7693) is a MAC by itself, at a fraction of what an HMAC takes.
        self._key = key
        self._gateway = gateway.encode()

    def issue(self, job: Job, *, node: str, epoch: str) -> bytes:
        """The ticket of a job for one life of a node."""
        return self._mac(self._gateway, job, node, epoch) + self._gateway

    def giver(self, report: Report, *, node: str, epoch: str) -> str | None:
        """The gateway that gave this node this request for this model; None where none did."""
        mac, gateway = report.ticket[:MAC_BYTES], report.ticket[MAC_BYTES:]
        known = hmac.compare_digest(mac, self._mac(gateway, report, node, epoch))
        return gateway.decode() if known else None

    def _mac(self, gateway: bytes, of: Job | Report, node: str, epoch: str) -> bytes:
        # Encoded as a list, so that no two lists of parts make the same text.
        text = msgspec.msgpack.encode((gateway, of.request, of.model, node, epoch))
        return blake2b(text, digest_size=MAC_BYTES, key=self._key).digest()
