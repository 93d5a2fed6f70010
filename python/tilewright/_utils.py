"""``triton._utils``: paths within nested tuples, as the keys of ``ASTSource.attrs`` are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def get_iterable_path(iterable: Any, path: tuple[int, ...]) -> Any:
    """The item at a path."""
    for index in path:
        iterable = iterable[index]
    return iterable


def set_iterable_path(iterable: Any, path: tuple[int, ...], val: Any) -> None:
    """Replaces the item at a path."""
    get_iterable_path(iterable, path[:-1])[path[-1]] = val


def find_paths_if(iterable: Any, pred: Callable[[tuple[int, ...], Any], bool]) -> list[tuple[int, ...]]:
    """The paths of the items, of lists and tuples within each other, that a function says yes to."""
    found: list[tuple[int, ...]] = []

    def visit(path: tuple[int, ...], current: Any) -> None:
        if isinstance(current, (list, tuple)):
            for index, item in enumerate(current):
                visit((*path, index), item)
        elif pred(path, current):
            found.append(path)

    visit((), iterable)
    return found


def apply_with_path(value: Any, fn: Callable[[tuple[int, ...], Any], Any]) -> None:
    """Calls a function with each path and its item."""

    def call(path: tuple[int, ...], item: Any) -> bool:
        fn(path, item)
        return False

    find_paths_if(value, call)


def list_list_flatten(x: Iterable[Iterable[Any]]) -> tuple[list[int], list[Any]]:
    """The lengths of lists, and their items one after the other."""
    lists = [list(items) for items in x]
    return [len(items) for items in lists], [item for items in lists for item in items]


def is_power_of_two(x: int) -> bool:
    """Whether a number is a power of two."""
    return x > 0 and x & (x - 1) == 0
