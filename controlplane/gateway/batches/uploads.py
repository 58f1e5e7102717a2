"""A file on its way in: `multipart/form-data` (RFC 7578), cut behind lines as it comes."""

import re
from collections.abc import Iterator

from controlplane.gateway.refusal import NO_RETRY, Refusal, bad_field
from controlplane.gateway.s1_admission.body import BODY_BYTES_MAX

PART_BYTES = 256 * 1024
HEAD_BYTES_MAX = FIELD_BYTES_MAX = 4096
FIELDS_MAX = 16
_BOUNDARY = re.compile(r'multipart/form-data\s*;.*?boundary="?([^";,]{1,70})', re.IGNORECASE)
_NAME = re.compile(r'[;\s]name="([^"]*)"')
_FILENAME = re.compile(r'[;\s]filename="((?:[^"\\]|\\.)*)"')


class Upload:
    """Takes a body as it comes; `ended` once its closing boundary was there. Raises `Refusal`.

    `fields` are its texts; of its file there are `size` bytes so far.
    """

    def __init__(self, content_type: str, bytes_max: int) -> None:
        found = _BOUNDARY.match(content_type)
        if found is None:
            raise bad_field("file", "Send multipart/form-data with a boundary.")
        self.fields = dict[str, str]()
        self.filename, self.size, self.ended = "", 0, False
        self._bytes_max = bytes_max
        self._mark = b"\r\n--" + found[1].encode("latin-1")
        # The first boundary has no line before it.
        self._rest, self._lines = b"\r\n", b""
        self._name: str | None = None
        self._in_head = False

    def feed(self, data: bytes) -> Iterator[str]:
        """Parts of the file that are whole."""
        self._rest += data
        while not self.ended and (self._begin() if self._in_head else True):
            at = self._rest.find(self._mark)
            # What may be the beginning of a boundary waits for more.
            end = at if at >= 0 else max(0, len(self._rest) - len(self._mark))
            self._take(self._rest[:end])
            self._rest = self._rest[end:]
            if len(self._lines) >= PART_BYTES:
                yield from self._cut(self._lines.rfind(b"\n") + 1)
            if at < 0 or len(self._rest) < len(self._mark) + 2:
                return
            self._rest = self._rest[len(self._mark) :]
            self.ended, self._in_head, self._name = self._rest.startswith(b"--"), True, None
        yield from self._cut(len(self._lines) if self.ended else 0)

    def _begin(self) -> bool:
        """Read the headers of a part; False until they are all here."""
        head, found, rest = self._rest.partition(b"\r\n\r\n")
        text = head.decode("utf-8", "replace").replace("\0", "")
        name, filename = _NAME.search(text), _FILENAME.search(text)
        if len(head) > HEAD_BYTES_MAX or (found and name is None):
            raise bad_field("file", "A part of the body has no name, or headers that are too long.")
        if found and name is not None:
            self._name, self._rest, self._in_head = name[1], rest, False
            if filename is None:
                self.fields[name[1]] = ""
            else:
                self._name, self.filename = None if name[1] != "file" else "", filename[1]
        return bool(found)

    def _take(self, data: bytes) -> None:
        if self._name:
            text = self.fields[self._name] + data.decode("latin-1")
            self.fields[self._name] = text
            if len(text) > FIELD_BYTES_MAX or len(self.fields) > FIELDS_MAX:
                raise bad_field(self._name, "The fields of the upload are too long.")
        elif self._name is not None:
            self.size += len(data)
            self._lines += data
            if self.size > self._bytes_max:
                message = f"A file may have at most {self._bytes_max:,} bytes."
                raise Refusal(413, "file_too_large", message, param="file", headers=NO_RETRY)

    def _cut(self, end: int) -> Iterator[str]:
        part, self._lines = self._lines[:end], self._lines[end:]
        if len(self._lines) > BODY_BYTES_MAX:
            raise bad_field("file", f"A line may have at most {BODY_BYTES_MAX:,} bytes.")
        try:
            text = part.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            raise bad_field("file", "The file must be text in UTF-8, with one request a line.")
        if text:
            yield text
