"""What `bootstrap_demo` made: kept for the next start, written for scripts, printed once."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from controlplane.embedded.processes import ServerError

MODEL = "sluice-5m"
QUESTION = "What is Sluice?"
NODE_CREDENTIAL = "node-credential"
EMBED_CREDENTIAL = "embed-credential"


class Demo(msgspec.Struct, frozen=True):
    """The JSON line that `bootstrap_demo` prints; secrets only when it made them."""

    first_start: bool = False
    api_key: str | None = None
    node_credential: str | None = None
    setup_path: str | None = None
    node_name: str = "node-1"
    embed_credential: str | None = None
    embed_name: str = "node-embed"
    admin_email: str = ""


class DemoFiles:
    """`demo.env` for scripts, and the credentials of the demo's nodes; all mode 0600."""

    def __init__(self, data: Path) -> None:
        self.env = data / "demo.env"
        self._secrets = data / "secrets"

    def keep(self, demo: Demo, url: str) -> None:
        """Write what is new; a key of an earlier start stays."""
        key = demo.api_key or self.key()
        if key is not None:
            write_private(self.env, f"SLUICE_URL={url}\nSLUICE_KEY={key}\n")
        self.keep_credentials(demo)

    def keep_credentials(self, demo: Demo) -> None:
        """The same of credentials alone, for starts without an address."""
        for name, secret in (
            (NODE_CREDENTIAL, demo.node_credential),
            (EMBED_CREDENTIAL, demo.embed_credential),
        ):
            if secret is not None:
                write_private(self._secrets / name, secret + "\n")

    def key(self) -> str | None:
        """The demo key, if its file is still there."""
        if not self.env.exists():
            return None
        pairs = (line.partition("=") for line in self.env.read_text().splitlines())
        return next((value for name, _, value in pairs if name == "SLUICE_KEY"), None)

    def lacks(self, name: str) -> bool:
        return not (self._secrets / name).exists()

    def credential(self, name: str = NODE_CREDENTIAL) -> str:
        file = self._secrets / name
        try:
            return file.read_text().strip()
        except FileNotFoundError:
            raise ServerError(
                f"{file} is missing. Start with --no-node, or run "
                "`manage.py bootstrap_demo --new-node-credential` first."
            ) from None


def parse(text: str) -> Demo:
    return msgspec.json.decode(text.strip().splitlines()[-1], type=Demo)


def welcome(urls: Sequence[str], demo: Demo, files: DemoFiles) -> str:
    """The closing lines of a start; pages are at the first URL, traffic may go to any."""
    url = urls[0]
    lines = ["", f"Sluice is ready:  {url}", ""]
    if len(urls) > 1:
        lines += [f"  {len(urls)} gateways, one process each, without a load balancer:"]
        lines += [f"    {each}/v1" for each in urls]
    key = demo.api_key or files.key()
    if demo.api_key is not None:
        lines += [f"  API key (shown once; scripts find it in {files.env}):", f"    {key}"]
    elif key is not None:
        lines += [f"  The API key was shown at the first start; it is in {files.env}."]
    else:
        lines += ["  The API key was shown at the first start; create another on the Keys page."]
    if demo.setup_path is not None:
        lines += ["  Set the admin's password (one-time link):", f"    {url}{demo.setup_path}"]
    else:
        lines += [
            f"  Sign in as {demo.admin_email}:  {url}/sign-in",
            f"    (lost password: manage.py setup_link {demo.admin_email})",
        ]
    lines += [
        "  Try it:",
        f"    {curl(url, demo.api_key, files.env)}",
        "",
        "  Ctrl-C stops everything.",
        "",
    ]
    return "\n".join(lines)


def curl(url: str, key: str | None, env: Path) -> str:
    """A command that streams an answer; a key that is no longer shown is read from demo.env."""
    messages = [{"role": "user", "content": QUESTION}]
    body = json.dumps({"model": MODEL, "stream": True, "messages": messages})
    bearer = key or f"$(sed -n 's/^SLUICE_KEY=//p' {shlex.quote(str(env))})"
    return (
        f'curl -N {url}/v1/chat/completions -H "Authorization: Bearer {bearer}" '
        f"-H 'Content-Type: application/json' -d '{body}'"
    )


def write_private(file: Path, content: str) -> None:
    """Replace a file of mode 0600 whole."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(content)
    partial.replace(file)
