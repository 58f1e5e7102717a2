"""Ids in addresses."""

import uuid

import pytest
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from controlplane.kernel.ids import public_id


def test_an_address_has_the_public_form_of_an_id() -> None:
    one = uuid.uuid4()
    assert reverse("request", args=[one]) == f"/requests/req_{one.hex}"
    assert reverse("invoice_file", args=[one, "pdf"]) == f"/invoices/inv_{one.hex}.pdf"
    with pytest.raises(NoReverseMatch):
        reverse("request", args=["no id"])


def test_an_address_is_read_in_every_form_of_an_id() -> None:
    one = uuid.uuid4()
    for text in (public_id("req", one), one.hex, str(one), f"chatcmpl-{one.hex}"):
        assert resolve(f"/requests/{text}").kwargs == {"request_id": one}


def test_an_id_of_another_kind_is_in_no_address() -> None:
    with pytest.raises(Resolver404):
        resolve(f"/requests/{public_id('key', uuid.uuid4())}")
