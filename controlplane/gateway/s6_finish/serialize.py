"""Pieces to the bytes of the client's API shape."""

from controlplane.gateway.answer import Charge, Piece, VectorWriter, Writer
from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX
from inference.contract.parts import Vectors

SERIALIZE = INDEX["s6_finish.serialize"]


def write_chunk(call: Call, writer: Writer, pieces: list[Piece]) -> bytes:
    began = call.spans.clock()
    data = writer.chunk(pieces)
    call.spans.add(SERIALIZE, began)
    return data


def write_vectors(call: Call, writer: VectorWriter, vectors: Vectors) -> None:
    """Vectors that have come, as they will stand in the body."""
    began = call.spans.clock()
    writer.put(vectors)
    call.spans.add(SERIALIZE, began)


def write_list(call: Call, writer: VectorWriter, charge: Charge) -> bytes:
    began = call.spans.clock()
    data = writer.body(charge)
    call.spans.add(SERIALIZE, began)
    return data


def write_end(call: Call, writer: Writer, pieces: list[Piece] | None, charge: Charge) -> bytes:
    """The end of a stream (`pieces` None) or the whole body."""
    began = call.spans.clock()
    data = writer.last_chunk(charge) if pieces is None else writer.body(pieces, charge)
    call.spans.add(SERIALIZE, began)
    return data
