"""Pictures as a model takes them: found, decoded beside the loop, made small enough, JPEG again."""

import base64
import re
from functools import partial
from io import BytesIO
from math import ceil, sqrt

from msgspec import structs

from controlplane.gateway.app_state import AppState
from controlplane.gateway.ask import Ask, Picture
from controlplane.gateway.call import Call
from controlplane.gateway.ports_contents import FetchRefused
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.gateway.results import Asked
from controlplane.gateway.s1_admission.body import no_room
from controlplane.gateway.s3_tokenize.encode import ENCODE
from controlplane.gateway.snapshot import ModelRecord
from inference.contract.parts import PICTURE_MARK_TOKENS

# One is decoded at a time: with its copies it takes some 256 MiB.
PIXELS_MAX = 32 * 1024 * 1024
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
LOW_PIXELS = 512 * 512
QUALITY = 90
SHRINK = 0.98
_DATA = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,", re.ASCII)


async def shown_pictures(
    call: Call, ask: Ask, asked: Asked, model: ModelRecord, state: AppState
) -> Ask:
    """The request with its pictures as the model takes them; raises `Refusal`."""
    began = call.spans.clock()
    try:
        turns = list(ask.turns)
        for place, turn in enumerate(turns):
            shown = [await _shown(each, asked, model, state) for each in turn.pictures]
            turns[place] = structs.replace(turn, pictures=tuple(shown))
        return structs.replace(ask, turns=tuple(turns))
    finally:
        call.spans.add(ENCODE, began)


async def _shown(picture: Picture, asked: Asked, model: ModelRecord, state: AppState) -> Picture:
    data, tenant = None, asked.key.organization
    if picture.source.startswith(("http://", "https://")):
        try:
            data = await state.fetches.run(state.fetch, picture.source, tenant=tenant)
        except FetchRefused as refused:
            raise _bad(picture, str(refused)) from refused
        if asked.portion is not None and not asked.portion.grow(len(data)):
            raise no_room(asked.portion)
    patch, squares_max = model.image_patch, model.image_tokens_max
    if picture.detail == "low":
        squares_max = max(1, min(squares_max, LOW_PIXELS // patch**2))
    decode = partial(_decoded, data=data, patch=patch, squares_max=squares_max)
    return await state.pictures.run(decode, picture, tenant=tenant)


def _decoded(picture: Picture, *, data: bytes | None, patch: int, squares_max: int) -> Picture:
    # A slow import that only pictures need.
    from PIL import Image, ImageOps

    found = _DATA.match(picture.source)
    # Ours, of the size that the file says, is stricter and comes before any pixel.
    Image.MAX_IMAGE_PIXELS = None
    try:
        if data is None:
            if found is None:
                raise _bad(picture, "must be a data URL with base64, or an https:// URL")
            data = base64.b64decode(picture.source[found.end() :], validate=True)
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > PIXELS_MAX:
                raise _bad(picture, f"has more than {PIXELS_MAX} pixels")
            # Photographs of several shots are not: their first is the picture.
            if image.format != "MPO" and getattr(image, "is_animated", False):
                raise _bad(picture, "is animated; send one frame")
            size = fitted(*image.size, patch, squares_max)
            image.draft("RGB", size)
            plain = image.convert("RGBA" if image.has_transparency_data else "RGB")
        small = ImageOps.exif_transpose(plain.resize(size, Image.Resampling.LANCZOS))
        if small.mode == "RGBA":
            white = Image.new("RGBA", small.size, "white")
            small = Image.alpha_composite(white, small).convert("RGB")
        made = BytesIO()
        small.save(made, "JPEG", quality=QUALITY)
    except Refusal:
        raise
    except Exception as error:  # a decoder's edge: broken files fail it in any way
        raise _bad(picture, "cannot be read as PNG, JPEG, WebP or GIF") from error
    tokens = _squares(*size, patch) + PICTURE_MARK_TOKENS
    return structs.replace(picture, source="", jpeg=made.getvalue(), tokens=tokens)


def _bad(picture: Picture, why: str) -> Refusal:
    return bad_field(picture.field, f"The image in '{picture.field}' {why}.")


def _squares(width: int, height: int, patch: int) -> int:
    return ceil(width / patch) * ceil(height / patch)


def fitted(width: int, height: int, patch: int, squares_max: int) -> tuple[int, int]:
    """The size that a picture is shrunk to, so that it has no more squares; never enlarged."""
    scale, size = min(1.0, sqrt(squares_max * patch**2 / (width * height))), (width, height)
    while _squares(*size, patch) > squares_max:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        scale *= SHRINK
    return size
