"""``triton.profiler.language``: scopes inside of kernels.

``with pl.scope("name"):``, or ``pl.enter_scope`` and ``pl.exit_scope``, measure parts of a program in a session with
``backend="instrumentation"``; otherwise they do nothing, and cost nothing. A record is made by one atomic addition and
three stores, which do not wait, but take time that the kernel would not need otherwise: the times of short scopes are
too long.
"""

# The functions of kernels carry no types of Python.
# mypy: disable-error-code="no-untyped-def, misc, attr-defined"

from __future__ import annotations

import tilewright.language as tl
from tilewright.language.core import _aggregate, constexpr
from tilewright.profiler import _records
from tilewright.runtime.jit import constexpr_function, jit

_SEMANTICS = ("triton", "gluon")

# The address of the memory for records, or 0 if scopes are not recorded. A change recompiles the kernels.
_MEMORY: tl.constexpr = constexpr(0)
_CAPACITY: tl.constexpr = constexpr(_records.CAPACITY)
_WORDS: tl.constexpr = constexpr(_records.WORDS)


def enable_semantic(semantic_name: str) -> None:
    """Enables scopes in kernels of this language, which is the default."""
    _check(semantic_name)
    _disabled.discard(semantic_name)
    set_memory(_address)


def disable_semantic(semantic_name: str) -> None:
    """Disables scopes in kernels of this language."""
    _check(semantic_name)
    _disabled.add(semantic_name)
    set_memory(_address)


_disabled: set[str] = set()
_address = 0


def set_memory(address: int) -> None:
    """Sets the address to which kernels write scopes from now on; 0 switches them off."""
    global _MEMORY, _address
    _address = address
    _MEMORY = constexpr(0 if "triton" in _disabled else address)


def _check(semantic_name: str) -> None:
    if semantic_name not in _SEMANTICS:
        raise ValueError(f"unknown semantic '{semantic_name}': it is one of {', '.join(_SEMANTICS)}")


@constexpr_function
def _number(name: object) -> int:
    if isinstance(name, constexpr):
        name = name.value
    if not isinstance(name, str):
        raise TypeError(f"the name of a scope is a string, not {type(name).__name__}")
    return _records.number_of(name)


@jit
def _write(memory, place, what, time):
    if place < _CAPACITY:
        entry = memory + 1 + place * _WORDS
        program = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
        tl.store(entry, what)
        tl.store(entry + 1, program * tl.num_programs(0) + tl.program_id(0))
        tl.store(entry + 2, time)


@jit
def record(is_start: tl.constexpr, scope_name: tl.constexpr):
    """Records that the program begins or ends a scope."""
    if _MEMORY != 0:
        memory = tl.cast(tl.full([], _MEMORY, tl.int64), tl.pointer_type(tl.int64))
        if is_start:
            # The time is read last at the beginning of a scope, and first at its end.
            place = tl.atomic_add(memory, 1, sem="relaxed")
            _write(memory, place, _number(scope_name) * 2, tl.extra.cuda.globaltimer())
        else:
            time = tl.extra.cuda.globaltimer()
            place = tl.atomic_add(memory, 1, sem="relaxed")
            _write(memory, place, _number(scope_name) * 2 + 1, time)


@jit
def enter_scope(name: tl.constexpr):
    """Begins a scope."""
    record(True, name)


@jit
def exit_scope(name: tl.constexpr):
    """Ends a scope."""
    record(False, name)


@jit
def allocate_event(name: tl.constexpr):
    """An event: a scope that may begin in one iteration of a loop and end in another."""
    return name


@jit
def start_event(event: tl.constexpr):
    """Begins an event."""
    record(True, event)


@jit
def end_event(event: tl.constexpr):
    """Ends an event."""
    record(False, event)


@_aggregate
class scope:
    """``with pl.scope("name"):`` in a kernel."""

    name: tl.constexpr

    @constexpr_function
    def __init__(self, name):
        self.name = constexpr(name)

    @jit
    def __enter__(self):
        enter_scope(self.name)

    @jit
    def __exit__(self, kind, value, traceback):
        exit_scope(self.name)
