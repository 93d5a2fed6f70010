"""Values in an interpreted body: known at compile time or at run time, merged by control flow, compared.

A compiled kernel lowers both branches of an ``if`` and carries names through its loops; Python executes only one
branch. So that the body has the same meaning, a name that a branch or an iteration may give another value is a run-time
value afterwards.
"""

from __future__ import annotations

import operator

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import TypeIs

UNBOUND = object()
"""The state of a name before it has a value."""

UNKNOWN = object()
"""The value from a way of the control flow that Python has not taken."""


def is_run_time(value: Any) -> TypeIs[_native.tensor]:
    """Return whether a condition is one at run time, so that a compiled kernel has both ways."""
    return isinstance(value, _native.tensor) and not value._is_constexpr


def foreseen(kind: str, *operands: Any) -> bool | None:
    """Which way a condition goes that a compiled kernel judges before it lowers it; None where it cannot.

    The operands of ``and``, ``or`` and ``not`` are conditions that have been judged.
    """
    if kind == "not":
        return None if operands[0] is None else not operands[0]
    if kind in ("and", "or"):
        decisive = kind == "or"
        if decisive in operands:
            return decisive
        return None if None in operands else not decisive
    if any(is_run_time(operand) for operand in operands):
        # A value at run time is not None.
        is_of_none = kind in ("Is", "IsNot") and any(operand is None for operand in operands)
        return kind == "IsNot" if is_of_none else None
    try:
        return bool(_JUDGED[kind](*operands))
    except Exception:
        return None


def loop(iterable: Any) -> Any:
    """The values that a ``for`` takes: ``tl.range`` counts as ``range`` does."""
    from tilewright import language as tl

    return iter(iterable) if isinstance(iterable, tl.range) else iterable


def is_dynamic(iterable: Any) -> bool:
    """Return whether a loop is one at run time; others are unrolled."""
    return isinstance(iterable, _native.InterpretedRange)


def index_after(iterable: Any, value: Any, before: Any) -> Any:
    """The variable of a loop after it: ``before`` is what it was before, which a loop that runs zero times leaves."""
    if not is_dynamic(iterable):
        return value
    if before is not UNBOUND:
        before = _native.interpret_assign(before)
        is_scalar = isinstance(before, _native.tensor) and not before.shape
        if is_scalar and isinstance(value, _native.tensor) and before.dtype == value.dtype:
            return _native.interpret_merged(value)
    return value if iterable.last is None else iterable.last


def joined(
    value: Any,
    before: Any,
    test: Any,
    by_then: bool,
    by_else: bool,
    then: Any = UNKNOWN,
    other: Any = UNKNOWN,
) -> Any:
    """A name after an ``if`` at run time, of its value there and before.

    ``by_then`` and ``by_else`` say which ways assign it, ``then`` and ``other`` what they assign, where that is known.
    """
    is_assigned_elsewhere = by_else if test else by_then
    if is_assigned_elsewhere:
        is_same = _is_same(value, other if test else then)
    else:
        is_same = before is UNBOUND or _is_same(value, before)
    return value if is_same else _native.interpret_merged(value)


def _is_same(left: Any, right: Any) -> bool:
    """Return whether two ways that end with these values end with the same one."""
    if left is right:
        return True
    if isinstance(left, tuple) and type(left) is type(right):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, _PLAIN) and type(left) is type(right):
        return bool(left == right)
    return False


_PLAIN = (int, float, str, type(None))


def chosen(value: Any, test: Any, is_same: bool, *both: Any) -> Any:
    """The value of ``a if test else b``, where ``value`` has been chosen.

    ``is_same`` if both are written the same; ``both`` where they can be had without an effect.
    """
    if not is_run_time(test):
        return value
    numbers = both or ((value, value) if is_same else ())
    if numbers and not any(isinstance(number, _native.tensor) for number in numbers) and _is_same(*numbers):
        return value
    return _native.interpret_merged(value)


def splits(test: Any, is_before_more: bool) -> bool:
    """Return whether the function returns a run-time value from here on: another way may return another one.

    As in Triton, so is what a branch that was chosen at compile time returns before statements that are left out.
    """
    return is_run_time(test) or (is_before_more and bool(test))


def returned(value: Any, is_split: bool = False) -> Any:
    """The result of a function; ``is_split`` if other ways return another one."""
    return _native.interpret_merged(value) if is_split else _native.interpret_returned(value)


def unpacked(value: Any) -> Any:
    """The value that is assigned to several names: a list is a tuple to the language."""
    return _native.interpret_assign(tuple(value) if type(value) is list else value)


# -- Comparisons. --


def is_of_run_time(value: Any) -> bool:
    """Return whether a part of a value is known at run time only."""
    if isinstance(value, (tuple, list)):
        return any(map(is_of_run_time, value))
    return isinstance(value, _native.tensor) and value._known_number is None


def _comparable(value: Any) -> Any:
    """An operand of a comparison: to the language, a list is a tuple."""
    if type(value) is list:
        return tuple(_comparable(item) for item in value)
    if type(value) is tuple and any(type(item) in (list, tuple) for item in value):
        return tuple(_comparable(item) for item in value)
    return value


def _are_equal(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool | None:
    """Return whether tuples are equal, if that is known at compile time: a run-time value is equal to itself."""
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        if one is other:
            continue
        is_equal: bool | None = None
        if isinstance(one, tuple) and isinstance(other, tuple):
            is_equal = _are_equal(one, other)
        elif not (is_of_run_time(one) or is_of_run_time(other)):
            is_equal = bool(_native.interpret_known(one) == _native.interpret_known(other))
        elif one is None or other is None:
            is_equal = False
        if not is_equal:
            return is_equal
    return True


def _comparison(symbol: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison of the language, also of tuples with run-time parts."""

    def compare(left: Any, right: Any) -> Any:
        left, right = _comparable(left), _comparable(right)
        if not (isinstance(left, tuple) or isinstance(right, tuple)) or left is None or right is None:
            return function(left, right)
        if not (is_of_run_time(left) or is_of_run_time(right)):
            return function(_native.interpret_known(left), _native.interpret_known(right))
        if symbol in ("==", "!=") and isinstance(left, tuple) and isinstance(right, tuple):
            is_equal = _are_equal(left, right)
            if is_equal is not None:
                return is_equal is (symbol == "==")
        return _native.interpret_operator(symbol, left, right)

    return compare


def _membership(symbol: str) -> Callable[[Any, Any], Any]:
    """``in`` and ``not in``: of a tuple of the language, compile-time values only."""

    def contains(item: Any, container: Any) -> Any:
        item, container = _comparable(item), _comparable(container)
        if isinstance(container, tuple) and (is_of_run_time(item) or is_of_run_time(container)):
            return _native.interpret_operator(symbol, item, container)
        is_in = _native.interpret_known(item) in _native.interpret_known(container)
        return is_in is (symbol == "in")

    return contains


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": _comparison("==", operator.eq),
    "NotEq": _comparison("!=", operator.ne),
    "Lt": _comparison("<", operator.lt),
    "LtE": _comparison("<=", operator.le),
    "Gt": _comparison(">", operator.gt),
    "GtE": _comparison(">=", operator.ge),
    "In": _membership("in"),
    "NotIn": _membership("not in"),
}
"""By the name of the node in the syntax tree."""

_JUDGED: dict[str, Callable[..., Any]] = {
    **COMPARISONS,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "value": bool,
}
