"""Jinja for templates that a node sent: the immutable sandbox with every step and size bounded.

Filters, tests, globals and methods are those listed here; others are not there. The tree of a
template is rewritten before it is compiled: loops, lists, comparisons and texts are then counted.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import TemplateAssertionError, TemplateRuntimeError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.filters import FILTERS, do_indent
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from inference.text.allowance import INTEGER_BITS_MAX, ITEM_UNITS, allowance

METHODS = frozenset({
    "capitalize", "count", "endswith", "find", "get", "index", "isalnum", "isalpha", "isdigit",
    "islower", "isnumeric", "isspace", "isupper", "items", "join", "keys", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition",
    "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper", "values",
})  # fmt: skip
LISTED_FILTERS = (
    "abs", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length",
    "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort",
    "unique",
)  # fmt: skip
TEXT_FILTERS = ("capitalize", "lower", "title", "trim", "upper")
INDENT_MAX = 16
SEPARATOR_CHARS_MAX = 8
# Directives of `strftime`, none with a width, which could be any.
TIME_FORMAT = re.compile(r"(?:[^%]|%-?[aAbBcdDeFHIjmMpRSTuUwWxXyYZz%]){0,100}")
# `\\uXXXX` once or, beyond the basic plane, twice.
ASCII_GROWTH_MAX = 12
# An upper-case or split text is at most this many times as long.
GROWTH_MAX = 4
# Names with a space: no template can say them.
_WALK, _KEEP, _STEP, _CONCAT = "walk it", "keep it", "step it", "concat them"


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles a template so that its rendering takes from the current allowance."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=_finalize,
        )
        self.globals = {
            "dict": dict,
            "namespace": Namespace,
            "raise_exception": _raise,
            "range": safe_range,
            "strftime_now": _strftime_today,
        }
        self.tests = {name: _stepping(test) for name, test in TESTS.items()}
        self.filters = {name: _stepping(function) for name, function in _filters().items()}

    def bounded(self, source: str) -> Any:
        """The compiled template; raises `TemplateError`, RecursionError or SyntaxError."""
        tree = _Counting().visit(self.parse(source))
        tree.set_environment(self)
        return self.from_string(tree)

    def is_safe_callable(self, obj: Any) -> bool:
        """Of methods of texts, numbers, lists and maps only those that are listed."""
        if isinstance(obj, BuiltinMethodType) and obj.__name__ not in METHODS:
            return False
        return super().is_safe_callable(obj)

    def wrap_str_format(self, value: Any) -> None:
        """Nothing stands for `format` of a text, which could ask for any width."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        current = allowance()
        current.step()
        found = super().getitem(obj, argument)
        if isinstance(argument, slice):
            current.take(ITEM_UNITS * len(found))
        return found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Pay for the result before it is made."""
        allowance().step()
        _PRICES[operator](left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Count the call of a macro or method and pay for its result."""
        current = allowance()
        current.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            args = _pay_method(owner, __obj.__name__, args)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, dict):
            current.take_value(result)
        return result


class _Generation(Extension):
    """`{% generation %}` marks what a model is trained on; in a prompt it is its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class _Counting(NodeTransformer):
    """Puts counting filters around what a template could do without end."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise TemplateAssertionError("recursive loops are not offered", node.lineno)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _WALK)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCAT)

    def visit_Compare(self, node: nodes.Node) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, _STEP if isinstance(node, nodes.Compare) else _KEEP)

    visit_List = visit_Dict = visit_Compare

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return node if node.ctx != "load" else _filtered(node, _KEEP)

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        # As an expression it passes `finalize`, which counts it wherever it is gathered.
        return nodes.Const(node.data, lineno=node.lineno)

    def visit_Name(self, node: nodes.Name) -> nodes.Node:
        if node.name in ("varargs", "kwargs"):
            raise TemplateAssertionError(f"{node.name} is not offered", node.lineno)
        return node


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _stepping(function: Any) -> Callable[..., Any]:
    # `wraps` also copies the marks by which Jinja passes contexts.
    @functools.wraps(function)
    def stepping(*args: Any, **kwargs: Any) -> Any:
        allowance().step()
        return function(*args, **kwargs)

    return stepping


@pass_context
def _finalize(context: Context, value: Any) -> str:
    return allowance().text(value)


def _raise(message: object) -> NoReturn:
    raise TemplateRuntimeError(allowance().text(message))


def _strftime_today(format: Any) -> str:
    """Today's midnight, UTC, for now: a prompt changes, and its cached prefix ends, once a day."""
    if not isinstance(format, str) or not TIME_FORMAT.fullmatch(format):
        raise TemplateRuntimeError("strftime_now: a format that is not offered")
    return datetime.combine(_today(), time(), UTC).strftime(format)


