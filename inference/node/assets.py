"""The tokenizer files of the served model: their digest, and the parts a gateway asks for.

An engine that takes only text has none.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

from inference.contract.assets import ASSET_FILES, TEMPLATE_FILES, asset_digest
from inference.contract.frames import ASSET_BYTES_MAX, ASSET_PART_BYTES, AssetPart
from inference.errors import ModelError
from inference.text.chat import TemplateFailed
from inference.text.templates import TextFilesBroken, chat_templates

FAULT_CHARS_MAX = 300

log = logging.getLogger(__name__)


class Assets:
    """What a node offers besides the model itself: here nothing, since the tokenizer is the
    business of a server behind the engine. `template` is the state of the chat template.
    """

    digest = ""
    template = "the server's own"
    files: Mapping[str, bytes] = {}

    def parts(self, digest: str) -> Iterator[AssetPart]:
        """All parts behind a digest; none when it is not ours."""
        if digest != self.digest:
            return
        pieces = [
            (name, data[start : start + ASSET_PART_BYTES])
            for name, data in self.files.items()
            for start in range(0, len(data), ASSET_PART_BYTES)
        ]
        for position, (name, data) in enumerate(pieces, start=1):
            yield AssetPart(digest=digest, name=name, data=data, last=position == len(pieces))


class ModelAssets(Assets):
    """Tokenizer, configuration and templates of one checkpoint folder; raises `ModelError`."""

    def __init__(self, model_path: Path) -> None:
        present = [name for name in TEMPLATE_FILES if (model_path / name).exists()]
        self.files = {name: _read(model_path / name) for name in (*ASSET_FILES, *present)}
        size_bytes = sum(map(len, self.files.values()))
        if size_bytes > ASSET_BYTES_MAX:
            raise ModelError(f"{model_path}: tokenizer files of {size_bytes} bytes are too large")
        self.digest = asset_digest(self.files)
        self.template = _state_of_template(model_path, self.files)


def _state_of_template(model_path: Path, files: Mapping[str, bytes]) -> str:
    """For people. No gateway would serve a model whose template is none: raises `ModelError`."""
    try:
        templates = chat_templates(files)
    except (TextFilesBroken, TemplateFailed) as error:
        raise ModelError(f"{model_path}: {error}") from error
    if not templates.chats:
        return "none: the model does not chat"
    if fault := templates.fault():
        log.warning("%s: a greeting cannot be rendered: %s", model_path, fault[:FAULT_CHARS_MAX])
        return f"does not render a greeting: {fault[:FAULT_CHARS_MAX]}"
    if not templates.shows_tools or templates.form is None:
        return "renders, without tools"
    return f"renders, with tools in the form of {templates.form.name}"


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    if not data:
        raise ModelError(f"{path}: is empty")
    return data
