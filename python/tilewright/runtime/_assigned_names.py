"""Which names the statements of a function may assign, and under which conditions that are known at compile time."""

from __future__ import annotations

import ast
import copy
import dataclasses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_CONDITIONS = 8
"""Beyond this many, a name counts as assigned in any case."""


@dataclasses.dataclass(frozen=True)
class Assigned:
    """When a name is assigned: where one of these lists of conditions holds; each has a test and how it must go."""

    ways: tuple[tuple[tuple[ast.expr, bool], ...], ...] = ((),)

    def under(self, test: ast.expr, is_true: bool) -> Assigned:
        """It in a branch."""
        ways = tuple(((test, is_true), *way) for way in self.ways)
        return Assigned(ways) if len(ways) * len(ways[0]) <= _MOST_CONDITIONS else Assigned()

    def __or__(self, other: Assigned) -> Assigned:
        ways = (*self.ways, *other.ways)
        return Assigned() if () in ways or len(ways) > _MOST_CONDITIONS else Assigned(ways)


Names = dict[str, Assigned]
"""Names and when they are assigned."""


def merged(parts: Iterable[Names]) -> Names:
    """The names that one of several statements may assign."""
    found: Names = {}
    for part in parts:
        for name, assigned in part.items():
            found[name] = found[name] | assigned if name in found else assigned
    return found


def names_of(node: ast.AST, known: dict[int, Names]) -> Names:
    """The names that a node assigns; ``known`` has those of the nodes in it that assign any."""

    def of(nodes: Iterable[ast.AST]) -> Names:
        return merged(known[id(one)] for one in nodes if id(one) in known)

    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            return {name: Assigned()}
        case (
            ast.Attribute(value=ast.Name(id=name), ctx=ast.Store())
            | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store())
        ):
            return {name: Assigned()}
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
            return {}
        case ast.comprehension():
            return of([node.iter])
        case ast.If() if _is_foreseeable(node.test):
            branches = of(node.body), of(node.orelse)
            if not any(branches):
                return {}
            # The tree is rewritten in place.
            test = copy.deepcopy(node.test)
            ways = zip(branches, (True, False), strict=True)
            return merged(
                {name: assigned.under(test, is_true) for name, assigned in branch.items()}
                for branch, is_true in ways
            )
    return of(ast.iter_child_nodes(node))


def _is_foreseeable(test: ast.expr) -> bool:
    """Return whether a condition is one that a compiled kernel judges before it lowers it, if its names are known."""
    match test:
        case ast.Constant() | ast.Name():
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_foreseeable(operand)
        case ast.BoolOp(values=values):
            return all(map(_is_foreseeable, values))
        case ast.Compare(left=left, ops=[_], comparators=[right]):
            return all(isinstance(value, (ast.Constant, ast.Name)) for value in (left, right))
    return False


def simple_values(body: list[ast.stmt], known: dict[int, Names]) -> dict[str, ast.expr]:
    """The names that one of the statements gives a name's or a literal's value, and no other assigns; the values."""
    found: dict[str, ast.expr] = {}
    several: set[str] = set()
    for statement in body:
        for name in known.get(id(statement), ()):
            match statement:
                case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value):
                    is_simple = isinstance(value, (ast.Name, ast.Constant)) and name not in found
                case _:
                    is_simple = False
            if is_simple:
                found[name] = value
            else:
                several.add(name)
    return {name: copy.copy(value) for name, value in found.items() if name not in several}


# -- Returns. --


def own_returns(body: list[ast.stmt]) -> Iterator[ast.Return]:
    """The ``return`` statements outside of inner functions."""
    work: list[ast.AST] = [*body]
    while work:
        node = work.pop()
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            work.extend(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))


def ends_with_return(body: list[ast.stmt]) -> bool:
    """Return whether the last of the statements is a ``return``."""
    return bool(body) and isinstance(body[-1], ast.Return)


def open_ways(body: list[ast.stmt], returning: set[int]) -> int:
    """On how many ways statements come to their end without a ``return``; ``returning`` has each ``if`` with one."""
    ways = 1
    for statement in body:
        if isinstance(statement, ast.Return):
            return 0
        open_here = 0
        rest = [statement]
        while len(rest) == 1 and isinstance(rest[0], ast.If) and id(rest[0]) in returning:
            open_here += open_ways(rest[0].body, returning)
            rest = rest[0].orelse
            if not (len(rest) == 1 and isinstance(rest[0], ast.If) and id(rest[0]) in returning):
                open_here += open_ways(rest, returning)
                ways = min(ways * open_here, 1 << 10)
                break
    return ways
