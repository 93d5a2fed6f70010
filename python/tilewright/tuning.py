"""Tuning files: the configurations that launches of tuned kernels take without measuring them.

The variable ``TILEWRIGHT_TUNING`` names files without a change of the program. The command
``tilewright tuning`` writes, imports and merges them; docs/tuning-files.md describes them.
"""

from __future__ import annotations

from tilewright.runtime import _tuning_files, autotuner

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

__all__ = ["load"]


def load(path: str | os.PathLike[str], max_distance: float | None = None) -> None:
    """Makes later tunings of this process take their choices from a file, if it has an entry.

    A choice that a kernel has made already stays. Of an entry that has another key than the launch,
    the distance is at most ``max_distance``: the sum of ``|log2(a) - log2(b)|`` over the numbers of
    both keys. The files of ``TILEWRIGHT_TUNING`` are before those that a program loads.
    """
    _tuning_files.load(path, max_distance)
    for wrapper in list(autotuner._wrappers):
        if isinstance(wrapper, autotuner.Autotuner):
            wrapper._look_into_files()
