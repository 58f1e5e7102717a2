"""Decoding: any bytes become a small JPEG or a refusal of their field."""

from __future__ import annotations

import random
from io import BytesIO

import pytest
from PIL import Image

from controlplane.gateway.ask import Picture
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.tasks.pictures import _decoded, fitted
from tests.support.pictures import data_url, image_file

FORMS = ("PNG", "JPEG", "WEBP", "GIF")


def decoded(data: bytes, *, squares_max: int = 64, patch: int = 28) -> tuple[Image.Image, Picture]:
    picture = Picture(0, "messages[0].content[0]", data_url(data))
    made = _decoded(picture, data=None, patch=patch, squares_max=squares_max)
    return Image.open(BytesIO(made.jpeg)), made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "CMYK"])
def test_every_known_format_becomes_a_small_jpeg(form: str, mode: str) -> None:
    if form in ("JPEG", "WEBP") and mode in ("RGBA", "P", "1"):
        mode = "RGB"
    shown, made = decoded(image_file((900, 300), form=form, mode="RGB" if mode == "CMYK" and
                                     form != "JPEG" else mode))  # fmt: skip
    assert (shown.format, shown.mode) == ("JPEG", "RGB")
    assert made.tokens <= 68
    assert not made.source
    assert shown.width == pytest.approx(3 * shown.height, rel=0.05)


def test_what_is_transparent_is_white_and_a_turned_photo_stands_upright() -> None:
    clear = BytesIO()
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(clear, "PNG")
    shown, _ = decoded(clear.getvalue())
    assert shown.convert("L").getextrema() == (255, 255)
    turned = BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(turned, "JPEG", exif=exif)
    shown, _ = decoded(turned.getvalue())
    assert shown.size == (20, 40)
    assert not shown.getexif(), "where it was taken is nobody's business"


def test_a_picture_is_never_enlarged_and_always_fits() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        width, height = (round(10 ** chance.uniform(0, 4.5)) for _ in range(2))
        patch, most = chance.randrange(4, 100), chance.randrange(1, 2_000)
        wide, high = fitted(width, height, patch, most)
        assert 1 <= wide <= width
        assert 1 <= high <= height
        assert -(-wide // patch) * -(-high // patch) <= most


def test_any_damage_is_a_picture_or_a_refusal_by_its_field() -> None:
    chance = random.Random(11)
    files = [image_file((48, 40), form=form) for form in FORMS]
    for _ in range(400):
        data = bytearray(chance.choice(files))
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        try:
            shown, made = decoded(bytes(data))
        except Refusal as refusal:
            assert (refusal.status, refusal.param) == (400, "messages[0].content[0]")
        else:
            assert shown.format == "JPEG"
            assert made.tokens >= 5
