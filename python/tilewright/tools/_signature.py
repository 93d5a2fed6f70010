"""The signature and the grid of ``triton.tools.compile``: types, hints and values, and three expressions of C."""

from __future__ import annotations

import difflib
import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import TritonError
from tilewright.tools import _linking as linking
from tilewright.tools._linking import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tilewright.runtime.jit import JITFunction, KernelParam

_TYPE = re.compile(r"(\*?)k?(\w+)(?::\s*(\w+))?$")


@dataclass
class Argument:
    """A parameter with its item of the signature."""

    name: str
    type: str
    """The type as in ``*fp32``; ``constexpr`` for a compile-time value."""

    value: Any = None
    hint: int | None = None

    @property
    def is_value(self) -> bool:
        """Returns whether the signature has a compile-time value."""
        return self.type == "constexpr"

    @property
    def ctype(self) -> str:
        """The type in C."""
        from tilewright.runtime.driver import ty_to_cpp

        return ty_to_cpp(self.type)

    def initializer(self) -> str:
        """The item of the arguments of ``tw_bundle_launch``."""
        name, ty = self.name, self.type
        if ty.startswith("*"):
            pointer = f"{{.pointer = (void *)(uintptr_t){name}}}"
            return f'{{"{name}", TW_POINTER, "{ty[1:]}", {pointer}, tw_bytes({name})}}'
        if self.ctype == "double":
            return f'{{"{name}", TW_REAL, NULL, {{.real = {name}}}, 0}}'
        kind = "TW_BOOLEAN" if ty in ("i1", "u1") else "TW_INTEGER"
        return f'{{"{name}", {kind}, NULL, {{.integer = (int64_t){name}}}, 0}}'


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
    for one in arguments:
        linking.check_name(one.name, "parameter", "rename the parameter of the kernel")
    return arguments


def _parse_item(parameter: KernelParam, item: str) -> Argument:
    from tilewright._utils import type_canonicalisation_dict

    def refuse(reason: str) -> TritonError:
        return refusal(
            "TW0105",
            f"'{item}' does not describe parameter '{parameter.name}': {reason}",
            "types are written as *fp32, *fp32:16, i32, i32:16, fp32; values as 1024, 0.5, True",
        )

    try:
        value = literal_eval(item)
    except (ValueError, SyntaxError):
        pass
    else:
        if not isinstance(value, (int, float, str, bool, type(None))):
            raise refuse("a value is a number, a text, a bool or None")
        return Argument(parameter.name, "constexpr", value)
    found = _TYPE.match(item)
    if found is None or found[2] not in {*type_canonicalisation_dict, *type_canonicalisation_dict.values()}:
        if item.startswith(("tensordesc", "nvTmaDesc")):
            raise refuse("C passes no tensor descriptors; make it in the kernel: tl.make_tensor_descriptor")
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


def parse_grid(text: str, arguments: Sequence[Argument]) -> str:
    """Returns the three expressions, with compile-time values in place of their names."""
    integer = next((one.name for one in arguments if one.type[0] in "iu" and one.hint != 1), None)
    example = "1024" if integer is None else f"({integer} + 1023) / 1024"
    hint = f"write three expressions of C: --grid '{example}, 1, 1'"
    parts = _split(text)
    if len(parts) != 3 or not all(parts):
        raise refusal("TW0103", f"the grid is '{text}', expected three expressions", hint)
    if found := re.search(r"//|/\*|[;{}#\"'\\]", text):
        raise refusal("TW0103", f"the grid '{text}' has '{found[0]}', which is no operator of C", hint)
    values = {one.name: one.value for one in arguments if one.is_value}
    values |= {one.name: 1 for one in arguments if one.hint == 1}
    passed = [one.name for one in arguments if not one.is_value]

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

    return ", ".join(re.sub(r"(?<![\w.])[A-Za-z_]\w*", replace, part) for part in parts)


def _split(text: str) -> list[str]:
    """Splits a text at the commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
