"""C9: two published descriptions, of which public tools make clients, and answers keep to them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.test import Client
from openapi_spec_validator import OpenAPIV31SpecValidator

from controlplane.gateway.answer import Charge, Piece
from controlplane.gateway.http.app import COUNT_PATH, KEY_PATH, MODELS_PATH
from controlplane.gateway.http.shapes import SHAPES
from controlplane.gateway.openai import chat, completions
from controlplane.gateway.openai.description import OPERATIONS, RESPONSE, description
from controlplane.gateway.openai.render import ChatWriter, CompletionWriter
from controlplane.gateway.responses.kept import ROUTES
from controlplane.kernel.price import TokenCounts
from inference.contract.frames import Usage
from inference.contract.parts import TokenLogprob, ToolCallDelta
from tests.support.described import answer_shape, check_described
from tests.support.fleet import MODEL
from tests.support.node_client import FOLDER
from tests.support.serving import Serving

PATH = "/v1/openapi.json"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 3}
TEXT = {"model": MODEL, "prompt": "abcd", "max_tokens": 3}
ASKED: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [CHAT, {**CHAT, "n": 2}],
    "/v1/completions": [TEXT],
    "/v1/responses": [{"model": MODEL, "input": "abcd", "max_output_tokens": 3}],
    "/v1/preflight": [CHAT, {**CHAT, "messages": [{"role": "user", "content": "x" * 5_000}]}],
    "/v1/messages": [CHAT],
    "/v1/messages/count_tokens": [CHAT],
    "/v1/models": [{}],
    "/v1/models/{model}": [{}],
    "/v1/key": [{}],
    "/v1/moderations": [{"input": ["a", "b"]}],
    "/v1/tokenize": [{"model": MODEL, "prompt": "abcd", "return_token_strs": True}],
    "/v1/detokenize": [{"model": MODEL, "tokens": [5, 6]}],
}
# Their answers are held against the description where an encoder serves, and where there are files
# and stored responses.
ELSEWHERE = (
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/files",
    "/v1/batches",
    RESPONSE,
    "/v1/requests",
)
METHODS = ("get", "post", "put", "patch", "delete")
BELOW = ("", "/{id}", "/{id}/content", "/{id}/cancel", "/{id}/input_items", "/{id}/more")
USE = """
import api, v1
error = {"message": "m", "type": "t", "param": None, "code": None}
assert v1.Error.model_validate({"error": error}).error.code is None
told = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
assert not api.FleetPoolList.model_validate(told).has_more
"""


def control_description() -> bytes:
    """What `GET /api/schema` answers."""
    headers = {"Authorization": f"Bearer {settings.OPERATOR_TOKEN}"}
    return Client(headers=headers).get("/api/schema").content


@pytest.fixture
def documents(database: str, tmp_path: Path) -> Path:
    """A folder with both: `api.json` and `v1.json`."""
    (tmp_path / "api.json").write_bytes(control_description())
    (tmp_path / "v1.json").write_bytes(description())
    return tmp_path


async def run(*command: str, folder: Path) -> None:
    """A tool in a folder; what it says is told where it fails."""
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=PIPE, stderr=STDOUT)
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def test_both_are_valid_and_share_no_path(documents: Path) -> None:
    api, v1 = (json.loads((documents / name).read_bytes()) for name in ("api.json", "v1.json"))
    for document in (api, v1):
        assert document["openapi"].startswith("3.1")
        OpenAPIV31SpecValidator(document).validate()
    assert not api["paths"].keys() & v1["paths"].keys()
    assert api["components"]["schemas"]["Error"] == v1["components"]["schemas"]["Error"]
    lists = [one for name, one in api["components"]["schemas"].items() if name.endswith("List")]
    shape = {"object", "data", "first_id", "last_id", "has_more"}
    assert len(lists) > 25 and all(shape <= set(one["required"]) for one in lists)


async def test_types_for_typescript_are_made_of_both(documents: Path) -> None:
    tool = str(FOLDER / "node_modules/openapi-typescript/bin/cli.js")
    for name in ("api", "v1"):
        await run("node", tool, f"{name}.json", "-o", f"{name}.ts", folder=documents)
    (documents / "described.ts").write_bytes((FOLDER / "described.ts").read_bytes())
    compiler = str(FOLDER / "node_modules/typescript/bin/tsc")
    options = ("--noEmit", "--strict", "--target", "es2022", "--moduleResolution", "bundler")
    await run("node", compiler, *options, "--module", "preserve", "described.ts", folder=documents)


async def test_models_for_python_are_made_of_both(documents: Path) -> None:
    kind = ("--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin")
    for name in ("api", "v1"):
        files = ("--input", f"{name}.json", "--output", f"{name}.py")
        tool = (sys.executable, "-m", "datamodel_code_generator", "--input-file-type", "openapi")
        await run(*tool, *files, *kind, folder=documents)
    await run(sys.executable, "-c", USE, folder=documents)


async def test_it_is_there_for_everybody(bare: Serving) -> None:
    async with httpx2.AsyncClient(base_url=bare.under_test.url) as stranger:
        answer = await stranger.get(PATH)
        assert (answer.status_code, answer.content) == (200, description())
        assert answer.headers["cache-control"] == "public, max-age=3600"
        assert (await stranger.post(PATH)).status_code == 405


async def test_answers_are_as_described(serving: Serving) -> None:
    here = {path for path, _ in OPERATIONS if not path.startswith(ELSEWHERE)}
    assert here == ASKED.keys()
    for path, bodies in ASKED.items():
        for body in bodies:
            method = "post" if body else "get"
            url = path.replace("{model}", MODEL)
            answer = await serving.client.request(method, url, json=body or None)
            assert answer.status_code == 200, answer.text
            check_described(answer.json(), answer_shape(path, method))


async def test_what_is_answered_is_described_and_nothing_else(bare: Serving) -> None:
    """Each method of each path that the gateway may have; what is unknown says so by its code."""
    own = {path for path, _ in OPERATIONS} | {*SHAPES, *ROUTES, MODELS_PATH, KEY_PATH, COUNT_PATH}
    own |= {f"/v1/{kind}{below}" for kind in ("files", "batches", "responses") for below in BELOW}
    answered = set()
    for path in sorted(each for each in own if each.startswith("/v1/")):
        for method in METHODS:
            answer = await bare.client.request(method, re.sub("{.*?}", "some", path))
            code = answer.json()["error"]["code"] if answer.is_error else ""
            if code not in ("unknown_url", "method_not_allowed"):
                answered.add((re.sub("{.*?}", "{}", path), method))
    assert answered == {(re.sub("{.*?}", "{}", path), method) for path, method in OPERATIONS}


@pytest.mark.parametrize(
    ("writer", "parsed"), [(ChatWriter, chat), (CompletionWriter, completions)]
)
def test_thoughts_calls_and_chances_are_as_described(
    writer: type[ChatWriter], parsed: ModuleType
) -> None:
    body = CHAT | {"logprobs": True} if writer is ChatWriter else TEXT | {"logprobs": 1}
    ask = parsed.parse(json.dumps(body).encode())
    made = writer(b"r" * 16, ask, fingerprint="f", token_text=lambda token: ("a", b"a"))
    chance = TokenLogprob(token=1, logprob=-0.5, top=[(1, -0.5), (2, float("-inf"))])
    call = ToolCallDelta(index=0, id="call_1", name="find", arguments="{}")
    piece = Piece(
        choice=0, text="a", logprobs=[chance], finish="stop", calls=[call], reasoning="So."
    )
    usage = Usage(prompt_tokens=4, completion_tokens=1, cached_tokens=2)
    charge = Charge(usage, TokenCounts(uncached=2, cached=2, output=1), 5)
    told = json.loads(made.body([piece], charge))
    check_described(told, "ChatCompletion" if writer is ChatWriter else "TextCompletion")
    assert told["choices"][0]["logprobs"]


@pytest.mark.parametrize("body", [{}, {**CHAT, "n": 0}, {**CHAT, "model": "none"}])
async def test_errors_are_as_described(bare: Serving, body: dict[str, Any]) -> None:
    answer = await bare.client.post("/v1/chat/completions", json=body)
    assert answer.status_code in (400, 404)
    check_described(answer.json(), "Error")
