"""The error about a name in a ``triton.Config`` that the kernel does not have: it names the configuration."""

from __future__ import annotations

import functools
import linecache
import re
from typing import Any, TypeVar

from tilewright import _native
from tilewright.errors import LaunchKeyError
from tilewright.runtime._source_marks import Mark, characters, instruction_range, marked


def has_unknown_names(configs: list[Any], arg_names: list[str]) -> bool:
    """Returns whether a configuration has a name that is neither a parameter nor a launch option."""
    names = {name for config in configs for name in config.kwargs} - set(arg_names)
    return bool(names) and not names <= _option_names()


@functools.lru_cache(1)
def _option_names() -> frozenset[str]:
    return frozenset(name for name, _ in _native.compile_options())


_E = TypeVar("_E", bound=Exception)


def named_config(error: _E, config: Any) -> _E | LaunchKeyError:
    """Returns TW0102 with the entry of the configuration in place of the kernel's; any other error unchanged."""
    if not isinstance(error, LaunchKeyError) or error.code != "TW0102" or len(error.diagnostics) != 1:
        return error
    about = error.diagnostics[0]
    found = re.search("'([^']+)' is neither a parameter of (kernel '[^']+')", about.message)
    if found is None or found[1] not in config.kwargs:
        return error
    name, kernel = found.groups()
    position = config_position(config, name)
    notes = [*about.notes]
    if position is None:
        notes.insert(0, f"the configuration is {config}")
    if about.file is not None:
        notes.append(f"{kernel} is defined at {about.file}:{about.line}")
    message = f"'{name}' of a triton.Config is neither a parameter of {kernel} nor a launch option"
    made = marked(error.code, "LaunchKey", message, position, "in this configuration", notes, about.hint)
    assert isinstance(made, LaunchKeyError)
    return made


def config_position(config: Any, name: str) -> Mark | None:
    """Marks an entry of a configuration, or its call if the entry is not found."""
    if (made_at := getattr(config, "_made_at", None)) is None:
        return None
    code = made_at[0]
    first, last, column, end = instruction_range(*made_at)
    file = code.co_filename
    entry = re.compile(rf"(['\"]){re.escape(name)}\1|\b{re.escape(name)}\b(?=\s*=[^=])")
    for number in range(first, last + 1):
        text = linecache.getline(file, number)
        start = characters(text, column) if number == first and column is not None else 0
        if (found := entry.search(text, start)) is not None:
            return Mark(file, number, found.start() + 1, found.end() + 1)
    text = linecache.getline(file, first)
    if not text.strip():
        return None
    start = len(text) - len(text.lstrip()) if column is None else characters(text, column)
    stop = characters(text, end) if last == first and end is not None else len(text.rstrip())
    return Mark(file, first, start + 1, stop + 1)
