"""The files behind a model's digest, and the digest itself, computed alike by node and gateway."""

from collections.abc import Mapping
from hashlib import sha256

TOKENIZER_FILE, CONFIG_FILE = ASSET_FILES = ("tokenizer.json", "tokenizer_config.json")
# Where newer checkpoints keep their chat templates; not every one has them.
TEMPLATE_FILE, TOOL_TEMPLATE_FILE = TEMPLATE_FILES = (
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
)
LENGTH_BYTES = 8


def asset_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 (hex) over tokenizer and configuration, and over the template files that are there.

    Each file goes in behind its length, and a template file behind its name as well, so no two sets
    of files run together to equal bytes. Raises KeyError for a missing file.
    """
    digest = sha256(b"sluice-assets")
    parts = [files[name] for name in ASSET_FILES]
    for name in TEMPLATE_FILES:
        if name in files:
            parts += (name.encode(), files[name])
    for data in parts:
        digest.update(len(data).to_bytes(LENGTH_BYTES, "big"))
        digest.update(data)
    return digest.hexdigest()
