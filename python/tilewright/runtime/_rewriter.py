"""Rewrites the syntax tree of an interpreted body where Python's meaning differs from that of a kernel.

``_interpreted_values.py`` has the functions that the rewritten body calls. Names that begin with ``__tilewright_`` are
those functions and temporaries. Before the nodes are rewritten, ``_assigned_names.py`` finds what they assign.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import types

from tilewright import _native
from tilewright.runtime._assigned_names import (
    Assigned,
    Names,
    ends_with_return,
    merged,
    names_of,
    open_ways,
    own_returns,
    simple_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NUMBERS = ("float", "int", "bool")
"""Functions that the language has for compile-time numbers, and Python for its own objects."""

OVERLOADED = ("max", "min", "sum", "round", "pow", "divmod", *NUMBERS)


@functools.cache
def tensor_attributes() -> frozenset[str]:
    """An attribute that tensors have, and so numbers of a kernel."""
    return frozenset(name for name in dir(_native.tensor) if not name.startswith("_"))


def is_constexpr(annotation: ast.expr | None) -> bool:
    """Return whether an annotation says ``tl.constexpr``."""
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "constexpr"
        case ast.Constant(value=str(text)):
            return text.rpartition(".")[2].strip() == "constexpr"
        case ast.Subscript(value=value):
            return is_constexpr(value)
    return False


_SPLIT = "__tilewright_is_split"
"""The name that tells whether ways have parted: each may return another value."""


@dataclasses.dataclass
class _If:
    """An ``if`` that has a ``return``."""

    is_tail: bool
    """At most one way goes on after it, so that the statements after it belong to that way."""
    is_before_more: bool
    """Its first branch ends with the ``return``, and statements follow the ``if``."""


def _read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _assignment(name: str, value: ast.expr, at: ast.AST) -> ast.Assign:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), at)


def _if_bound(body: list[ast.stmt], at: ast.AST, otherwise: list[ast.stmt] | None = None) -> ast.Try:
    """Statements for a name that may have no value yet."""
    handler = ast.ExceptHandler(
        ast.Name("__tilewright_NameError__", ast.Load()), None, otherwise or [ast.Pass()]
    )
    return ast.copy_location(ast.Try(body, [handler], [], []), at)


def _is_pure(value: ast.expr | None) -> bool:
    """Return whether an expression can be evaluated without an effect, and is the same each time."""
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    return value is None or isinstance(value, (ast.Constant, ast.Name))


def _is_same_text(left: ast.AST, right: ast.AST) -> bool:
    """Return whether two trees are the same, without recursion."""
    for one, other in itertools.zip_longest(ast.walk(left), ast.walk(right)):
        if type(one) is not type(other):
            return False
        for field in one._fields:
            values = [getattr(node, field, None) for node in (one, other)]
            if not isinstance(values[0], (ast.AST, list)) and values[0] != values[1]:
                return False
    return True


class Rewriter(ast.NodeTransformer):
    """Writes what means something else to Python another way."""

    def __init__(
        self, shadowed: set[str], own_names: set[str], names: dict[str, Any], constants: set[str]
    ) -> None:
        self.shadowed = shadowed
        self.own_names = own_names
        self.globals = names
        self.constants = constants
        self.temporaries = 0
        self.names: dict[int, Names] = {}
        """The names that each node assigns, of the nodes that assign any."""
        self.returning: set[int] = set()
        """Each ``return`` of the function itself, and each ``if`` that has one."""
        self.ifs: dict[int, _If] = {}
        """The properties of each ``if`` before it is rewritten."""
        self.iterated: set[int] = set()
        """The nodes in the ``in`` of a comprehension, where Python takes no ``:=``."""
        self.locals: set[str] = set()
        """The parameters, and the names that the body assigns."""
        self.simple: dict[int, list[dict[str, ast.expr]]] = {}
        """The names and literals that both ways of an ``if`` give names."""
        self.is_same_returned = False
        """All ways return the same text."""

    def rewrite(self, definition: ast.FunctionDef) -> int:
        """The body of a function; not its defaults and annotations, which have been evaluated. Inner nodes come first,
        and no recursion leads there: a chain of operators may be long. The result is how deep the tree is.
        """
        order: list[tuple[Any, Any, ast.AST, int]] = []
        work: list[tuple[Any, Any, ast.AST, int]] = [
            (definition.body, index, node, 1) for index, node in enumerate(definition.body)
        ]
        while work:
            item = work.pop()
            order.append(item)
            _, _, node, depth = item
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.AST):
                    work.append((node, field, value, depth + 1))
                elif isinstance(value, list):
                    children = (pair for pair in enumerate(value) if isinstance(pair[1], ast.AST))
                    work.extend((value, index, child, depth + 1) for index, child in children)
        self.locals = {node.arg for node in ast.walk(definition.args) if isinstance(node, ast.arg)}
        self._look_at(definition.body, [node for _, _, node, _ in reversed(order)])
        lengthened: list[list[Any]] = []
        for owner, place, node, _ in reversed(order):
            made = self.visit(node)
            if isinstance(owner, list):
                owner[place] = made
                if isinstance(made, list):
                    lengthened.append(owner)
            elif made is not node:
                setattr(owner, place, made)
        for statements in lengthened:
            statements[:] = _flat(statements)
        self._begin(definition)
        return max(depth for *_, depth in order)

    def _look_at(self, body: list[ast.stmt], nodes: list[ast.AST]) -> None:
        """Finds what has to be known of statements before they are rewritten; inner nodes come first."""
        own = [*own_returns(body)]
        self.returning = {id(node) for node in own}
        values = [node.value or ast.Constant(None) for node in own]
        self.is_same_returned = all(_is_pure(value) and _is_same_text(value, values[0]) for value in values)
        for node in nodes:
            if names := names_of(node, self.names):
                self.names[id(node)] = names
            if isinstance(node, ast.If) and id(node) in self.names:
                self.simple[id(node)] = [simple_values(way, self.names) for way in (node.body, node.orelse)]
            if isinstance(node, ast.comprehension):
                self.iterated.update(id(inner) for inner in ast.walk(node.iter))
            if isinstance(node, ast.If) and any(
                id(statement) in self.returning for statement in node.body + node.orelse
            ):
                self.returning.add(id(node))
        self.locals.update(*(self.names.get(id(statement), ()) for statement in body))
        self._number_ifs(body, False)

    def _number_ifs(self, body: list[ast.stmt], is_before_more: bool) -> None:
        """Looks at each ``if`` with a ``return``; ``is_before_more`` if statements follow the body."""
        work = [(body, is_before_more)]
        while work:
            body, is_before_more = work.pop()
            for place, statement in enumerate(body):
                if not isinstance(statement, ast.If) or id(statement) not in self.returning:
                    continue
                has_rest = is_before_more or place + 1 < len(body)
                is_tail = open_ways([statement], self.returning) <= 1
                self.ifs[id(statement)] = _If(is_tail, has_rest and ends_with_return(statement.body))
                work += [(statement.body, has_rest), (statement.orelse, has_rest)]

    def _begin(self, definition: ast.FunctionDef) -> None:
        """Lets parameters be what a call makes of the arguments, before the first statement."""
        body = definition.body
        is_documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        place = 1 if is_documented and len(body) > 1 else 0
        first = body[place]
        arguments = definition.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [arguments.vararg] if arguments.vararg else []
        before: list[ast.stmt] = []
        for parameter in parameters:
            is_known = ast.Constant(is_constexpr(parameter.annotation))
            passed = self._call("passed", first, _read(parameter.arg), is_known)
            before.append(_assignment(parameter.arg, passed, first))
        if self.ifs:
            before.append(_assignment(_SPLIT, ast.Constant(False), first))
        body[place:place] = before

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Returns the node: its children have been visited before it."""
        return node

    def _call(self, name: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
        function = ast.copy_location(ast.Name(f"__tilewright_{name}__", ast.Load()), at)
        return ast.copy_location(ast.Call(function, [*arguments], []), at)

    def _assigned(self, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.List):
            items = (one if isinstance(one, ast.Starred) else self._assigned(one) for one in value.elts)
            value.elts = [*items]
            return value
        if isinstance(value, (ast.Lambda, ast.Dict, ast.Set, ast.JoinedStr)):
            return value
        if isinstance(value, ast.Constant) and not isinstance(value.value, (int, float)):
            return value
        return self._call("assign", value, value)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets):
            node.value = self._call("unpacked", node.value, node.value)
        elif any(isinstance(target, ast.Name) for target in node.targets):
            node.value = self._assigned(node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None:
            is_known = is_constexpr(node.annotation)
            node.value = (
                self._call("constant", node.value, node.value) if is_known else self._assigned(node.value)
            )
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_read = isinstance(node.ctx, ast.Load)
        return self._call("known", node, node) if is_read and node.id in self.constants else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        load = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        store = ast.copy_location(ast.Name(node.target.id, ast.Store()), node)
        again = ast.copy_location(ast.Assign([store], self._call("assign", node, load)), node)
        return [node, again]

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return node
        if id(node) not in self.returning:
            node.value = self._assigned(node.value)
            return node
        is_split = [_read(_SPLIT)] if self.ifs and not self.is_same_returned else []
        node.value = self._call("returned", node.value, node.value, *is_split)
        return node

    # -- Names that branches and iterations give other values. --

    def _may_be_assigned(self, assigned: Assigned, others: Names) -> ast.expr | None:
        """A condition under which a name is assigned; nothing if it is in any case. ``others`` change meanwhile."""
        ways: list[ast.expr] = []
        for way in assigned.ways:
            nodes = [node for test, _ in way for node in ast.walk(test)]
            read = {node.id for node in nodes if isinstance(node, ast.Name)}
            # A compiled kernel evaluates a condition in advance only if it has no other names than
            # local ones.
            if not way or read & others.keys() or not read <= self.locals:
                return None
            conditions: list[ast.expr] = [
                ast.Compare(self._foreseen(test), [ast.IsNot()], [ast.Constant(not is_true)])
                for test, is_true in way
            ]
            ways.append(conditions[0] if len(conditions) == 1 else ast.BoolOp(ast.And(), conditions))
        return ways[0] if len(ways) == 1 else ast.BoolOp(ast.Or(), ways)

    def _foreseen(self, test: ast.expr) -> ast.expr:
        """Which way a condition goes, if that is known at compile time."""
        match test:
            case ast.UnaryOp(operand=operand):
                kind, operands = "not", [self._foreseen(operand)]
            case ast.BoolOp(op=operator, values=values):
                kind = "and" if isinstance(operator, ast.And) else "or"
                operands = [*map(self._foreseen, values)]
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                kind, operands = type(operator).__name__, [left, right]
            case _:
                kind, operands = "value", [test]
        return self._call("foreseen", test, ast.Constant(kind), *operands)

    def _merging(self, names: Names, at: ast.AST) -> list[ast.stmt]:
        """Statements that make run-time values of names that an iteration may assign."""
        made: list[ast.stmt] = []
        for name in sorted(names):
            merge: ast.stmt = _assignment(name, self._call("merged", at, _read(name)), at)
            condition = self._may_be_assigned(names[name], names)
            if condition is not None:
                merge = ast.copy_location(ast.If(condition, [merge], []), at)
            made.append(_if_bound([merge], at))
        return made

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        call = node.iter
        is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords
        if is_call and call.func.id == "range" and "range" not in self.shadowed:  # type: ignore[attr-defined]
            call.func.id = "__tilewright_range__"  # type: ignore[attr-defined]
        names = merged(self.names.get(id(one), {}) for one in _flat(node.body))
        target = node.target.id if isinstance(node.target, ast.Name) else None
        if not names and target is None:
            return node
        at = node.iter
        loop, before = self._temporary("loop"), self._temporary("before")
        begin: list[ast.stmt] = [_assignment(loop, self._call("loop", at, node.iter), at)]
        node.iter = ast.copy_location(_read(loop), at)
        end: list[ast.stmt] = []
        if names:
            is_dynamic = self._call("is_dynamic", at, _read(loop))
            node.body.insert(0, ast.copy_location(ast.If(is_dynamic, self._merging(names, at), []), at))
            is_dynamic = self._call("is_dynamic", at, _read(loop))
            end.append(ast.copy_location(ast.If(is_dynamic, self._merging(names, at), []), at))
        if target is not None and target not in names:
            begin.append(self._snapshot(target, before, at))
            after = self._call("index_after", at, _read(loop), _read(target), _read(before))
            end.append(_if_bound([_assignment(target, after, at)], at))
        return [*begin, node, *end]

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        at = node.test
        node.test = self._call("truth", at, node.test)
        names = merged(self.names.get(id(one), {}) for one in _flat(node.body))
        if not names:
            return node
        node.body += self._merging(names, at)
        return [*self._merging(names, at), node]

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        known = self.ifs.get(id(node))
        ways = [
            {}
            if ends_with_return(_flat(body))
            else merged(self.names.get(id(one), {}) for one in _flat(body))
            for body in (node.body, node.orelse)
        ]
        for way, simple in zip(ways, self.simple.get(id(node), ()), strict=False):
            for name, value in simple.items():
                # The name keeps its value.
                if isinstance(value, ast.Name) and value.id == name:
                    way.pop(name, None)
        names = {} if known is not None and known.is_tail else merged(ways)
        at = node.test
        if known is None and not names:
            node.test = self._call("truth", at, node.test)
            return node
        test = self._temporary("test")
        begin: list[ast.stmt] = [_assignment(test, node.test, at)]
        node.test = self._call("truth", at, _read(test))
        if known is not None:
            is_before_more = ast.Constant(known.is_before_more)
            splits = self._call("splits", at, _read(test), is_before_more)
            begin.append(_assignment(_SPLIT, ast.BoolOp(ast.Or(), [_read(_SPLIT), splits]), at))
        befores: list[ast.stmt] = []
        joins: list[ast.stmt] = []
        arguments: list[ast.expr]
        for name in sorted(names):
            before = self._temporary("before")
            befores.append(self._snapshot(name, before, at))
            arguments = [_read(name), _read(before), _read(test)]
            arguments += [self._is_assigned(way, name) for way in ways]
            arguments += self._assigned_values(node, name)
            joins.append(_if_bound([_assignment(name, self._call("joined", at, *arguments), at)], at))
        if not names:
            return [*begin, node]
        is_run_time = [self._call("is_run_time", at, _read(test)) for _ in range(2)]
        begin.append(ast.copy_location(ast.If(is_run_time[0], befores, []), at))
        return [*begin, node, ast.copy_location(ast.If(is_run_time[1], joins, []), at)]

    def _is_assigned(self, way: Names, name: str) -> ast.expr:
        """Return whether one way of an ``if`` assigns a name."""
        if name not in way:
            return ast.Constant(False)
        condition = self._may_be_assigned(way[name], way)
        return ast.Constant(True) if condition is None else condition

    def _assigned_values(self, node: ast.If, name: str) -> list[ast.expr]:
        """The values that both ways of an ``if`` give a name, if they can be told after it."""
        changed = self.names[id(node)]
        values: list[ast.expr] = []
        for simple in self.simple[id(node)]:
            value = simple.get(name)
            is_kept = value is not None and not (isinstance(value, ast.Name) and value.id in changed)
            if value is None or not is_kept:
                values.append(_read("__tilewright_unknown__"))
            elif isinstance(value, ast.Name) and value.id in self.constants:
                values.append(self._call("known", value, value))
            else:
                values.append(value)
        return values

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if id(node) in self.iterated:
            return node
        test = self._temporary("test")
        kept = ast.copy_location(ast.NamedExpr(ast.Name(test, ast.Store()), node.test), node.test)
        both = [node.body, node.orelse] if _is_pure(node.body) and _is_pure(node.orelse) else []
        node.test = self._call("truth", kept, kept)
        is_same = ast.Constant(_is_same_text(node.body, node.orelse))
        return self._call("chosen", node, node, _read(test), is_same, *both)

    def _temporary(self, what: str) -> str:
        self.temporaries += 1
        return f"__tilewright_{what}_{self.temporaries}"

    def _snapshot(self, name: str, kept: str, at: ast.AST) -> ast.stmt:
        """Keeps what a name is now, if it has a value."""
        unbound = ast.Name("__tilewright_unbound__", ast.Load())
        return _if_bound([_assignment(kept, _read(name), at)], at, [_assignment(kept, unbound, at)])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name in (*OVERLOADED, "isinstance") and name not in self.shadowed:
            node.func.id = f"__tilewright_{name}__"  # type: ignore[attr-defined]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        owner = node.value
        if isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "__tilewright_known__":
            owner = owner.args[0]
        if node.attr == "value" and isinstance(node.ctx, ast.Load) and isinstance(owner, ast.Name):
            return self._call("value", node, owner)
        if (
            node.attr in tensor_attributes()
            and isinstance(node.ctx, ast.Load)
            and not self._is_module(node.value)
        ):
            name = ast.copy_location(ast.Constant(node.attr), node)
            return self._call("attribute", node, node.value, name)
        return node

    def _is_module(self, node: ast.expr) -> bool:
        """Returns whether an expression is a module's global name, as far as can be seen."""
        is_global = isinstance(node, ast.Name) and node.id not in self.own_names
        return is_global and isinstance(self.globals.get(node.id), types.ModuleType)  # type: ignore[attr-defined]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        # `a and b and c` is `(stops(t := a) or stops(t := boolean(t, b)) or (t := boolean(t, c)), t)[1]`: as flat.
        text = ast.copy_location(ast.Constant("and" if isinstance(node.op, ast.And) else "or"), node)
        self.temporaries += 1
        name = f"__tilewright_{self.temporaries}"
        left = ast.copy_location(ast.Name(name, ast.Load()), node)
        steps: list[ast.expr] = []
        for number, value in enumerate(node.values):
            result = self._call("boolean", node, text, left, value) if number else value
            kept = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), result), node)
            is_last = number + 1 == len(node.values)
            steps.append(kept if is_last else self._call("stops", node, text, kept))
        pair = ast.Tuple([ast.BoolOp(ast.Or(), steps), left], ast.Load())
        return ast.copy_location(ast.Subscript(pair, ast.Constant(1), ast.Load()), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1:
            # `a < b < c` is `a < (t := b) and t < c`.
            parts: list[ast.expr] = []
            left = node.left
            for number, (operator, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
                following = right
                if number + 1 < len(node.ops):
                    self.temporaries += 1
                    name = f"__tilewright_{self.temporaries}"
                    following = ast.copy_location(ast.Name(name, ast.Load()), right)
                    right = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), right), right)
                pair = ast.copy_location(ast.Compare(left, [operator], [right]), node)
                parts.append(self.visit_Compare(pair))
                left = following
            return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), parts), node))
        self.generic_visit(node)
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return node
        return self._call(type(node.ops[0]).__name__, node, node.left, *node.comparators)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("not", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        # `if __debug__ and not holds(test): raise failed(message)`.
        fails = ast.UnaryOp(ast.Not(), self._call("holds", node.test, node.test))
        condition = ast.BoolOp(ast.And(), [ast.Name("__debug__", ast.Load()), fails])
        message = [] if node.msg is None else [node.msg]
        raised = ast.copy_location(ast.Raise(self._call("failed", node, *message)), node)
        return ast.copy_location(ast.If(ast.copy_location(condition, node.test), [raised], []), node)


def _flat(statements: list[Any]) -> list[ast.stmt]:
    flat: list[ast.stmt] = []
    for statement in statements:
        flat.extend(statement if isinstance(statement, list) else [statement])
    return flat
