"""Whether a chat template reads what messages say, or only where it puts it.

What a template prints of a message's content it may copy or trim; where it compares the content,
measures it or hands it to a function, another content could make another prompt. This follows each
expression of the syntax tree, without regard to order: a name has all kinds that it is ever given.
Every message has a role and a content, and there are no tools.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any

from jinja2 import nodes

from inference.text.frames import EDGE


class Kind(Enum):
    """What an expression may be.

    CLEAN does not depend on any content. TRUE is always true; EMPTY is not there: it is false, and
    nothing is in it. CONTENT is one message's, whole or trimmed; TEXT has some inside.
    """

    TRUE = 0
    CLEAN = 1
    EMPTY = 2
    CONTENT = 3
    TEXT = 4
    MESSAGE = 5
    MESSAGES = 6
    NAMESPACE = 7


class Reads(Exception):
    """The template does more with a content than to print it."""


KNOWN = {"messages": Kind.MESSAGES, "tools": Kind.EMPTY}
PLAIN = frozenset({Kind.TRUE, Kind.CLEAN, Kind.EMPTY})
PRINTED = PLAIN | {Kind.CONTENT, Kind.TEXT}
# Rounds until the kinds of names are known, or it is no template worth the effort.
ROUNDS_MAX = 20
# Of `loop` all else may tell of other messages.
LOOP_NUMBERS = frozenset({
    "depth", "depth0", "first", "index", "index0", "last", "length", "revindex", "revindex0",
})  # fmt: skip
STRIPS = frozenset({"strip", "lstrip", "rstrip"})
# What only asks for a type: those that a text has, and those that it has not.
OF_TEXTS = frozenset({"defined", "iterable", "sequence", "string"})
OF_OTHERS = frozenset({
    "boolean", "false", "float", "integer", "mapping", "none", "number", "true", "undefined",
})  # fmt: skip


def only_prints(tree: nodes.Template) -> bool:
    """Whether prompts of messages with the same roles differ only where contents stand."""
    flow = _Flow()
    try:
        for _ in range(ROUNDS_MAX):
            before = dict(flow.kinds)
            flow.all(tree.body)
            if flow.kinds == before:
                return True
    except (Reads, RecursionError):
        pass
    return False


class _Flow:
    """Kinds by name, and of a namespace by name and attribute."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[str, ...], Kind] = {(name,): kind for name, kind in KNOWN.items()}

    def all(self, statements: Iterable[nodes.Node]) -> None:
        for each in statements:
            self._statement(each)

    def _statement(self, node: nodes.Node) -> None:
        match node:
            case nodes.Output():
                self._need(node.nodes, PRINTED)
            case nodes.If():
                self._branches([node, *node.elif_], node.else_)
            case nodes.For():
                self._loop(node)
            case nodes.Assign():
                self._assign(node.target, node.node)
            case nodes.Scope():
                self.all(node.body)
            case nodes.Break() | nodes.Continue():
                pass
            case _:
                raise Reads

    def _branches(self, tests: Iterable[nodes.If], rest: list[nodes.Node]) -> None:
        """Bodies of what is never true are never rendered, nor is what follows the always true."""
        for each in tests:
            found = self._tested(each.test)
            if found is not Kind.EMPTY:
                self.all(each.body)
            if found is Kind.TRUE:
                return
        self.all(rest)

    def _loop(self, node: nodes.For) -> None:
        kind = self.kind(node.iter)
        if kind is Kind.EMPTY:
            self.all(node.else_)
            return
        if kind not in (Kind.MESSAGES, Kind.CLEAN):
            raise Reads
        self._give(node.target, Kind.MESSAGE if kind is Kind.MESSAGES else Kind.CLEAN)
        if node.test is not None:
            self._tested(node.test)
        self.all(node.body)
        self.all(node.else_)

    def _assign(self, target: nodes.Node, value: nodes.Node) -> None:
        if isinstance(value, nodes.Call) and _is_name(value.node, "namespace"):
            if not isinstance(target, nodes.Name) or value.args or _is_open(value):
                raise Reads
            for pair in value.kwargs:
                self._join((target.name, pair.key), self.kind(pair.value))
            self._join((target.name,), Kind.NAMESPACE)
        elif isinstance(target, nodes.NSRef):
            # One that came by another way may be read under another name.
            if self.kinds.get((target.name,)) is not Kind.NAMESPACE:
                raise Reads
            self._join((target.name, target.attr), self.kind(value))
        else:
            self._give(target, self.kind(value))

    def _give(self, target: nodes.Node, kind: Kind) -> None:
        if isinstance(target, nodes.Name) and kind is not Kind.NAMESPACE:
            self._join((target.name,), kind)
        elif isinstance(target, nodes.Tuple) and kind in PLAIN:
            for each in target.items:
                self._give(each, Kind.CLEAN)
        else:
            raise Reads

    def _join(self, name: tuple[str, ...], kind: Kind) -> None:
        self.kinds[name] = _either(self.kinds.get(name, kind), kind)

    def _need(self, expressions: Iterable[nodes.Node], kinds: frozenset[Kind] = PLAIN) -> Kind:
        """The kind of all of them together, each of which must be one of `kinds`."""
        found = Kind.CLEAN
        for each in expressions:
            kind = self.kind(each)
            if kind not in kinds:
                raise Reads
            if kind in (Kind.CONTENT, Kind.TEXT):
                found = Kind.TEXT
        return found

    def _tested(self, test: nodes.Node) -> Kind:
        """A condition, which no content may decide."""
        kind = self.kind(test)
        if kind in (Kind.CONTENT, Kind.TEXT):
            raise Reads
        return kind

    def kind(self, node: nodes.Node) -> Kind:
        """Of an expression."""
        find = _FINDS.get(type(node))
        if find is not None:
            return find(self, node)
        if not isinstance(node, _PURE):
            raise Reads
        # What makes something of plain values makes a plain one.
        return self._need(each for each in node.iter_child_nodes() if isinstance(each, nodes.Expr))

    def _literal(self, node: nodes.TemplateData | nodes.Const) -> Kind:
        text = node.data if isinstance(node, nodes.TemplateData) else node.value
        if isinstance(text, str) and EDGE in text:
            raise Reads
        return Kind.CLEAN

    def _compared(self, node: nodes.Compare) -> Kind:
        return self._need([node.expr, *(each.expr for each in node.ops)])

    def _list(self, node: nodes.List) -> Kind:
        return self._need(node.items) if node.items else Kind.EMPTY

    def _sum(self, node: nodes.Add | nodes.Concat) -> Kind:
        return self._need(node.iter_child_nodes(), PRINTED)

    def _name(self, node: nodes.Name) -> Kind:
        if node.name == "loop":
            raise Reads
        return self.kinds.get((node.name,), Kind.CLEAN)

    def _chosen(self, node: nodes.CondExpr | nodes.Or | nodes.And | nodes.Not) -> Kind:
        """One of two, by a condition."""
        if isinstance(node, nodes.Not):
            found = self._tested(node.node)
            return {Kind.EMPTY: Kind.TRUE, Kind.TRUE: Kind.EMPTY}.get(found, Kind.CLEAN)
        if isinstance(node, nodes.CondExpr):
            found = self._tested(node.test)
            if found is Kind.TRUE:
                return self.kind(node.expr1)
            rest = Kind.EMPTY if node.expr2 is None else self.kind(node.expr2)
            return rest if found is Kind.EMPTY else _either(self.kind(node.expr1), rest)
        found = self._tested(node.left)
        decided = Kind.TRUE if isinstance(node, nodes.Or) else Kind.EMPTY
        if found is decided:
            return found
        if found in (Kind.TRUE, Kind.EMPTY):
            return self.kind(node.right)
        return _either(found, self.kind(node.right))

    def _part(self, node: nodes.Getattr | nodes.Getitem) -> Kind:
        """`of.part` or `of[part]`."""
        name = node.attr if isinstance(node, nodes.Getattr) else _constant(node.arg)
        if _is_name(node.node, "loop"):
            if name not in LOOP_NUMBERS:
                raise Reads
            return Kind.CLEAN
        of = self.kind(node.node)
        if of is Kind.MESSAGE and isinstance(name, str):
            return _field(name)
        if of is Kind.NAMESPACE and isinstance(node.node, nodes.Name) and isinstance(name, str):
            return self.kinds.get((node.node.name, name), Kind.EMPTY)
        if isinstance(node, nodes.Getitem) and of in (Kind.MESSAGES, *PLAIN):
            return self._item(of, node.arg)
        if of not in PLAIN:
            raise Reads
        return Kind.CLEAN

    def _item(self, of: Kind, place: nodes.Node) -> Kind:
        if isinstance(place, nodes.Slice):
            self._need([each for each in (place.start, place.stop, place.step) if each is not None])
            return of
        self._need([place])
        return Kind.MESSAGE if of is Kind.MESSAGES else Kind.CLEAN

    def _call(self, node: nodes.Call) -> Kind:
        if _is_open(node):
            raise Reads
        called, count = node.node, len(node.args) + len(node.kwargs)
        if isinstance(called, nodes.Getattr):
            of = self.kind(called.node)
            if of is Kind.CONTENT and called.attr in STRIPS and not count:
                return of
            if of is Kind.MESSAGE and called.attr == "get" and node.args and not node.kwargs:
                return self._got(node.args)
        self._need([called, *node.args, *(each.value for each in node.kwargs)])
        return Kind.CLEAN

    def _got(self, args: Sequence[nodes.Node]) -> Kind:
        """`message.get(name, else)`."""
        name = _constant(args[0])
        if not isinstance(name, str):
            raise Reads
        kind = _field(name)
        return self._need(args[1:2]) if kind is Kind.EMPTY and len(args) > 1 else kind

    def _filter(self, node: nodes.Filter) -> Kind:
        if node.node is None or _is_open(node):
            raise Reads
        of, given = self.kind(node.node), [*node.args, *(each.value for each in node.kwargs)]
        match (node.name, of):
            case ("trim", Kind.CONTENT) if not given:
                return of
            case ("string" | "safe", Kind.CONTENT | Kind.TEXT) if not given:
                return of
            case ("length" | "count", Kind.MESSAGES):
                return Kind.CLEAN
            case ("list", Kind.MESSAGES):
                return of
            case ("first" | "last", Kind.MESSAGES):
                return Kind.MESSAGE
        if of not in PLAIN:
            raise Reads
        return self._need(given)

    def _test(self, node: nodes.Test) -> Kind:
        kind = self.kind(node.node)
        if node.name in OF_TEXTS or node.name in OF_OTHERS:
            # A name may stand for something else before it is given a content.
            if kind is not Kind.CONTENT or isinstance(node.node, nodes.Name):
                return Kind.CLEAN
            return Kind.TRUE if node.name in OF_TEXTS else Kind.EMPTY
        if kind not in PLAIN or _is_open(node):
            raise Reads
        return self._need([*node.args, *(each.value for each in node.kwargs)])


