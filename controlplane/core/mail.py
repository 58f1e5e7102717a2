"""Mail to people. It is a courtesy: what it tells is on a page too, and nothing fails with it."""

import smtplib
from collections.abc import Iterable

import structlog
from django.conf import settings
from django.core.mail import EmailMessage

RECIPIENTS_MAX = 100
_log = structlog.get_logger(__name__)


def mail_send(*, to: Iterable[str], subject: str, text: str) -> bool:
    """Send a plain mail, each address unseen by the others; whether a server took it.

    Call it after the commit, never inside a transaction: a slow server would hold its rows.
    """
    addresses = list(to)[:RECIPIENTS_MAX]
    if not settings.EMAIL_HOST or not addresses:
        return False
    message = EmailMessage(subject=subject, body=text, bcc=addresses)
    try:
        return bool(message.send())
    except (OSError, smtplib.SMTPException) as error:
        _log.warning("mail not sent", subject=subject, error=str(error))
        return False