def _today() -> date:
    return datetime.now(UTC).date()


def _filters() -> Mapping[str, Callable[..., Any]]:
    return {
        **{name: FILTERS[name] for name in LISTED_FILTERS},
        **{name: _of_text(FILTERS[name]) for name in TEXT_FILTERS},
        "e": _escape,
        "escape": _escape,
        "indent": _indent,
        "join": _join,
        "list": lambda value: list(_walk(value)),
        "replace": _replace,
        "safe": _text,
        "string": _text,
        "tojson": _to_json,
        _WALK: _walk,
        _KEEP: _keep,
        _STEP: lambda value: value,
        _CONCAT: _join,
    }


def _of_text(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_text(value: Any, *args: Any) -> Any:
        return function(allowance().text(value), *args)

    return of_text


def _text(value: Any) -> str:
    return allowance().text(value)


def _escape(value: Any) -> str:
    text = allowance().text(value)
    allowance().take(GROWTH_MAX * len(text))
    return str(FILTERS["escape"](text))


def _indent(value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    text = allowance().text(value)
    if not isinstance(width, int) or not 0 <= width <= INDENT_MAX:
        raise TemplateRuntimeError(f"indent: width is not in 0..{INDENT_MAX}")
    allowance().take((text.count("\n") + 1) * width)
    return do_indent(text, width, first, blank)


def _join(value: Iterable[Any], d: Any = "") -> str:
    current = allowance()
    parts = [current.text(each) for each in value]
    between = current.text(d)
    current.take(len(parts) * len(between))
    return between.join(parts)


def _replace(value: Any, old: Any, new: Any) -> str:
    current = allowance()
    text, old, new = current.text(value), current.text(old), current.text(new)
    current.take(text.count(old) * len(new))
    return text.replace(old, new)


def _to_json(
    value: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None,
    sort_keys: Any = False,
) -> str:  # fmt: skip
    """As `transformers` has it, which has another order of arguments than Jinja."""
    current = allowance()
    units = current.take_value(value)
    if ensure_ascii:
        current.take(ASCII_GROWTH_MAX * units)
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= INDENT_MAX):
        raise TemplateRuntimeError(f"tojson: indent is not in 0..{INDENT_MAX}")
    if separators is not None:
        separators = tuple(map(_text, separators))
        if len(separators) != 2 or max(map(len, separators)) > SEPARATOR_CHARS_MAX:
            raise TemplateRuntimeError("tojson: separators are not two short texts")
    encoder = json.JSONEncoder(
        ensure_ascii=bool(ensure_ascii), indent=indent, separators=separators,
        sort_keys=bool(sort_keys),
    )  # fmt: skip
    if indent is None:
        return encoder.encode(value)
    return "".join(current.text(part) for part in encoder.iterencode(value))


def _walk(value: Iterable[Any]) -> Iterator[Any]:
    current = allowance()
    for item in value:
        current.step()
        current.take(ITEM_UNITS)
        yield item


def _keep(value: Any) -> Any:
    allowance().take_value(value)
    return value


def _pay_method(owner: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Pay for the result of a text's method; `join` gets a list, since it reads its items twice."""
    current = allowance()
    current.take(GROWTH_MAX * len(owner))
    if name == "join" and args:
        parts = [current.text(each) for each in args[0]]
        current.take(len(parts) * len(owner))
        return (parts,)
    if name == "replace" and len(args) >= 2 and all(isinstance(each, str) for each in args[:2]):
        current.take(owner.count(args[0]) * len(args[1]))
    return args


def _pay_sum(left: Any, right: Any) -> None:
    if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
        allowance().take_value(left)
        allowance().take_value(right)


def _pay_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    for many, times in ((left, right), (right, left)):
        if isinstance(many, (str, list, tuple)) and isinstance(times, int):
            allowance().take(allowance().take_value(many) * max(0, times))


def _pay_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))


def _check_bits(bits: int) -> None:
    if bits > INTEGER_BITS_MAX:
        raise TemplateRuntimeError(f"a number of over {INTEGER_BITS_MAX} bits")


def _refuse_formatting(left: Any, right: Any) -> None:
    if isinstance(left, (str, bytes)):
        raise TemplateRuntimeError("formatting texts by % is not offered")


_PRICES: Mapping[str, Callable[[Any, Any], None]] = {
    "+": _pay_sum,
    "*": _pay_product,
    "**": _pay_power,
    "%": _refuse_formatting,
}
