"""Mail to people. It is a courtesy: what it tells is on a page too, and nothing fails with it."""

import smtplib
import ssl
from collections.abc import Iterable

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend
from django.core.validators import validate_email
from django.utils.functional import cached_property

from inference.tls import client_context

RECIPIENTS_MAX = 100
# What columns keep; longer ones are no addresses of mail, though their form may pass for one.
EMAIL_CHARS_MAX = 254
NOT_EMAIL = f"Must be an e-mail address of at most {EMAIL_CHARS_MAX} characters."
_log = structlog.get_logger(__name__)


class TrustingBackend(EmailBackend):
    """SMTP with a server whose certificate may be of an authority that the installation adds."""

    @cached_property
    def ssl_context(self) -> ssl.SSLContext:
        return client_context()


def is_email(text: str) -> bool:
    """Whether it has the form of an address, and is no longer than one that can be kept."""
    try:
        validate_email(text)
    except ValidationError:
        return False
    return len(text) <= EMAIL_CHARS_MAX


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
