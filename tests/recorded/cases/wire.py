"""What HTTP leaves open, and what is none, as bytes: framing, versions, rows, paths and hosts."""

from __future__ import annotations

from collections.abc import Iterator

from tests.recorded.case import ALL, CHAT, JSON, TEXT, Case, chunked, encode, get, head, heads, post
from tests.recorded.models import ECHO

BODY = encode({"model": ECHO, "prompt": "One two three", "max_tokens": 3})
STREAM = encode({"model": ECHO, "prompt": "One two", "max_tokens": 3, "stream": True})
MODELS = get("/v1/models/sluice-5m")
LAST = get("/v1/models/sluice-5m", connection="close")


def wire() -> Iterator[Case]:
    """All of them."""
    yield from _framing()
    yield from _rows()
    yield from _versions()
    yield from _paths()
    yield from _heads()
    yield from _broken()


def _case(name: str, *pieces: bytes, answers: int = 1, waits: bool = False) -> Case:
    return Case(f"wire-{name}", "wire", pieces, answers=answers, waits=waits, fresh=True)


def _chunks(body: bytes, *sizes: int, **more: str) -> bytes:
    named = heads(content_type=JSON, transfer_encoding="chunked", **more)
    return head("POST", TEXT, named) + chunked(body, *sizes)


def _framing() -> Iterator[Case]:
    yield _case("chunks", _chunks(BODY, 5, 1, 20))
    yield _case("one-chunk", _chunks(BODY))
    yield _case("chunks-of-one", _chunks(BODY, *[1] * len(BODY)))
    yield _case("chunks-streamed", _chunks(STREAM, 7))
    yield _case("chunks-close", _chunks(BODY, 7, connection="close"))
    trailers = _chunks(BODY, 9)[:-2] + b"x-last: y\r\n\r\n"
    yield _case("trailers", trailers)
    extended = _chunks(BODY).replace(b"\r\n{", b";a=b\r\n{")
    yield _case("chunk-extension", extended)
    empty = _chunks(b"")
    yield _case("no-chunks", empty)
    whole = post(TEXT, BODY)
    yield _case("byte-by-byte-head", *[whole[place : place + 1] for place in range(60)], whole[60:])
    yield _case("in-three", whole[:40], whole[40:-10], whole[-10:])
    expects = head("POST", TEXT, heads(content_type=JSON, content_length=str(len(BODY)),
                                       expect="100-continue"))  # fmt: skip
    yield _case("expect", expects, BODY, waits=True)
    yield _case("expect-with-body", expects + BODY)
    refused = expects.replace(b"@KEY:main@", b"nobody")
    yield _case("expect-refused", refused)
    other = expects.replace(b"100-continue", b"something")
    yield _case("expect-other", other + BODY)
    upper = expects.replace(b"100-continue", b"100-Continue")
    yield _case("expect-upper", upper, BODY, waits=True)
    yield _case("blank-before", b"\r\n\r\n" + whole)
    yield _case("get-with-body", head("GET", "/v1/models/sluice-5m", heads(content_length="3"))
                + b"abc")  # fmt: skip
    yield _case("length-zero", post(TEXT, b""))
    yield _case("no-length", head("POST", TEXT, heads(content_type=JSON)))
    yield _case("length-and-chunks", _chunks(BODY, content_length="5"), answers=ALL)
    yield _case("two-lengths", whole.replace(b"content-length", b"content-length: 5\r\n"
                                             b"content-length"), answers=ALL)  # fmt: skip
    for number, text in enumerate(("x", "-1", "+5", "0x10", "5, 5", "99999999999999999999", "5 5")):
        yield _case(f"length-{number}", head("POST", TEXT, heads(content_length=text)) + BODY,
                    answers=ALL)  # fmt: skip
    for number, text in enumerate(("gzip", "gzip, chunked", "identity", "xchunked", "Chunked")):
        sent = head("POST", TEXT, heads(content_type=JSON, transfer_encoding=text)) + chunked(BODY)
        yield _case(f"coding-{number}", sent, answers=1 if text == "Chunked" else ALL)
    for number, size in enumerate((b"zz", b"-1", b"0x5", b"fffffffffffffffff", b"")):
        sent = head("POST", TEXT, heads(content_type=JSON, transfer_encoding="chunked"))
        yield _case(f"chunk-size-{number}", sent + size + b"\r\n" + BODY + b"\r\n0\r\n\r\n",
                    answers=ALL)  # fmt: skip


