"""Prompts from kept frames are what the sandbox renders; templates that read contents have none."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment

from inference.text import allowance, frames
from inference.text.chat import ChatTemplate, TemplateFailed
from inference.text.flow import only_prints
from inference.text.frames import EDGE, Frames
from inference.text.sandbox import BoundedEnvironment
from tests.inference.text.test_chat import PUBLISHED
from tests.support.shipped import SHIPPED

LOOP = "{% for m in messages %}BODY{% endfor %}"
# In the manner of what is published.
PRINTING = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' +"
        " message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "chatml with a default": (
        "{%- if tools %}{{- tools | tojson }}{% for t in messages %}{{ t.content | upper }}"
        "{% endfor %}{%- else %}\n{%- if messages[0]['role'] == 'system' %}"
        "{{- '<s>' + messages[0]['content'] }}{%- else %}{{- '<s>You help.' }}{% endif %}"
        "{%- endif %}\n{%- for message in messages %}{%- if message.role == 'user' or"
        " (message.role == 'system' and not loop.first) or (message.role == 'assistant' and"
        " not message.tool_calls) %}{{- message.role ~ ':' ~ message.content }}"
        "{%- elif message.role == 'tool' %}{%- if loop.index0 == 0 or"
        " messages[loop.index0 - 1].role != 'tool' %}{{- '<t>' }}{%- endif %}"
        "{{- message.content }}{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}"
        "{{- '</t>' }}{%- endif %}{%- endif %}{%- endfor %}"
    ),
    "system apart": (
        "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'].strip() %}"
        "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}"
        "{% endif %}{% for message in rest %}{% if (message['role'] == 'user') !="
        " (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
        "{% if loop.index0 == 0 %}{% set content = system + '\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}{{ bos_token + content }}"
        "{% endfor %}"
    ),
    "namespace": PUBLISHED["namespace"],
    "generation": PUBLISHED["generation"],
    "llama-like": PUBLISHED["llama-like"],
    "trimmed": LOOP.replace(
        "BODY",
        "{{ m.content.lstrip() }}|{{ m.content.rstrip() }}|{{ m.content | trim }}|{{ m.content }}",
    ),
    "types": LOOP.replace(
        "BODY",
        "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}",
    ),
    "not a text": LOOP.replace(
        "BODY",
        "{% if m.content is mapping or m.content is none %}{{ m.content | upper }}{% endif %}"
        "{{ 'a' if not m.content is string and m.content else 'b' }}{{ m.content }}",
    ),
    "got": LOOP.replace("BODY", "{{ m.get('content') }}{{ m.get('name', 'nobody') }}"),
    "chosen": LOOP.replace("BODY", "{{ m.content if m.role == 'user' else '(' ~ m.role ~ ')' }}"),
    "last": "{{ (messages | last).content }}{{ messages | length }}{{ messages[-1].role }}",
    "dated": "{{ strftime_now('%Y') }}" + LOOP.replace("BODY", "{{ m.content }}"),
}
READING = {
    "compares": "{% if m.content == 'a' %}a{% endif %}",
    "compares the other way": "{{ 'a' == m.content }}",
    "looks inside": "{% if '</think>' in m.content %}a{% endif %}",
    "is in": "{{ m.content in ['a'] }}",
    "truth": "{% if m.content %}a{% endif %}",
    "or": "{{ m.content or 'nothing' }}",
    "and": "{{ m.content and 'a' }}",
    "not": "{{ not m.content }}",
    "condition": "{{ 'a' if m.content else 'b' }}",
    "length": "{{ m.content | length }}",
    "filter": "{{ m.content | upper }}",
    "json": "{{ m.content | tojson }}",
    "method": "{{ m.content.split('a')[0] }}",
    "trims more": "{{ m.content.strip('a') }}",
    "trims more by filter": "{{ m.content | trim('a') }}",
    "trims a sum": "{{ ('a' + m.content) | trim }}",
    "repeats": "{{ m.content * 2 }}",
    "index": "{{ m.content[0] }}",
    "slice": "{{ m.content[:1] }}",
    "loop over it": "{% for letter in m.content %}{{ letter }}{% endfor %}",
    "list": "{{ [m.content] }}",
    "map": "{{ {'a': m.content} }}",
    "whole message": "{{ m }}",
    "whole message as json": "{{ m | tojson }}",
    "items": "{% for key, value in m.items() %}{{ value | length }}{% endfor %}",
    "items by name": "{{ m['items']() }}",
    "values": "{{ m.values() | list }}",
    "any field": "{{ m[m.role] }}",
    "neighbour": "{% if loop.previtem is defined and loop.previtem.content %}a{% endif %}",
    "loop elsewhere": "{% set it = loop %}{{ it.nextitem }}",
    "changed": "{{ loop.changed(m.content) }}",
    "raised": "{{ raise_exception(m.content) }}",
    "argument": "{{ 'a'.replace('a', m.content) }}",
    "default": "{{ m.content | default('a', true) }}",
    "test": "{{ m.content is eq 'a' }}",
    "a type that may be missing": (
        "{% if m.role == 'user' %}{% set x = m.content %}{% endif %}{% if x is not string %}"
        "{{ m.content | upper }}{% endif %}"
    ),
    "alias": "{% set x = m.content %}{% if x %}a{% endif %}",
    "alias of the message": "{% set x = m %}{{ x.content | upper }}",
    "later": "{% if ns is defined and ns.x %}a{% endif %}{% set ns = namespace(x=m.content) %}",
    "set anew": "{% set ns = namespace(x='') %}{% set ns.x = m.content %}{{ ns.x | upper }}",
    "namespace elsewhere": "{% set ns = namespace(x=m.content) %}{% set y = ns %}{{ y.x | upper }}",
    "namespace by another way": (
        "{% set x = namespace() if m.role else namespace() %}{% set x.a = m.content %}"
        "{{ x.a | upper }}"
    ),
    "block": "{% set x %}{{ m.content }}{% endset %}{{ x | upper }}",
    "macro": "{% macro f(x) %}{{ x | upper }}{% endmacro %}{{ f(m.content) }}",
    "filter block": "{% filter upper %}{{ m.content }}{% endfilter %}",
    "an edge": f"{{{{ '{EDGE}' + m.content }}}}",
}
OF_ALL = {
    "selected": "{{ messages | selectattr('content') | list | length }}",
    "joined": "{{ messages | map(attribute='content') | join }}",
    "as json": "{{ messages | tojson }}",
    "compared": "{{ messages == [] }}",
    "unpacked": "{% for a, b in messages %}{{ a }}{% endfor %}",
    "filtered": "{% for m in messages if m.content %}a{% endfor %}",
}
ROLES = ("system", "user", "assistant", "tool")
CONTENTS = st.text(max_size=20) | st.sampled_from(["", " ", "\n", " a ", "{{ x }}", EDGE, "<s>"])
TALKS = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(ROLES), "content": CONTENTS}),
    min_size=1,
    max_size=5,
)


def made(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<bos>", eos_token="<eos>")


def told(template: ChatTemplate, talk: Any, *, framed: bool) -> str:
    """The prompt, or why there is none."""
    try:
        return template.render(talk) if framed else template._rendered(talk)
    except TemplateFailed as error:
        return f"failed: {error}"


def prints(source: str) -> bool:
    return only_prints(BoundedEnvironment().parse(source))


@pytest.mark.parametrize("name", PRINTING)
def test_a_frame_gives_what_the_sandbox_renders(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A machine that does much else may hold a rendering up longer than the bound.
    monkeypatch.setattr(allowance, "RENDER_S_MAX", 60.0)
    assert prints(PRINTING[name])
    template = made(PRINTING[name])
    assert template.frames is not None

    @given(st.lists(TALKS, min_size=1, max_size=4))
    def same(talks: list[Any]) -> None:
        for talk in talks:
            assert told(template, talk, framed=True) == told(template, talk, framed=False)

    same()


def test_the_shipped_template_has_frames() -> None:
    config = json.loads((SHIPPED / "tokenizer_config.json").read_bytes())
    template = made(config["chat_template"])
    assert template.frames is not None
    talk = [{"role": role, "content": f" {role} "} for role in ROLES]
    assert told(template, talk, framed=True) == told(template, talk, framed=False)


@pytest.mark.parametrize("name", READING)
def test_a_template_that_reads_contents_is_rendered(name: str) -> None:
    assert not prints(LOOP.replace("BODY", READING[name]))


@pytest.mark.parametrize("name", OF_ALL)
def test_a_template_that_reads_messages_as_a_whole_is_rendered(name: str) -> None:
    assert not prints(OF_ALL[name])


def test_a_template_beyond_reason_is_rendered() -> None:
    chain = "".join(f"{{% set a{n} = a{n + 1} %}}" for n in range(frames.KEPT_MAX))
    assert not only_prints(
        Environment().parse(chain + f"{{% set a{frames.KEPT_MAX} = messages %}}")
    )


class Rendered:
    """Renders, and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, messages: Any, variables: Any) -> str:
        self.count += 1
        said = "".join(f"<{each['role']}>{each['content']}" for each in messages)
        return said + "".join(f"<{name}={value}>" for name, value in variables.items())


