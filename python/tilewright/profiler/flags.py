"""The state of the profiler (``triton.profiler.flags``)."""

from __future__ import annotations

from tilewright.profiler._session import SESSIONS


class ProfilerFlags:
    """The state of the profiler; assignments to attributes that are not read from the sessions are kept."""

    command_line = False
    """True if ``proton script.py`` runs the program, which then starts no session itself."""

    @property
    def profiling_on(self) -> bool:
        """Returns whether there is a session."""
        return bool(SESSIONS.known)

    @property
    def instrumentation_on(self) -> bool:
        """Returns whether scopes inside of kernels are recorded."""
        from tilewright.profiler import language

        return bool(language._MEMORY.value)


flags = ProfilerFlags()
