"""``triton_viz.interpreter``: where releases of triton-viz before 2.0 have what programs forget their traces by."""

from __future__ import annotations

from tilewright.viz._session import clear


class RecordBuilder:
    """The recorded launches."""

    def reset(self) -> None:
        """Forgets it."""
        clear()


record_builder = RecordBuilder()
