"""Notification channels: addresses, messages, delivery."""
