"""The signature and the grid of ``triton.tools.compile``: types, hints and values, and three expressions."""

from __future__ import annotations

import difflib
import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import _native
from tilewright.errors import TritonError
from tilewright.tools import _linking as linking
from tilewright.tools._linking import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tilewright.runtime.jit import JITFunction, KernelParam

_DESCRIPTOR = re.compile(r"tensordesc<\s*(\w+)\s*\[([\d\s,]+)\](?:\s*,\s*nan)?\s*>$")
_TYPE = re.compile(r"(\*?)k?(\w+)(?::\s*(\w+))?$")

_ONLY_IN_C = re.compile(
    r"(?<!/)/(?!/)|[^\w\s,()+\-*/%.\[\]]|\d\.|\.\d"
    rf"|\b(?:\d+[A-Za-z]\w*|u?int\d+_t|size_t|{'|'.join(linking.KEYWORDS)})\b"
)
"""A part of a grid that only C has: the operator `/`, a comparison, a type, a float, a suffix of a number."""


@dataclass
class Argument:
    """A parameter with its item of the signature."""

    name: str
    type: str
    """The type as in ``*fp32``; ``constexpr`` for a compile-time value."""

    value: Any = None
    hint: int | None = None

    part: str = ""
    """Of an argument that is a part of a descriptor: its name there, as in ``shape[0]``."""

    @property
    def is_value(self) -> bool:
        """Returns whether the signature has a compile-time value."""
        return self.type == "constexpr"

    @property
    def parts(self) -> list[Argument]:
        """The arguments that C passes: of a descriptor its pointer, extents and strides; else the argument itself."""
        found = _DESCRIPTOR.match(self.type)
        if found is None:
            return [self]
        name, rank = self.name, found[2].count(",") + 1
        shape = [(f"{name}_shape_{axis}", f"shape[{axis}]", "i32") for axis in range(rank)]
        strides = [(f"{name}_strides_{axis}", f"strides[{axis}]", "i64") for axis in range(rank - 1)]
        numbers = [Argument(one, ty, part=f"{name}.{part}") for one, part, ty in shape + strides]
        return [Argument(name, f"*{found[1]}", part=f"{name}.base"), *numbers]

    @property
    def ctype(self) -> str:
        """The type in C."""
        from tilewright.runtime.driver import ty_to_cpp

        return ty_to_cpp(self.type)

    def initializer(self) -> str:
        """The item of the arguments of ``tw_bundle_launch``."""
        name, ty, label = self.name, self.type, self.part or self.name
        if ty.startswith("*"):
            pointer = f"{{.pointer = (void *)(uintptr_t){name}}}"
            return f'{{"{label}", TW_POINTER, "{ty[1:]}", {pointer}, tw_bytes({name})}}'
        if self.ctype == "double":
            return f'{{"{label}", TW_REAL, NULL, {{.real = {name}}}, 0}}'
        kind = "TW_BOOLEAN" if ty in ("i1", "u1") else "TW_INTEGER"
        return f'{{"{label}", {kind}, NULL, {{.integer = (int64_t){name}}}, 0}}'


def parse_signature(kernel: JITFunction[..., Any], items: Sequence[str]) -> list[Argument]:
    """Returns an argument for each parameter; values of defaults for the last ones, if items are missing."""
    parameters = kernel.params
    missing = [one for one in parameters[len(items) :] if not one.has_default]
    if len(items) > len(parameters) or missing:
        listed = ", ".join(one.name for one in parameters)
        raise refusal(
            "TW0105",
            f"the signature has {len(items)} items, but kernel '{kernel.__name__}' has {len(parameters)} parameters",
            "write a type such as *fp32, *fp32:16 or i32, or a value such as 1024, for each parameter",
            [f"the parameters are {listed}"],
        )
    arguments = [_parse_item(one, item) for one, item in zip(parameters, items, strict=False)]
    arguments += [Argument(one.name, "constexpr", one.default) for one in parameters[len(items) :]]
    names = [part.name for one in arguments for part in one.parts]
    for name in names:
        linking.check_name(name, "parameter", "rename the parameter of the kernel")
        if names.count(name) > 1:
            raise refusal(
                "TW0105",
                f"'{name}' is the name of a parameter and of a part of a tensor descriptor in C",
                "rename the parameter of the kernel",
            )
    return arguments