def _rows() -> Iterator[Case]:
    text, stream = post(TEXT, BODY), post(TEXT, STREAM)
    nothing = get("/v1/nothing")
    yield _case("row-of-models", MODELS * 5, answers=5)
    yield _case("row-mixed", text + MODELS + nothing + stream + text, answers=5)
    yield _case("row-with-last", MODELS + LAST + MODELS, answers=ALL)
    yield _case("row-of-texts", text + text + text, answers=3)
    yield _case("row-of-chunks", _chunks(BODY, 3) + _chunks(STREAM, 5) + MODELS, answers=3)
    yield _case("row-broken", MODELS + b"nonsense\r\n\r\n", answers=ALL)
    yield _case("row-of-16", MODELS * 16, answers=16)
    yield _case("row-of-40", MODELS * 40, answers=ALL)
    yield _case("row-split", text[:-5], text[-5:] + MODELS[:30], MODELS[30:], answers=2)
    yield _case("row-in-turn", MODELS, text, stream, nothing, MODELS, answers=5, waits=True)
    yield _case("close", get("/v1/models/sluice-5m", connection="close"), answers=ALL)
    yield _case("close-text", post(TEXT, BODY, connection="close"), answers=ALL)
    yield _case("close-stream", post(TEXT, STREAM, connection="close"), answers=ALL)
    yield _case("close-upper", post(TEXT, BODY, connection="Close"), answers=ALL)
    yield _case("keep-alive", post(TEXT, BODY, connection="keep-alive"))
    yield _case("close-among", get("/v1/models/sluice-5m", connection="x, close"), answers=ALL)


def _versions() -> Iterator[Case]:
    for name, body in (("text", BODY), ("stream", STREAM)):
        for connection in ("", "keep-alive", "close"):
            sent = post(TEXT, body, connection=connection).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
            yield _case(f"old-{name}-{connection or 'none'}", sent, answers=ALL)
    hostless = head(
        "GET", "/v1/models/sluice-5m", {"authorization": "Bearer @KEY:main@"}, "HTTP/1.0"
    )
    yield _case("old-without-host", hostless, answers=ALL)
    yield _case("old-expect", post(TEXT, BODY, expect="100-continue").replace(
        b"HTTP/1.1", b"HTTP/1.0", 1), answers=ALL)  # fmt: skip
    yield _case("old-chunks", _chunks(BODY).replace(b"HTTP/1.1", b"HTTP/1.0", 1), answers=ALL)
    for version in (
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"HTTP/1.2",
        b"HTTP/1.11",
        b"http/1.1",
        b"HTTP/x",
        b"",
    ):
        sent = MODELS.replace(b"HTTP/1.1", version, 1)
        yield _case(f"version-{version.decode().replace('/', '-') or 'none'}", sent, answers=ALL)


def _paths() -> Iterator[Case]:
    for number, path in enumerate((
        "/v1/models/", "/v1/models?x=1", "/v1/models/sluice-5m?x=%ff&y", "/v1/%6dodels/sluice-5m",
        "/v1/models/sluice%2d5m", "/v1/models/%E6%9D%B1", "/v1", "/v1/", "//v1/models",
        "/v1//models", "/v1/../v1/models", "/V1/models", "/v1/models/..", "/v1/chat/completions/",
        "/v1/nothing", "/v1/key/x", "/v1/engines", "/v1/models/a%2Fb", "/v1/models/%zz",
        "/v1/models#x", "/v1/files", "/v1/responses", "/v1/chat", "/v1/models/" + "a" * 300,
        "http://other/v1/models/sluice-5m", "/v1/models/sluice-5m;x=1", "/v1/models/a b",
    )):  # fmt: skip
        answers = ALL if " " in path else 1
        yield _case(f"path-{number:02}", get(path), answers=answers)
    for method in ("GET", "PUT", "PATCH", "DELETE", "HEAD", "TRACE"):
        for path in (CHAT, "/v1/models", "/v1/key", "/v1/preflight"):
            if (method, path) in (("GET", "/v1/models"), ("GET", "/v1/key")):
                continue
            name = f"wire-{method.lower()}-{path.rpartition('/')[2]}"
            yield Case(name, "wire", (get(path, method=method),), headless=method == "HEAD",
                       fresh=True)  # fmt: skip
    yield Case("wire-post-models", "wire", (post("/v1/models", BODY),))
    yield Case("wire-options-star", "wire", (get("*", "", "OPTIONS"),), fresh=True)
    yield _case("url-too-long", get("/v1/models/" + "a" * 17_000), answers=ALL)


