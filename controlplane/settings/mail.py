"""Outgoing mail by SMTP; none is sent where no host is named."""

from controlplane.settings import env

EMAIL_BACKEND = "controlplane.core.mail.TrustingBackend"
EMAIL_HOST = env.text("SLUICE_EMAIL_HOST")
EMAIL_PORT = env.integer("SLUICE_EMAIL_PORT", 587, least=1, most=65_535)
EMAIL_HOST_USER = env.text("SLUICE_EMAIL_USER")
EMAIL_HOST_PASSWORD = env.text("SLUICE_EMAIL_PASSWORD")
EMAIL_USE_TLS = env.boolean("SLUICE_EMAIL_TLS", True)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("SLUICE_EMAIL_FROM", "sluice@localhost")