def talk(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": "hello"} for role in roles]


def test_talks_with_the_same_roles_are_rendered_once_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    render = Rendered()
    made = Frames(render)
    for _ in range(3):
        assert made.filled(talk("user", "assistant")) == "<user>hello<assistant>hello"
    assert render.count == 1
    made.filled(talk("user"))
    assert render.count == 2
    later_s = time.time() + frames.DAY_S
    monkeypatch.setattr(time, "time", lambda: later_s)
    made.filled(talk("user"))
    assert render.count == 3


def test_what_a_frame_would_not_fit_is_rendered() -> None:
    made = Frames(Rendered())
    assert made.filled(talk(*["user"] * (frames.TURNS_MAX + 1))) is None
    assert made.filled([{"role": "user", "content": "x" * (frames.CONTENT_CHARS_MAX + 1)}]) is None
    called: Any = {"role": "assistant", "content": "", "tool_calls": []}
    assert made.filled([called]) is None


def test_the_frame_not_used_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "KEPT_MAX", 2)
    render = Rendered()
    made = Frames(render)
    for roles in (["user"], ["system"], ["user"], ["tool"], ["user"]):
        made.filled(talk(*roles))
    assert render.count == 3
    made.filled(talk("system"))
    assert render.count == 4


def test_variables_have_frames_of_their_own() -> None:
    render = Rendered()
    made = Frames(render)
    for values in ({"x": True}, {"x": 1}, {"x": "1"}, {"x": 1.0}, {}, {"x": True}, {"x": 1}):
        told = "".join(f"<{name}={value}>" for name, value in values.items())
        assert made.filled(talk("user"), values) == f"<user>hello{told}"
    assert render.count == 5


SWITCHED = (
    "{% for m in messages %}{{ x }}{{ m.content | trim }}{% endfor %}"
    "{% if thinks is defined and thinks is false %}off{% elif effort %}{{ effort }}{% endif %}"
    "{% if late %}{{ messages[0].content | length }}{% endif %}{% set late = [] %}"
)


@given(
    said=TALKS,
    values=st.dictionaries(
        st.sampled_from(["x", "thinks", "effort", "late", "messages", "range", "bos_token"]),
        st.booleans() | st.integers(0, 2) | st.floats(0, 1) | CONTENTS | st.none(),
        max_size=4,
    ),
)
def test_a_frame_with_variables_gives_what_the_sandbox_renders(said: Any, values: Any) -> None:
    template = made(SWITCHED)
    assert template.variables == {"x", "thinks", "effort", "late"}
    read = {name: each for name, each in values.items() if name in template.variables}
    for _ in range(2):
        assert template.render(said, variables=values) == template._rendered(said, read)
