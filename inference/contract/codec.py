"""Frames to bytes and back. Anything that does not decode to the expected type is refused whole."""

from typing import TypeVar

import msgspec

from inference.contract.frames import FRAME_BYTES_MAX, FromGateway, FromNode

T = TypeVar("T")
# msgspec reports bad UTF-8 and absurd nesting in Python's own terms.
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_from_node: msgspec.msgpack.Decoder[FromNode] = msgspec.msgpack.Decoder(FromNode)
_from_gateway: msgspec.msgpack.Decoder[FromGateway] = msgspec.msgpack.Decoder(FromGateway)


class BadFrame(ValueError):
    """Bytes that are not a frame of the expected direction; the message names the field."""


def encode(frame: FromNode | FromGateway) -> bytes:
    return _encoder.encode(frame)


def decode_from_node(data: bytes) -> FromNode:
    """Decode what a node sent; raises `BadFrame`."""
    return _decode(_from_node, data)


def decode_from_gateway(data: bytes) -> FromGateway:
    """Decode what a gateway sent; raises `BadFrame`."""
    return _decode(_from_gateway, data)


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    if len(data) > FRAME_BYTES_MAX:
        raise BadFrame(f"frame of {len(data)} bytes is over the {FRAME_BYTES_MAX} byte bound")
    try:
        return decoder.decode(data)
    except _UNDECODABLE as error:
        raise BadFrame(str(error)) from error