def _heads() -> Iterator[Case]:
    yield _case(
        "no-host", head("GET", "/v1/models", {"authorization": "Bearer @KEY:main@"}), answers=ALL
    )
    for number, host in enumerate(("a b", "a/b", "", "[::1]:80", "a@b", "sluice:8000", "\xe9")):
        sent = b"GET /v1/models/sluice-5m HTTP/1.1\r\nhost: " + host.encode("latin-1")
        sent += b"\r\nauthorization: Bearer @KEY:main@\r\n\r\n"
        kept = host in ("", "[::1]:80", "sluice:8000")
        yield _case(f"host-{number}", sent, answers=1 if kept else ALL)
    twice = b"GET /v1/models/sluice-5m HTTP/1.1\r\nhost: a\r\n%s\r\n"
    for name, lines in (
        ("hosts", b"host: a\r\n"), ("other-hosts", b"host: b\r\n"),
        ("keys", b"authorization: Bearer x\r\nauthorization: Bearer y\r\n"),
        ("retry-keys", b"idempotency-key: a\r\nidempotency-key: b\r\n"),
        ("folded", b"x: a\r\n b\r\n"), ("no-name", b": a\r\n"), ("no-colon", b"x\r\n"),
        ("blank-in-name", b"x y: a\r\n"), ("blank-before-colon", b"x : a\r\n"),
        ("nul", b"x: a\0b\r\n"), ("bare-return", b"x: a\rb\r\n"), ("bare-feed", b"x: a\nb: c\r\n"),
        ("many", b"".join(b"x-%d: y\r\n" % each for each in range(101))),
        ("long", b"x: " + b"y" * 70_000 + b"\r\n"),
    ):  # fmt: skip
        yield _case(f"head-{name}", twice % lines, answers=ALL)
    same = twice % b"authorization: Bearer @KEY:main@\r\nauthorization: Bearer @KEY:main@\r\n"
    yield _case("head-same-keys", same)
    yield _case("head-99", twice % (b"authorization: Bearer @KEY:main@\r\n" + b"".join(
        b"x-%d: y\r\n" % each for each in range(98))))  # fmt: skip
    yield _case(
        "head-upper", MODELS.replace(b"authorization", b"AUTHORIZATION").replace(b"host", b"HOST")
    )
    yield _case("line-of-blanks", MODELS.replace(b"GET ", b"GET  "))
    yield _case("head-blanks", MODELS.replace(b"authorization: ", b"authorization: \t  "))
    upgrade = "/v1/models/sluice-5m"
    yield _case("upgrade-h2c", get(upgrade, connection="upgrade", upgrade="h2c"))
    yield _case("upgrade-websocket", get(upgrade, connection="upgrade", upgrade="websocket"))
    yield _case("upgrade-with-body", post(TEXT, BODY, connection="upgrade", upgrade="h2c"))
    socket = get(upgrade, connection="upgrade", upgrade="websocket", sec_websocket_version="13",
                 sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==")  # fmt: skip
    yield _case("upgrade-after", MODELS + socket, answers=ALL)


def _broken() -> Iterator[Case]:
    for number, data in enumerate((
        b"nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET /v1/models\r\n\r\n", b"\x16\x03\x01\x02\x00",
        b"GE T /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
        b"get /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/models HTTP/1.1\nhost: a\n\n", b"GET /v1/models HTTP/1.1\rhost: a\r\n\r\n",
        b"GET /v1/\xff HTTP/1.1\r\nhost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n", b"FOO /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
    )):  # fmt: skip
        yield _case(f"broken-{number:02}", data, answers=ALL)
