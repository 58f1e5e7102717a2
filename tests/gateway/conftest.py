"""Fixtures of a whole gateway: without a node, and with one echo node."""

from tests.support.serving import bare, model, serving, steady

__all__ = ["bare", "model", "serving", "steady"]
