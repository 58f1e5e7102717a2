"""Chat templates: what models publish renders as in `transformers`; what attacks is refused."""

from __future__ import annotations

import time
import tracemalloc
from datetime import date
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from inference.text import sandbox
from inference.text.chat import (
    TEMPLATE_CHARS_MAX,
    ChatMessage,
    ChatTemplate,
    TemplateFailed,
)
from tests.inference.text.tiny import TEMPLATE, tiny_tokenizer

# Seconds and bytes that a refusal may take on a busy machine.
REFUSED_S_MAX = 10.0
TRACED_BYTES_MAX = 256 * 1024 * 1024
MESSAGES: list[ChatMessage] = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": '  Two nights <in> "Tokyo" & 東京?'},
]
PUBLISHED = {
    "plain": TEMPLATE,
    "llama-like": (
        "{{- bos_token }}\n{%- for message in messages %}\n"
        "    {{- '<|' + message['role'] + '|>\\n\\n' + message['content'] | trim + '<|end|>' }}\n"
        "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|assistant|>\\n\\n' }}\n"
        "{%- endif %}\n"
    ),
    "loop controls": (
        "{% for message in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% if not message.content %}{% continue %}{% endif %}{{ message.content }}{% endfor %}"
    ),
    "json": "{{ messages | tojson }}\n{{ messages[0] | tojson(indent=2) }}",
    "json in all ways": (
        "{{ messages | tojson(ensure_ascii=False) }}{{ messages | tojson(True, sort_keys=true) }}"
        "{{ messages[1] | tojson(separators=(',', ':')) }}"
        "{{ messages | tojson(ensure_ascii=False, indent=4, separators=[' ,', ' :']) }}"
    ),
    "generation": (
        "{% for message in messages %}{% set role = message.role %}{% generation %}"
        "{% set role = 'x' %}{{ message.content }}{% endgeneration %}\n{{ role }}{% endfor %}"
    ),
    "namespace": (
        "{% set found = namespace(text='') %}{% for message in messages %}"
        "{% set found.text = found.text + message.content %}{% endfor %}"
        "{{ found.text }}{{ eos_token }}"
    ),
    "blocks": (
        "{% if messages %}\n  {% for message in messages %}\n{{ message.role }}\n"
        "  {% endfor %}\n{% endif %}"
    ),
}


def _template(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<|bos|>", eos_token="<|end|>")


@pytest.mark.parametrize("name", PUBLISHED)
def test_renders_as_transformers_does(name: str) -> None:
    make_reference: Any = PreTrainedTokenizerFast
    reference = make_reference(
        tokenizer_object=tiny_tokenizer(), bos_token="<|bos|>", eos_token="<|end|>"
    )
    expected = reference.apply_chat_template(
        [dict(message) for message in MESSAGES],
        chat_template=PUBLISHED[name],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert _template(PUBLISHED[name]).render(MESSAGES) == expected


def test_a_template_may_refuse() -> None:
    source = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(TemplateFailed, match="roles must alternate"):
        _template(source).render(MESSAGES)


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ range(10 ** 9) | list }}",
        "{% for outer in range(9000) %}{% for inner in range(9000) %}aaaa{% endfor %}{% endfor %}",
        "{{ missing.attribute }}",
        "{% include 'other' %}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content['no'] + 1 }}",
        "{{ '%d' % 'x' }}",
    ],
)
def test_attacks_and_faults_are_refused(attack: str) -> None:
    with pytest.raises(TemplateFailed):
        _template(attack).render(MESSAGES)


