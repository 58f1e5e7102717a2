"""What is masked in a body comes back in the answer as it was, however the answer is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.answer import Piece
from controlplane.gateway.ask import Ask, StoredParts
from controlplane.gateway.openai import chat, completions, fields
from controlplane.gateway.policies.check import TEXTS, read_following, read_masked
from controlplane.gateway.policies.masks import PLACEHOLDER, Masks
from controlplane.gateway.policies.restore import Restorer, TextRestorer
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.responses import request as responses
from controlplane.kernel.contents.kept import KeptContent
from controlplane.kernel.policies.terms import OwnPattern, Policies
from inference.contract.parts import ToolCallDelta

KEY = b"a secret"
MAIL, CARD, IBAN = "ann@example.org", "4111 1111 1111 1111", "DE89370400440532013000"
QUOTED = 'the "code" \\ of Ann'
ALL = Policies(
    personal={"email": "mask", "card": "mask", "iban": "mask", "ip": "mask", "phone": "mask"},
    patterns=(OwnPattern(name="code", pattern='the "code" . of \\w+'),),
)
pieces_of_text = st.lists(
    st.sampled_from([MAIL, "b@example.org", CARD, IBAN, "10.0.0.7", "+49 30 1234567", QUOTED, "["])
    | st.text(st.sampled_from("ab [E_0\n\"']"), max_size=6),
    max_size=12,
).map(" ".join)


def body_of(content: Any, **more: Any) -> bytes:
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": "tiny", "messages": messages, **more}).encode()


def read(
    body: bytes, policies: Policies = ALL, parse: Callable[[bytes], Ask] = chat.parse
) -> tuple[Ask, Masks]:
    ask = read_masked(body, parse=parse, policies=policies, key=KEY)
    return ask, ask.masks or Masks(body, {}, {})


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in places} | {len(text)})
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


cuts = st.lists(st.integers(0, 400), max_size=60)


@given(pieces_of_text, cuts)
def test_a_text_comes_back_as_it_was_under_any_cut(text: str, places: list[int]) -> None:
    ask, masks = read(body_of(text))
    hidden = ask.turns[0].content
    assert not any(value in hidden for value in masks.values.values())
    restorer = TextRestorer(masks.values)
    parts = [restorer.feed(part) for part in cut(hidden, places)]
    assert "".join(parts) + restorer.close() == text


@given(pieces_of_text, cuts, cuts)
def test_arguments_of_calls_come_back_as_json(text: str, one: list[int], other: list[int]) -> None:
    ask, masks = read(body_of(text))
    hidden = json.dumps({"to": ask.turns[0].content}, ensure_ascii=False)
    restorer = Restorer(masks.values, in_json=False)
    calls = [
        ToolCallDelta(index=index, id=None if at else f"c{index}", name="send", arguments=part)
        for index, places in enumerate((one, other))
        for at, part in enumerate(cut(hidden, places))
    ]
    pieces = [Piece(choice=0, text="", logprobs=[], calls=[call]) for call in calls]
    pieces.append(Piece(choice=0, text="", logprobs=[], finish="tool_calls"))
    told = [call for piece in restorer.restored(pieces) for call in piece.calls]
    for index in range(2):
        whole = "".join(call.arguments for call in told if call.index == index)
        assert json.loads(whole) == {"to": text}
    assert [call.index for call in told] == sorted(call.index for call in told)


@given(pieces_of_text, cuts)
def test_thoughts_and_structured_texts_come_back(text: str, places: list[int]) -> None:
    ask, masks = read(body_of(text))
    hidden = ask.turns[0].content
    restorer = Restorer(masks.values, in_json=True)
    pieces = [Piece(choice=1, text="", logprobs=[], reasoning=r) for r in cut(hidden, places)]
    written = json.dumps([hidden], ensure_ascii=False)
    pieces += [Piece(choice=1, text=part, logprobs=[]) for part in cut(written, places)]
    pieces.append(Piece(choice=1, text="", logprobs=[], finish="stop"))
    told = restorer.restored(pieces)
    assert "".join(piece.reasoning for piece in told) == text
    assert json.loads("".join(piece.text for piece in told)) == [text]


def test_the_same_text_has_the_same_placeholder_and_another_tenant_another() -> None:
    first, second = (read(body_of(f"{before} {MAIL}"))[0].turns[0].content for before in "ab")
    assert first[2:] == second[2:] and PLACEHOLDER.fullmatch(first[2:])
    other = read_masked(body_of(MAIL), parse=chat.parse, policies=ALL, key=b"another")
    assert other.turns[0].content != first[2:]


def test_all_that_a_model_reads_is_looked_at_and_nothing_else() -> None:
    call = {"name": "send", "arguments": json.dumps({"to": MAIL, "card": 4111111111111111})}
    body = {
        "model": "tiny",
        "user": MAIL,
        "metadata": {"who": MAIL},
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": f"You are {MAIL}."}]},
            {
                "role": "assistant",
                "tool_calls": [{"id": MAIL, "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": MAIL, "content": f"sent to {MAIL}"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "send",
                    "description": f"as {MAIL}",
                    "parameters": {
                        "type": "object",
                        "properties": {"type": {"type": "string", "enum": [MAIL]}},
                    },
                },
            }
        ],
    }
    ask, masks = read(json.dumps(body).encode())
    (mail,) = [name for name, value in masks.values.items() if value == MAIL]
    assert [turn.content for turn in ask.turns] == [f"You are {mail}.", "", f"sent to {mail}"]
    (use,) = ask.turns[1].calls
    assert use.id == MAIL and use.arguments["to"] == mail
    assert masks.values[use.arguments["card"]] == "4111111111111111"
    assert (ask.user, ask.labels) == (MAIL, {"who": MAIL})
    parameters = ask.tools[0]["function"]["parameters"]
    assert parameters["properties"]["type"]["enum"] == [mail]
    assert masks.counts == {"email": 5, "card": 1}


def test_what_is_refused_is_named_by_its_field() -> None:
    strict = Policies(
        personal={"card": "refuse"},
        patterns=(OwnPattern(name="x", pattern="Q9+", action="refuse"),),
    )
    parts = [{"type": "text", "text": "fine"}, {"type": "text", "text": CARD}]
    with pytest.raises(Refusal) as caught:
        read(body_of(parts), strict)
    refusal = caught.value
    told = (refusal.status, refusal.code, refusal.param, refusal.policy)
    assert told == (400, "policy_violation", "messages[0].content[1].text", "card")
    with pytest.raises(Refusal) as caught:
        read(b'{"model":"tiny","input":"an Q99"}', strict, responses.parse)
    assert (caught.value.param, caught.value.policy) == ("input", "x")


@pytest.mark.parametrize("prompt", [[1, 2], [[1, 2]]])
def test_token_ids_cannot_be_looked_at(prompt: list[Any]) -> None:
    body = json.dumps({"model": "tiny", "prompt": prompt}).encode()
    with pytest.raises(Refusal) as caught:
        read(body, parse=completions.parse)
    assert (caught.value.param, caught.value.code) == ("prompt", "policy_violation")
    assert read(b'{"model":"tiny","prompt":["a","b"]}', parse=completions.parse)[0].prompts


def test_a_body_in_which_nothing_is_found_is_read_as_it_came() -> None:
    body = body_of("nothing")
    ask, _ = read(body)
    assert ask == chat.parse(body)


def test_what_is_kept_of_an_answer_is_masked_again() -> None:
    _, masks = read(body_of(f"{MAIL} {QUOTED}"))
    told = {"id": MAIL, "output": [{"type": "message", "text": f"{QUOTED}: {MAIL}"}]}
    kept = msgspec.json.decode(masks.hide(json.dumps(told).encode()))
    code, mail = kept["output"][0]["text"].split(": ")
    assert masks.values[mail] == MAIL and masks.values[code] == QUOTED and kept["id"] == MAIL
    assert masks.restore_json(msgspec.json.encode(kept)) == msgspec.json.encode(told)


STORED = StoredParts({}, ())


def test_a_request_that_names_what_is_stored_is_masked_as_a_whole() -> None:
    body = {"model": "tiny", "prompt": {"id": "a", "variables": {"who": MAIL}}, "input": MAIL}
    stub, masks = read(body_of(MAIL, prompt=body["prompt"]))
    assert stub.again is not None and not stub.turns
    whole = stub.again(STORED)
    (mail,) = masks.values
    assert whole.masks == masks and whole.turns[0].content == mail
    assert whole.prompt is not None and whole.prompt.values == {"who": mail}
    told, _ = read(json.dumps({**body, "instructions": MAIL}).encode(), parse=responses.parse)
    assert told.again is not None
    echoed = told.again(STORED).echo["request"].decode()
    assert MAIL in echoed and mail not in echoed


def test_variables_of_chat_templates_and_other_names_of_grammars_are_looked_at() -> None:
    kwargs = {"who": MAIL, "name": MAIL, "card": 4111111111111111}
    # What a template calls its variables is no text of a model.
    more = (OwnPattern(name="w", pattern="who"),)
    policies = Policies(personal=ALL.personal, patterns=more)
    body = body_of("x", chat_template_kwargs=kwargs, guided_choice=[MAIL, "b"])
    ask, masks = read(body, policies)
    (mail,) = [name for name, value in masks.values.items() if value == MAIL]
    assert ask.variables["who"] == ask.variables["name"] == mail
    assert masks.values[ask.variables["card"]] == "4111111111111111"
    assert ask.passed["structured_outputs"] == {"choice": [mail, "b"]}
    grammars = {each for each in fields.Common.RENAMED if each.startswith("guided_")}
    assert grammars - TEXTS == {"guided_json_object"}


def test_names_of_fields_that_a_client_chooses_are_looked_at() -> None:
    call = {"name": "send", "arguments": json.dumps({MAIL: {CARD: 1}})}
    schema = {
        "type": "object",
        "properties": {MAIL: {"type": "string"}, "input": {"type": "string"}},
        "required": [MAIL],
        "examples": [{"name": MAIL}],
    }
    used = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": call}]}
    tool = {"type": "function", "function": {"name": "send", "parameters": schema}}
    fields_only = Policies(
        personal={"email": "mask", "card": "mask"},
        patterns=(OwnPattern(name="kind", pattern="type"),),
    )
    body = json.dumps({"model": "tiny", "messages": [used], "tools": [tool]}).encode()
    ask, masks = read(body, fields_only)
    mail, card = (
        next(name for name, value in masks.values.items() if value == each) for each in (MAIL, CARD)
    )
    assert ask.turns[0].calls[0].arguments == {mail: {card: 1}}
    parameters = ask.tools[0]["function"]["parameters"]
    assert parameters["required"] == [mail] and parameters["examples"] == [{"name": mail}]
    assert parameters["properties"] == {mail: {"type": "string"}, "input": {"type": "string"}}
    strict = Policies(personal={"email": "mask", "card": "refuse"})
    with pytest.raises(Refusal) as caught:
        read(body, strict)
    # Nothing of what is masked is told.
    at = f"messages[0].tool_calls[0].function.arguments.{mail}"
    assert (caught.value.param, caught.value.policy) == (at, "card")


def kept(said: str, answered: str) -> KeptContent:
    items = [{"role": "user", "content": said, "type": "message", "id": "msg_1"}]
    part = {"type": "output_text", "text": answered}
    output = [{"type": "message", "id": "msg_2", "role": "assistant", "content": [part]}]
    return KeptContent(
        request=bytes(16),
        organization="",
        project="",
        key="",
        model="tiny",
        path="/v1/responses",
        started_us=0,
        body=msgspec.json.encode({"model": "tiny", "user": MAIL, "input": items}),
        response=msgspec.json.encode({"output": output}),
    )


def test_what_was_said_before_is_looked_at_again() -> None:
    body = json.dumps({"model": "tiny", "input": CARD, "previous_response_id": "resp_1"}).encode()
    _, first = read(body, parse=lambda data: responses.parse(data, keeps=True))

    def follow(policies: Policies | None, masks: Masks | None = first) -> Ask:
        def parse(data: bytes, **more: Any) -> Ask:
            return responses.parse(data, keeps=True, **more)

        return read_following(
            first.body,
            parse=parse,
            earlier=kept(f"I am {MAIL}", f"Hi {MAIL}"),
            masks=masks,
            policies=policies,
            key=KEY,
        )

    ask = follow(ALL)
    assert ask.masks is not None and ask.masks.counts == {"card": 1, "email": 2}
    (mail,) = [name for name, value in ask.masks.values.items() if value == MAIL]
    (card,) = first.values
    assert [turn.content for turn in ask.turns] == [f"I am {mail}", f"Hi {mail}", card]
    assert MAIL.encode() not in ask.echo["kept"] and ask.masks.values[card] == CARD
    assert follow(None, None).turns[0].content == f"I am {MAIL}"
    with pytest.raises(Refusal) as caught:
        follow(Policies(personal={"email": "refuse"}))
    assert (caught.value.param, caught.value.policy) == ("previous_response_id", "email")
