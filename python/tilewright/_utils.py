"""``triton._utils``: paths in nested tuples, such as the keys of ``ASTSource.attrs``; names and widths of types."""

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
    """The paths of the items, in nested lists and tuples, that satisfy a predicate."""
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
    """Returns whether a number is a power of two."""
    return x > 0 and x & (x - 1) == 0


def is_iterable(x: Any) -> bool:
    """Returns whether a value has items that a path may lead to."""
    return isinstance(x, (list, tuple))


def is_namedtuple(val: Any) -> bool:
    """Returns whether a value is the class of a named tuple."""
    return isinstance(val, type) and issubclass(val, tuple) and hasattr(val, "_fields")


def _tuple_create(arg: Any, contents: Iterable[Any]) -> Any:
    """Makes a tuple of the class of another tuple."""
    return type(arg)(*contents) if hasattr(arg, "_fields") else type(arg)(contents)


TRITON_MAX_TENSOR_NUMEL = 1048576
"""The maximum number of elements of a block."""


def validate_block_shape(shape: list[Any]) -> int:
    """The elements of a block; an error if its extents are not powers of two, or if there are too many elements."""
    elements = 1
    for axis, extent in enumerate(shape):
        if not isinstance(extent, int):
            found = f"constexpr[{type(extent)}]"
            raise TypeError(f"Shape element {axis} must have type `constexpr[int]`, got `{found}")
        if not is_power_of_two(extent):
            raise ValueError(f"Shape element {axis} must be a power of 2")
        elements *= extent
    if elements > TRITON_MAX_TENSOR_NUMEL:
        raise ValueError(
            f"numel ({elements}) exceeds triton maximum tensor numel ({TRITON_MAX_TENSOR_NUMEL})"
        )
    return elements


def _type_names() -> dict[str, str]:
    """Returns a mapping from each name of a type to its name in a signature."""
    floats = {
        "fp8e4nv": "float8e4nv float8_e4m3fn",
        "fp8e5": "float8e5 float8_e5m2",
        "fp8e4b15": "float8e4b15",
        "fp8e4b8": "float8e4b8 float8_e4m3fnuz",
        "fp8e5b16": "float8e5b16 float8_e5m2fnuz",
        "fp16": "float16 half",
        "bf16": "bfloat16",
        "fp32": "float32 float",
        "fp64": "float64 double",
    }
    integers = {f"{short}{bits}": f"{long}{bits}" for bits in (8, 16, 32, 64) for short, long in _SIGNS}
    integers["i32"] += " int"
    # Booleans have no sign.
    others = {"u1": "bool int1 uint1 i1", "void": ""}
    names = {**floats, **integers, **others}
    return {name: short for short, listed in names.items() for name in (short, *listed.split())}


_SIGNS = (("i", "int"), ("u", "uint"))

type_canonicalisation_dict = _type_names()
"""The name of a type in a signature, by its names in torch, numpy and the language."""


def canonicalize_dtype(dtype: Any) -> str:
    """The name of a type in a signature: ``fp16`` for ``torch.float16``."""
    return type_canonicalisation_dict[str(dtype).rpartition(".")[2]]


def canonicalize_ptr_dtype(dtype: Any, is_const: bool) -> str:
    """The same for a pointer: ``*fp16``, or ``*kfp16`` if its memory is only read."""
    return f"{'*k' if is_const else '*'}{canonicalize_dtype(dtype)}"


def _bits(name: str) -> int:
    digits = "".join(c for c in name.removeprefix("bf").lstrip("fpiu").partition("e")[0] if c.isdigit())
    return int(digits or 0)


BITWIDTH_DICT = {name: _bits(short) for name, short in type_canonicalisation_dict.items()}
"""The bits of a type, by each of its names."""


def get_primitive_bitwidth(dtype: str) -> int:
    """The bits of a type."""
    return BITWIDTH_DICT[dtype]
