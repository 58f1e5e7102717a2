"""What vLLM says of its cache, in each of the forms that its versions write. Imports no vLLM."""

from typing import Any

import msgspec

VllmHash = bytes | int
# Where a version has it: blocks of other media are not in the cache that prompts are matched with.
DEVICE_MEDIA = (None, "GPU")
FRAMES = 3


class Unfollowable(ValueError):
    """Events that cannot be read, or that say what an index of ours cannot hold."""


class BlockStored(msgspec.Struct, tag="BlockStored"):
    """Full blocks that are cached from now on, in one chain behind `parent_block_hash`.

    `extra_keys` has one entry per block; that of a prompt's first block holds the cache salt. The
    order of fields is that of versions which write arrays.
    """

    block_hashes: list[VllmHash]
    parent_block_hash: VllmHash | None
    token_ids: list[int]
    block_size: int
    lora_id: Any = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[object] | None] | None = None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved"):
    block_hashes: list[VllmHash]
    medium: str | None = None


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared"):
    """The cache is empty."""


Event = BlockStored | BlockRemoved | AllBlocksCleared
_KINDS = {kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)}


def read_frames(frames: list[bytes]) -> tuple[int, list[Event]]:
    """The number and the events of one message: topic, number, batch; raises `Unfollowable`."""
    if len(frames) != FRAMES:
        raise Unfollowable(f"a message of {len(frames)} frames")
    return int.from_bytes(frames[1], "big"), read_batch(frames[2])


def read_batch(data: bytes) -> list[Event]:
    """The events of one engine step; raises `Unfollowable`.

    Batch and events are maps, or arrays: of the batch its time, its events and more; of an event
    its kind and then its fields.
    """
    try:
        batch = msgspec.msgpack.decode(data)
        events = batch["events"] if isinstance(batch, dict) else batch[1]
        return [_read(event) for event in events]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unfollowable(f"events that cannot be read: {error}") from error
    except (LookupError, TypeError) as error:
        raise Unfollowable("a batch in a form that is not known") from error


def _read(event: Any) -> Event:
    if isinstance(event, list):
        kind = _KINDS[event[0]]
        event = {"type": event[0], **dict(zip(kind.__struct_fields__, event[1:], strict=False))}
    read: Event = msgspec.convert(event, Event)
    return read
