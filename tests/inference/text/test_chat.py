"""Chat templates: what models publish renders as in `transformers`; what attacks is refused."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from inference.text.chat import ChatMessage, ChatTemplate, TemplateFailed
from tests.inference.text.tiny import TEMPLATE, tiny_tokenizer

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


@pytest.mark.parametrize("probe", ["{{ raise_exception.__globals__ }}", "{{ messages.__class__ }}"])
def test_what_lies_behind_objects_is_not_there(probe: str) -> None:
    assert _template(probe).render(MESSAGES) == ""


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% nonsense %}"])
def test_what_is_no_template(source: str) -> None:
    with pytest.raises(TemplateFailed, match="chat_template"):
        _template(source)
