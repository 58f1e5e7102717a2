"""Messages about alerts: queued with the alert's change, sent afterwards, tried again with bounds.

One message per alert, event and channel or owner, which constraints see to.
"""

import uuid
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta

import msgspec
import structlog
from django.db import connections
from django.utils import timezone

from controlplane.core.mail import mail_send
from controlplane.core.outbound import OUTBOUND_S_MAX, NotReached
from controlplane.core.permissions import organization_scope
from controlplane.core.queries import rows
from controlplane.core.seal import BrokenSeal
from controlplane.kernel.clock import monotonic_s, wall_s
from controlplane.kernel.ids import public_id
from controlplane.slos.channels.delivery import (
    EMAIL,
    WEBHOOK,
    address_digest,
    address_of,
    post,
    signed,
    signing_secrets,
)
from controlplane.slos.channels.formats import posted
from controlplane.slos.channels.words import (
    TEST_SUBJECT,
    TEST_WORDS,
    payload,
    subject,
    test_payload,
    words,
)
from controlplane.slos.models import ADDRESS_CHARS_MAX, Alert, Channel, Delivery

RESEALED = "the address was encrypted with another key: remove the channel and add it again"
ATTEMPTS_MAX = 8
RETRY_FIRST = timedelta(seconds=15)
# 15 s, 30 s … 16 min: about half an hour in all.
NEVER = timedelta(days=36_500)
# One run, with all that it has begun; no other job waits longer for it.
RUN_S_MAX = 23.0
# At once, and how many of them for one organization: a receiver that hangs keeps out its own alone.
SENDERS, SHARE = 4, 2
DUE_MAX = 20
# Another worker leaves a message alone for as long as one may take to send.
CLAIM = timedelta(minutes=2)
log = structlog.get_logger(__name__)


def messages_queue(alert: Alert, event: str, now: datetime) -> None:
    """Queue one message for each channel and for the owner; part of the alert's transaction."""
    channels = Channel.objects.filter(organization=alert.organization)
    wanted: list[tuple[str, str, Channel | None]] = [(one.kind, "", one) for one in channels]
    owner = alert.objective.email
    told = {bytes(one.digest) for one in channels}
    if owner and address_digest(alert.organization, EMAIL, owner) not in told:
        wanted.append((EMAIL, owner, None))
    for kind, address, channel in wanted:
        Delivery.objects.get_or_create(
            alert=alert,
            event=event,
            channel=channel,
            address=address,
            defaults={"organization": alert.organization, "kind": kind, "due_at": now},
        )


def messages_send() -> int:
    """Send what is due, in bounded time; returns how many arrived."""
    end_s = monotonic_s() + RUN_S_MAX - OUTBOUND_S_MAX
    busy: dict[Future[bool], uuid.UUID] = {}
    tried: set[uuid.UUID] = set()
    arrived = 0
    with ThreadPoolExecutor(SENDERS, "sender") as senders:
        while monotonic_s() < end_s:
            for organization, delivery in _due(tried):
                if len(busy) < SENDERS and list(busy.values()).count(organization) < SHARE:
                    busy[senders.submit(_send_alone, organization, delivery)] = organization
                    tried.add(delivery)
            if not busy:
                break
            done, _ = wait(busy, max(0.0, end_s - monotonic_s()), FIRST_COMPLETED)
            arrived += sum(one.result() for one in done)
            busy = {one: whose for one, whose in busy.items() if one not in done}
    return arrived + sum(one.result() for one in busy)


def _due(tried: set[uuid.UUID]) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """Organizations and messages that are due, a few of each organization."""
    due = rows("SELECT organization, delivery FROM slo_deliveries_due(%s, %s)", [DUE_MAX, SHARE])
    return [(whose, delivery) for whose, delivery in due if delivery not in tried]


def _send_alone(organization: uuid.UUID, delivery_id: uuid.UUID) -> bool:
    """As `_send`, in a thread, which has connections of its own."""
    try:
        return _send(organization, delivery_id)
    finally:
        connections.close_all()


def _send(organization: uuid.UUID, delivery_id: uuid.UUID) -> bool:
    delivery = _claim(organization, delivery_id)
    if delivery is None:
        return False
    error = ""
    try:
        _deliver(delivery)
    except NotReached as failure:
        error = str(failure)[:ADDRESS_CHARS_MAX]
        log.warning("alert_not_told", kind=delivery.kind, error=error, attempt=delivery.attempts)
    now = timezone.now()
    with organization_scope([organization]):
        kept = Delivery.objects.filter(id=delivery_id)
        if not error:
            kept.update(sent_at=now, error="")
        elif delivery.attempts >= ATTEMPTS_MAX:
            kept.update(due_at=now + NEVER, error=error)
        else:
            wait = RETRY_FIRST * 2 ** (delivery.attempts - 1)
            kept.update(due_at=now + wait, error=error)
    return not error


def _claim(organization: uuid.UUID, delivery_id: uuid.UUID) -> Delivery | None:
    """The message, this run's alone for a while; None where another has it."""
    now = timezone.now()
    with organization_scope([organization]):
        due = Delivery.objects.filter(id=delivery_id, sent_at=None, due_at__lte=now)
        due = due.select_related("alert__objective", "channel")
        found = due.select_for_update(of=("self",)).first()
        if found is None:
            return None
        found.attempts += 1
        # A worker that dies over the last try must not leave one more.
        found.due_at = now + (CLAIM if found.attempts < ATTEMPTS_MAX else NEVER)
        found.save(update_fields=["attempts", "due_at"])
    return found


def _deliver(delivery: Delivery) -> None:
    alert, event, address = delivery.alert, delivery.event, address_to(delivery)
    if about := delivery.about:
        title, text = about["title"], about["text"]
        told = {"id": public_id("delivery", delivery.id), **about}
    elif alert is None:
        title, text, told = TEST_SUBJECT, TEST_WORDS, test_payload(delivery)
    else:
        title, text = subject(alert, event), words(alert, event)
        told = payload(alert, event, delivery.id)
    if delivery.kind == EMAIL:
        if not mail_send(to=[address], subject=title, text=text):
            raise NotReached("no mail server accepted it")
        return
    if delivery.kind != WEBHOOK:
        made = posted(delivery, address, title=title, text=text, link=told["link"])
        post(made.address, msgspec.json.encode(made.body), made.headers)
        return
    body = msgspec.json.encode(told)
    secrets = signing_secrets(delivery.channel_id or delivery.id)
    post(address, body, signed(secrets, told["id"], body, int(wall_s())))


def address_to(delivery: Delivery) -> str:
    """Where it goes; raises NotReached where the address cannot be opened."""
    channel = delivery.channel
    if channel is None:
        return delivery.address
    try:
        return address_of(channel.id, channel.organization, bytes(channel.sealed))
    except BrokenSeal:
        raise NotReached(RESEALED) from None
