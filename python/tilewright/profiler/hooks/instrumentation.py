"""The hook of sessions with ``backend="instrumentation"``: scopes inside of kernels are recorded, and read after each
launch."""

from __future__ import annotations

from tilewright.compiler.compiler import LazyDict
from tilewright.profiler import _records
from tilewright.profiler._session import SESSIONS
from tilewright.profiler.hooks.hook import Hook
from tilewright.profiler.mode import InstrumentationMode


class InstrumentationHook(Hook):
    """Makes kernels record their scopes (``triton.profiler.language``) while a session measures."""

    priority = 0

    def __init__(self, mode: InstrumentationMode) -> None:
        self.mode = mode
        self.memory: _records.Memory | None = None

    def activate(self) -> None:
        """Makes later launches write records."""
        from tilewright.profiler import language

        self.memory = self.memory or _records.Memory()
        language.set_memory(self.memory.address)

    def deactivate(self) -> None:
        """Ends the records of kernels."""
        from tilewright.profiler import language

        language.set_memory(0)

    def exit(self, metadata: LazyDict) -> None:
        """Waits for the launch and reads its records: the next launch writes to the same memory."""
        if self.memory is not None:
            SESSIONS.collect(self.memory, self.mode.programs)
