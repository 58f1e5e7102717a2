"""Code that the pages offer for copying: streaming first, key from the environment.

`@BASE@`, `@MODEL@`, `@SYSTEM@` and `@USER@` are filled in by the page, as JSON strings where quoted
text is meant; JSON strings are valid in all three languages.
"""

import shlex
from typing import NamedTuple


class Snippet(NamedTuple):
    name: str
    label: str
    text: str


CURL = """\
curl -N @BASE@/v1/chat/completions \\
  -H "Authorization: Bearer $SLUICE_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d @- <<'JSON'
{
  "model": @MODEL@,
  "stream": true,
  "stream_options": {"include_usage": true},
  "messages": [
    {"role": "system", "content": @SYSTEM@},
    {"role": "user", "content": @USER@}
  ]
}
JSON"""

PYTHON = """\
import os
from openai import OpenAI

client = OpenAI(base_url="@BASE@/v1", api_key=os.environ["SLUICE_API_KEY"])
stream = client.chat.completions.create(
    model=@MODEL@,
    messages=[
        {"role": "system", "content": @SYSTEM@},
        {"role": "user", "content": @USER@},
    ],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)"""

NODE = """\
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "@BASE@/v1",
  apiKey: process.env.SLUICE_API_KEY,
});
const stream = await client.chat.completions.create({
  model: @MODEL@,
  messages: [
    { role: "system", content: @SYSTEM@ },
    { role: "user", content: @USER@ },
  ],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}"""

SNIPPETS = (
    Snippet("curl", "curl", CURL),
    Snippet("python", "Python", PYTHON),
    Snippet("node", "Node.js", NODE),
)


def first_curl(base: str, model: str) -> str:
    """The shortest streaming call, for pages that have nothing to show yet."""
    return (
        f"curl -N {base}/v1/chat/completions \\\n"
        '  -H "Authorization: Bearer $SLUICE_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"""  -d '{{"model": "{model}", "stream": true,"""
        """ "messages": [{"role": "user", "content": "Hello"}]}'"""
    )


def agent_command(pages: str, *, token: str, name: str) -> str:
    """Starts the agent of a host that has no credential yet."""
    return (
        f"SLUICE_ENROL_TOKEN={token} \\\n"
        f"python -m inference.agent --control {shlex.quote(pages)} --name {shlex.quote(name)} \\\n"
        "  --data ./sluice-agent --models ./models"
    )


def enrol_command(base: str, pages: str, *, token: str, name: str, pool: str) -> str:
    """Starts a node that has no credential yet; engine and model are the reader's to choose.

    `base` is where gateways answer, `pages` where these pages do, which redeem the token.
    """
    gateway = base.replace("http", "ws", 1)
    file = f"./{name}.credential"
    elsewhere = "" if pages == base.rstrip("/") else f" --enrol-url {shlex.quote(pages)}"
    return (
        f"SLUICE_ENROL_TOKEN={token} \\\n"
        f"python -m inference --gateway {gateway} --name {shlex.quote(name)} --pool {pool} \\\n"
        f"  --credential-file {shlex.quote(file)}{elsewhere} \\\n"
        "  --engine compact --model inference/assets/sluice-5m"
    )
