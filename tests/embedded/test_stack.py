"""The stack's commands: what the docs tell an operator to type is what we run ourselves."""

import re
import shlex
from collections.abc import Sequence

from django.conf import settings

from controlplane.embedded import stack

OWN_ADDRESS = ("--host", "--port")


def _options(argv: Sequence[str]) -> dict[str, str]:
    """Flags by name, with their values."""
    after = argv[argv.index("controlplane.asgi:application") + 1 :]
    found: dict[str, str] = {}
    for word in after:
        if word.startswith("--"):
            found[word] = ""
        else:
            found[next(reversed(found))] = word
    return {name: value for name, value in found.items() if name not in OWN_ADDRESS}


def test_the_documented_gateway_is_the_one_we_run() -> None:
    text = (settings.BASE_DIR / "docs" / "operations.md").read_text()
    command = re.search(r"^SLUICE_ROLE=gateway uvicorn (?:.*\\\n)*.*$", text, re.MULTILINE)
    assert command is not None
    documented = _options(shlex.split(command[0].replace("\\\n", "")))
    assert documented == _options(stack.gateway("127.0.0.1", 8000).argv)
    # A header must not replace the address that SLUICE_TRUSTED_PROXIES is compared with.
    assert "--no-proxy-headers" in documented
