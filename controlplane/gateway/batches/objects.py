"""What files, batches and lists of OpenAI's API are, as the description tells it; times are Unix
seconds.
"""

from types import GenericAlias
from typing import Any, Literal

from msgspec import UNSET, UnsetType, defstruct

_STATES = (
    "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled",
)  # fmt: skip
FileObject = defstruct(
    "FileObject",
    [
        ("id", str), ("object", Literal["file"]), ("bytes", int), ("created_at", int),
        ("expires_at", int), ("filename", str), ("purpose", Literal["batch", "batch_output"]),
        ("status", Literal["processed"]), ("status_details", None),
    ],
)  # fmt: skip
BatchObject = defstruct(
    "BatchObject",
    [
        ("id", str), ("object", Literal["batch"]), ("endpoint", str), ("input_file_id", str),
        ("completion_window", Literal["24h"]), ("status", str), ("metadata", dict[str, str] | None),
        ("errors", dict[str, Any] | None), ("request_counts", dict[str, int]),
        ("output_file_id", str | None), ("error_file_id", str | None), ("created_at", int),
        ("expires_at", int), *((f"{state}_at", int | None) for state in _STATES),
    ],
)  # fmt: skip
Deleted = defstruct(
    "Deleted",
    [("id", str), ("object", Literal["file", "response"]), ("deleted", Literal[True])],
)
# Parts of lists; an empty one may have no ends.
FileList, BatchList, ItemList = (
    defstruct(
        name,
        [
            ("object", Literal["list"]), ("data", GenericAlias(list, entry)), ("has_more", bool),
            *((end, str | UnsetType | None, UNSET) for end in ("first_id", "last_id")),
        ],
    )
    for name, entry in (
        ("FileList", FileObject), ("BatchList", BatchObject), ("ItemList", dict[str, Any]),
    )
)  # fmt: skip