def _parse_item(parameter: KernelParam, item: str) -> Argument:
    from tilewright._utils import type_canonicalisation_dict

    def refuse(reason: str) -> TritonError:
        return refusal(
            "TW0105",
            f"'{item}' does not describe parameter '{parameter.name}': {reason}",
            "types are written as *fp32, *fp32:16, i32, i32:16, fp32, tensordesc<fp16[64, 32]>; "
            "values as 1024, 0.5, True",
        )

    try:
        value = literal_eval(item)
    except (ValueError, SyntaxError):
        pass
    else:
        if not isinstance(value, (int, float, str, bool, type(None))):
            raise refuse("a value is a number, a text, a bool or None")
        return Argument(parameter.name, "constexpr", value)
    if item.startswith("tensordesc"):
        if not _DESCRIPTOR.match(item):
            raise refuse("a tensor descriptor is written as tensordesc<fp16[64, 32]>")
        if parameter.is_constexpr:
            raise refuse("it is a tl.constexpr, which needs a value")
        return Argument(parameter.name, item)
    found = _TYPE.match(item)
    if found is None or found[2] not in {*type_canonicalisation_dict, *type_canonicalisation_dict.values()}:
        if item.startswith("nvTmaDesc"):
            raise refuse("C passes no tensor maps; write a tensor descriptor: tensordesc<fp16[64, 32]>")
        raise refuse("this is neither a type nor a value")
    if parameter.is_constexpr:
        raise refuse("it is a tl.constexpr, which needs a value")
    star, name, hint = found.groups()
    short = name if name == "i1" else type_canonicalisation_dict.get(name, name)
    if hint not in (None, "1", "16"):
        raise refuse("a hint is 16 (a multiple of 16) or 1 (the value 1)")
    is_integer = not star and short[0] in "iu" and short not in ("i1", "u1")
    if (hint == "1" and not is_integer) or (hint and not star and not is_integer):
        raise refuse(f"the hint {hint} is for {'integers' if hint == '1' else 'pointers and integers'}")
    try:
        argument = Argument(parameter.name, star + short, hint=int(hint) if hint else None)
        argument.ctype  # noqa: B018
    except KeyError:
        raise refuse("C has no such type; pass a pointer to it") from None
    return argument


def parse_grid(text: str, arguments: Sequence[Argument]) -> list[str]:
    """Returns the three expressions in C, with compile-time values in place of their names.

    A text is in C if it has a part that only C has. Otherwise, its operations are those of Python's integers.
    """
    integer = next((one.name for one in arguments if one.type[0] in "iu" and one.hint != 1), None)
    example = "1024" if integer is None else f"cdiv({integer}, 1024)"
    hint = f"write three expressions: --grid '{example}, 1, 1'"
    parts = split_items(text)
    if len(parts) != 3 or not all(parts):
        raise refusal("TW0103", f"the grid is '{text}', expected three expressions", hint)
    if not _ONLY_IN_C.search(text):
        return _native.grid_in_c(text, [name for one in arguments for name in _grid_names(one)])
    if found := re.search(r"//|/\*|[;{}#\"'\\]", text):
        raise refusal("TW0103", f"the grid '{text}' has '{found[0]}', which is no operator of C", hint)
    values = {one.name: one.value for one in arguments if one.is_value}
    values |= {one.name: 1 for one in arguments if one.hint == 1}
    passed = [part.name for one in arguments if not one.is_value for part in one.parts]

    def replace(found: re.Match[str]) -> str:
        name = found[0]
        if name in values and isinstance(values[name], (int, float)):
            return f"({values[name]!r})" if not isinstance(values[name], bool) else str(int(values[name]))
        if name in passed or name in linking.KEYWORDS or re.fullmatch(r"u?int\d+_t|size_t", name):
            return name
        near = difflib.get_close_matches(name, [*passed, *values], 1)
        raise refusal(
            "TW0103",
            f"the grid has the name '{name}', which is no parameter",
            f"did you mean '{near[0]}'?" if near else hint,
            [f"the parameters are {', '.join(one.name for one in arguments)}"],
        )

    return [re.sub(r"(?<![\w.])[A-Za-z_]\w*", replace, part) for part in parts]


def _grid_names(argument: Argument) -> list[tuple[str, int | None, str | None]]:
    """Returns the names of a parameter and of its parts.

    Each has the value of a compile-time integer, or the description of a parameter that is no integer.
    """
    parts = argument.parts
    if len(parts) > 1:
        return [
            (argument.name, None, "a tensor descriptor"),
            *((part.part, None, None) for part in parts[1:]),
        ]
    value = 1 if argument.hint == 1 else argument.value
    if argument.is_value or argument.hint == 1:
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return [(argument.name, int(value), None)]
        return [(argument.name, None, f"{value!r}, a compile-time value")]
    is_integer = argument.type[0] in "iu" and argument.type not in ("i1", "u1")
    other = "a tensor" if argument.type.startswith("*") else f"a number of type {argument.type}"
    return [(argument.name, None, None if is_integer else other)]


def split_items(text: str) -> list[str]:
    """Splits a text at the commas outside of quotes, parentheses and brackets."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if character in "\"'" and quote in ("", character):
            quote = "" if quote else character
        if not quote:
            depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
