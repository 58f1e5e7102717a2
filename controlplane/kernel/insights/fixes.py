"""Which client sent a request, by its User-Agent, and the fix of a finding as code for it."""

import tomllib
from pathlib import Path

CURL, OTHER = "curl", "other"
# Clients by part of their lower-case User-Agents, the most telling first: frameworks name the SDK
# that they use, too.
AGENTS = {
    "langchain-js": "langchainjs",
    "langchain": "langchain",
    "ai-sdk": "ai-sdk/",
    "openai-python": "openai/python",
    "openai-node": "openai/js",
    "anthropic-python": "anthropic/python",
    CURL: "curl/",
}
CLIENTS = (*AGENTS, OTHER)
FIXES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("fixes.toml").read_text(encoding="utf-8")
)


def client_of(agent: str | None) -> str:
    """One of `CLIENTS`."""
    known = (agent or "").lower()
    return next((client for client, part in AGENTS.items() if part in known), OTHER)


def code_for(kind: str, client: str) -> str:
    """What to change there; empty where code does not end a finding."""
    found = FIXES.get(kind, {})
    return (found.get(client) or found.get(CURL, "")).strip()
