"""Errors about the arguments of ``triton.autotune`` (TW0121) and of a launch that sets them again (TW0122)."""

from __future__ import annotations

import difflib
from typing import Any

from tilewright.errors import TritonError
from tilewright.runtime._config_errors import config_position
from tilewright.runtime._source_marks import Call, marked, program_frame
from tilewright.runtime.jit import shown_name

_LISTS = {
    "key": (1, "key lists the parameters whose values select a configuration"),
    "reset_to_zero": (3, "reset_to_zero lists the tensors that are set to 0 before each timed run"),
    "restore_value": (4, "restore_value lists the tensors that are restored after each timed run"),
}
"""The index and the meaning of each argument of ``triton.autotune`` that lists parameters."""


def unknown_parameter(tuner: Any, argument: str, name: Any) -> TritonError:
    """Returns the error about a name in a list of parameters that is no parameter of the kernel."""
    index, meaning = _LISTS[argument]
    call = Call.of_frame(program_frame(), argument)
    mark, label = None, "of this autotuner"
    if call is not None:
        call = call if call.value(argument, index) is not None else call.function() or call
        value = call.value(argument, index)
        mark = call.mark(call.node) if value is None else call.text(value, name)
        label = label if value is None else f"in this {argument}"
    near = difflib.get_close_matches(str(name), tuner.arg_names, 1)
    return marked(
        "TW0121",
        "LaunchValue",
        f"{argument} of the autotuner of '{tuner.__name__}' names {name!r}, which is no parameter",
        mark,
        label,
        [f"the parameters are {', '.join(map(repr, tuner.arg_names))}", *_definition(tuner)],
        f"did you mean {near[0]!r}?" if near else meaning,
    )


def conflict(tuner: Any, names: set[str], given: dict[str, Any]) -> TritonError:
    """Returns the error about a launch that passes values that the configurations set."""
    # In the order of the parameters, then the options.
    ordered = sorted(names, key=lambda name: ((*tuner.arg_names, name).index(name), name))
    first = ordered[0]
    call = Call.of_frame(program_frame(), first)
    index = tuner.arg_names.index(first) if first in tuner.arg_names else None
    notes = []
    for name in ordered:
        # Pruning may return configurations that the autotuner does not list.
        listed = (config for config in tuner.configs if name in config.all_kwargs())
        config = next(listed, tuner.best_config)
        position = config_position(config, name)
        where = "" if position is None else f" at {shown_name(position.file)}:{position.line}"
        values = [_shown(value) for value in (given[name], config.all_kwargs()[name])]
        notes.append(
            f"the launch of '{tuner.__name__}' passes {name}={values[0]}, and the triton.Config{where} sets {values[1]}"
        )
    is_option = first not in tuner.arg_names
    place = "of each triton.Config" if is_option else "of the configurations"
    return marked(
        "TW0122",
        "LaunchValue",
        f"Conflicting meta-parameters: {', '.join(ordered)}. Make sure that you don't re-define auto-tuned symbols.",
        None if call is None else call.argument(first, index),
        "in this launch",
        notes,
        f"leave {first} out of the launch: the autotuner passes the {first} {place}",
    )


def _shown(value: Any) -> str:
    """Returns a value for a note: its text, or its type if the text is long, such as that of a tensor."""
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"a {type(value).__name__}"


def _definition(tuner: Any) -> list[str]:
    """Returns a note that says where the kernel is, if that is known."""
    kernel = tuner.fn
    while not hasattr(kernel, "def_file_line_number") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if hasattr(kernel, "def_file_line_number"):
        file, line = kernel.file_name, kernel.def_file_line_number
    elif hasattr(kernel, "__code__"):
        file, line = kernel.__code__.co_filename, kernel.__code__.co_firstlineno
    else:
        return []
    return [f"kernel '{tuner.__name__}' is defined at {shown_name(file)}:{line}"]