_FINDS: dict[type, Callable[[_Flow, Any], Kind]] = {
    nodes.TemplateData: _Flow._literal, nodes.Const: _Flow._literal, nodes.Name: _Flow._name,
    nodes.Getattr: _Flow._part, nodes.Getitem: _Flow._part, nodes.Call: _Flow._call,
    nodes.Filter: _Flow._filter, nodes.Test: _Flow._test, nodes.Add: _Flow._sum,
    nodes.Concat: _Flow._sum, nodes.CondExpr: _Flow._chosen, nodes.Or: _Flow._chosen,
    nodes.And: _Flow._chosen, nodes.Not: _Flow._chosen, nodes.List: _Flow._list,
    nodes.Compare: _Flow._compared,
}  # fmt: skip
_PURE = (nodes.BinExpr, nodes.UnaryExpr, nodes.Tuple)


def _either(one: Kind, other: Kind) -> Kind:
    """What is the one or the other; what may be missing is treated as if it were there."""
    both = {one, other}
    if one is other:
        return one
    if both <= PLAIN:
        return Kind.CLEAN
    if Kind.EMPTY in both and Kind.NAMESPACE not in both:
        return other if one is Kind.EMPTY else one
    if both <= PRINTED:
        return Kind.TEXT
    raise Reads


def _field(name: str) -> Kind:
    """Of a message with nothing but a role and a content; raises `Reads` for what all maps have."""
    if hasattr(dict, name):
        raise Reads
    return {"role": Kind.CLEAN, "content": Kind.CONTENT}.get(name, Kind.EMPTY)


def _constant(node: nodes.Node) -> object:
    return node.value if isinstance(node, nodes.Const) else None


def _is_name(node: nodes.Node, name: str) -> bool:
    return isinstance(node, nodes.Name) and node.name == name


def _is_open(node: nodes.Call | nodes.Filter | nodes.Test) -> bool:
    """Whether arguments are given that only the rendering knows."""
    return node.dyn_args is not None or node.dyn_kwargs is not None
