"""What a message about an alert looks like to the programs that people use for them.

PagerDuty (Events API v2) and Opsgenie (Alert API v2) open, acknowledge and close one alert of
theirs for each of ours. Their key is the address's fragment, which no request has in its URL.
"""

from typing import Any, NamedTuple
from urllib.parse import urldefrag

from controlplane.kernel.ids import public_id
from controlplane.kernel.objectives.burn import ABSENT
from controlplane.slos.channels.delivery import PAGERDUTY, SLACK, TEAMS
from controlplane.slos.channels.words import ASSIGNED, RECOVERED
from controlplane.slos.models import Delivery

CARD = "application/vnd.microsoft.card.adaptive"
CARD_SCHEMA, CARD_VERSION = "http://adaptivecards.io/schemas/adaptive-card.json", "1.4"
OPSGENIE_MESSAGE_CHARS_MAX = 130
SOURCE = "sluice"
# By our severity; a test has none.
SEVERITIES = {"page": "critical", "ticket": "warning", ABSENT: "error"}
PRIORITIES = {"page": "P1", "ticket": "P3", ABSENT: "P2"}


class Posted(NamedTuple):
    """A request: where to, what, and with which headers of its own."""

    address: str
    body: Any
    headers: dict[str, str] = {}


def posted(delivery: Delivery, address: str, *, title: str, text: str, link: str) -> Posted:
    """The message of a channel of one of these kinds."""
    alert, event = delivery.alert, delivery.event
    about = delivery.about
    key = public_id("alert", alert.id) if alert else public_id("delivery", delivery.id)
    if about:
        # One there for each period of a budget, whatever was reached in it.
        key = f"{about['budget']}:{about['began_at']}"
    severity = alert.severity if alert else about.get("severity", "")
    if delivery.kind == SLACK:
        return Posted(address, {"text": f"*{title}*\n{text}"})
    if delivery.kind == TEAMS:
        return Posted(address, _card(title, text, link))
    base, secret = urldefrag(address)
    if delivery.kind == PAGERDUTY:
        return Posted(base, _event(secret, key, event) | _told(severity, title, text, link))
    headers = {"Authorization": f"GenieKey {secret}"}
    if done := {RECOVERED: "close", ASSIGNED: "acknowledge"}.get(event):
        path = f"{base.rstrip('/')}/{key}/{done}?identifierType=alias"
        return Posted(path, {"source": SOURCE, "note": title}, headers)
    return Posted(base, _genie(key, severity, title, text), headers)


def _card(title: str, text: str, link: str) -> dict[str, Any]:
    blocks = [
        {"type": "TextBlock", "text": title, "weight": "Bolder", "size": "Medium", "wrap": True},
        *({"type": "TextBlock", "text": line, "wrap": True} for line in text.splitlines()),
    ]
    card: dict[str, Any] = {
        "$schema": CARD_SCHEMA,
        "type": "AdaptiveCard",
        "version": CARD_VERSION,
        "body": blocks,
    }
    if "://" in link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": link}]
    return {"type": "message", "attachments": [{"contentType": CARD, "content": card}]}


def _event(secret: str, key: str, event: str) -> dict[str, Any]:
    action = {RECOVERED: "resolve", ASSIGNED: "acknowledge"}.get(event, "trigger")
    return {"routing_key": secret, "event_action": action, "dedup_key": key, "client": "Sluice"}


def _told(severity: str, title: str, text: str, link: str) -> dict[str, Any]:
    payload = {
        "summary": title,
        "source": SOURCE,
        "severity": SEVERITIES.get(severity, "info"),
        "custom_details": {"text": text},
    }
    links = [{"href": link, "text": "Sluice"}] if "://" in link else []
    return {"payload": payload, "links": links}


def _genie(key: str, severity: str, title: str, text: str) -> dict[str, Any]:
    return {
        "message": title[:OPSGENIE_MESSAGE_CHARS_MAX],
        "alias": key,
        "description": text,
        "source": SOURCE,
        "priority": PRIORITIES.get(severity, "P5"),
    }
