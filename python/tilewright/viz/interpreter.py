"""``triton_viz.interpreter``: the object by which releases of triton-viz before 2.0 clear traces."""

from __future__ import annotations

from tilewright.viz._session import clear


class RecordBuilder:
    """The recorded launches."""

    def reset(self) -> None:
        """Clears the trace."""
        clear()


record_builder = RecordBuilder()
