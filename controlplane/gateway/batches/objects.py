"""What files, batches and lists of OpenAI's API are, as the description tells it."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import Meta


class FileUpload(TypedDict):
    """The fields of a form."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]
    purpose: Literal["batch"]


class FileObject(TypedDict):
    """Times are Unix seconds."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]
    status_details: None


class Deleted(TypedDict):
    """What is no more."""

    id: str
    object: Literal["file", "response"]
    deleted: Literal[True]


class LineCounts(TypedDict):
    """Of all lines, those that were answered, and those with an error or never run."""

    total: int
    completed: int
    failed: int


class BatchErrors(TypedDict):
    """Why nothing was run."""

    object: Literal["list"]
    data: list[dict[str, Any]]


# Times are Unix seconds.
BatchObject = msgspec.defstruct(
    "BatchObject",
    [
        ("id", str), ("object", Literal["batch"]), ("endpoint", str), ("input_file_id", str),
        ("completion_window", Literal["24h"]), ("status", str), ("metadata", dict[str, str] | None),
        ("errors", BatchErrors | None), ("request_counts", LineCounts),
        ("output_file_id", str | None), ("error_file_id", str | None),
        ("created_at", int), ("expires_at", int),
        *((f"{state}_at", int | None) for state in (
            "in_progress", "finalizing", "completed", "failed", "expired", "cancelling",
            "cancelled",
        )),
    ],
)  # fmt: skip


class ListPart(TypedDict):
    """A part of a list; an empty one may have no ends."""

    object: Literal["list"]
    first_id: NotRequired[str | None]
    last_id: NotRequired[str | None]
    has_more: bool


class FileList(ListPart):
    """Files of the key's project."""

    data: list[FileObject]


class BatchList(ListPart):
    """Batches of the key's project."""

    data: list[BatchObject]


class ItemList(ListPart):
    """Items of a response's input."""

    data: list[dict[str, Any]]