HUGE = "{% set ns = namespace(a='aaaaaaaaaa') %}{% for i in range(60) %}"
DEEP = "{% set ns = namespace(a=['a']) %}{% for i in range(60) %}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 300000000 }}",
        "{{ 300000000 * 'a' }}",
        "{{ ([1] * 300000000) | length }}",
        "{{ messages * 30000000 }}",
        "{{ 2 ** (2 ** 40) }}",
        "{{ 2 ** -(2 ** 40) }}",
        "{{ (2 ** 4000) * (2 ** 4000) }}",
        "{{ '%300000000d' % 1 }}",
        "{{ '%*d' % (300000000, 1) }}",
        "{{ '%300000000d' | format(1) }}",
        "{{ '{:300000000}'.format(1) }}",
        "{{ '{:300000000}'.format_map({}) }}",
        "{{ 'a'.ljust(300000000) }}",
        "{{ 'a'.center(300000000) }}",
        "{{ 'a' | center(300000000) }}",
        "{{ '1'.zfill(300000000) }}",
        "{{ 'a\t'.expandtabs(300000000) }}",
        "{{ 'a' | indent(300000000, first=True) }}",
        "{{ 'a' | indent('a' * 20, first=True) }}",
        "{{ messages | tojson(indent=300000000) }}",
        "{{ 'a' | tojson(separators=(',', ' ' * 300000000)) }}",
        "{{ ['é' * 10000000] | tojson(ensure_ascii=True) }}",
        "{{ strftime_now('%0300000000d') }}",
        "{{ strftime_now('%300000000Y') }}",
        "{{ strftime_now('%c' * 1000000) }}",
        "{{ (1).to_bytes(300000000, 'big') }}",
        "{{ [1] | batch(300000000, 'a') | list }}",
        "{{ 1.5 | round(300000000, 'floor') }}",
        "{{ lipsum(n=1000000) }}",
        "{{ ('a' * 10000) | replace('a', 'a' * 10000) }}",
        "{{ ('a' * 10000).replace('a', 'a' * 10000) }}",
        "{{ (range(99999) | list) | join('a' * 10000) }}",
        "{{ ('a' * 10000).join(range(99999)) }}",
        "{{ ('a' * 10000000).split('a') | length }}",
        "{% set x %}{% for i in range(99999) %}" + "a" * 1000 + "{% endfor %}{% endset %}",
        "{% macro m() %}{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}{% endmacro %}"
        "{% if m() %}{% endif %}",
        HUGE + "{% set ns.a = ns.a + ns.a %}{% endfor %}",
        HUGE + "{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        HUGE + "{% set ns.a = ns.a * 2 %}{% endfor %}",
        DEEP + "{% set ns.a = ns.a + ns.a %}{% endfor %}",
        DEEP + "{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
        DEEP + "{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ ns.a | tojson }}",
        DEEP + "{% set ns.a = {'x': ns.a, 'y': ns.a} %}{% endfor %}{{ ns.a | length }}",
        DEEP + "{% set ns.a = dict(x=ns.a, y=ns.a) %}{% endfor %}{{ ns.a | length }}",
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}",
        "{% macro m() %}{{ varargs }}{% endmacro %}{{ m(1) }}",
    ],
)
def test_what_would_take_much_memory_is_refused_before_it_does(source: str) -> None:
    began_s = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(TemplateFailed):
            _template(source).render(MESSAGES)
        assert tracemalloc.get_traced_memory()[1] < TRACED_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began_s < REFUSED_S_MAX


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9000) %}{% for b in range(9000) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) if a == b %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{% if 'a' in messages | map('string') | list %}{% endif %}"
        "{% set x = range(99999) | select('divisibleby', 7) | list %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set a = 'a' * 9000000 %}{% for i in range(99999) %}{% set b = a[1:] %}{% endfor %}",
        "{% set a = range(99999) | list %}{% set b = range(99999) | list %}"
        "{% for i in range(99999) %}{% if a == b %}{% endif %}{% endfor %}",
        "{% set a = 'a' * 9000000 %}{% for i in range(99999) %}{{ a.count('b') }}{% endfor %}",
    ],
)
def test_what_would_take_long_is_stopped(source: str) -> None:
    began_s = time.monotonic()
    with pytest.raises(TemplateFailed):
        _template(source).render(MESSAGES)
    assert time.monotonic() - began_s < REFUSED_S_MAX


@pytest.mark.parametrize("source", ["{% for a in x recursive %}{{ loop(a) }}{% endfor %}"])
def test_recursive_loops_are_not_offered(source: str) -> None:
    with pytest.raises(TemplateFailed, match="recursive"):
        _template(source)


@pytest.mark.parametrize("opened", ["(", "[", "-", "not ", "1+", "{{ '{{' }}", "{% if 1 %}"])
def test_a_source_too_deep_or_too_long_is_no_template(opened: str) -> None:
    with pytest.raises(TemplateFailed):
        _template("{{ " + opened * 20_000)
    with pytest.raises(TemplateFailed, match="over"):
        _template(opened * (TEMPLATE_CHARS_MAX + 1))


def test_a_long_conversation_renders_within_the_bounds() -> None:
    turns = [ChatMessage(role="user", content="word " * 200) for _ in range(2_000)]
    for source in (PUBLISHED["llama-like"], PUBLISHED["plain"], PUBLISHED["json"]):
        assert len(_template(source).render(turns)) > 2_000 * 1_000


def test_every_rendering_has_an_allowance_of_its_own() -> None:
    template = _template("{% for i in range(90000) %}{% endfor %}")
    for _ in range(15):
        assert template.render(MESSAGES) == ""


def test_now_is_the_day_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that told the second would never find its cached prefix again."""
    monkeypatch.setattr(sandbox, "_today", lambda: date(2026, 3, 9))
    source = "{{ strftime_now('%d %B %Y|%-d|%Y-%m-%d %H:%M:%S %Z') }}"
    assert _template(source).render(MESSAGES) == "09 March 2026|9|2026-03-09 00:00:00 UTC"
    assert _template("{{ strftime_now is defined }}").render(MESSAGES) == "True"


@pytest.mark.parametrize("probe", ["{{ raise_exception.__globals__ }}", "{{ messages.__class__ }}"])
def test_what_lies_behind_objects_is_not_there(probe: str) -> None:
    assert _template(probe).render(MESSAGES) == ""


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% nonsense %}"])
def test_what_is_no_template(source: str) -> None:
    with pytest.raises(TemplateFailed, match="chat_template"):
        _template(source)
