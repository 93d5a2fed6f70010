"""The parts of a traced launch that are recorded, and their limits: ``triton_viz.config``."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Config:
    """Settings of traces; ``reset()`` restores the defaults."""

    programs: int = 256
    """The maximum number of programs of a launch, spread evenly, that are recorded with values; of the others, only the
    memory that they access is recorded."""

    value_bytes: int = 64 << 20
    """The maximum bytes of values that are kept of a launch; further values are left out."""

    max_bytes: int = 256 << 20
    """The maximum bytes that are kept of a launch in all; further accesses are left out too."""

    tensor_bytes: int = 4 << 20
    """The maximum size of tensors whose elements are kept: the page shows accessed elements of larger ones."""

    disable_sanitizer: bool = False
    enable_sanitizer: bool = True
    """True if the clients ``Sanitizer`` and ``RaceDetector`` have launches sanitized."""

    # Names of the public triton-viz that programs set. Each is accepted; the feature is always on here, or is about an
    # interpreter that does not exist here.
    verbose: bool = False
    num_sms: int = 1
    virtual_memory: bool = False
    enable_timing: bool = False
    enable_profiler: bool = True
    enable_load_store_skipping: bool = True
    enable_block_sampling: bool = True
    k: int | None = None
    report_grid_execution_progress: bool = False

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _NAMES:
            known = ", ".join(sorted(_NAMES))
            raise AttributeError(f"triton_viz.config has no setting {name!r}; it has {known}")
        object.__setattr__(self, name, value)

    def reset(self) -> None:
        """Restores the defaults."""
        self.__init__()  # type: ignore[misc]


_NAMES = frozenset(field.name for field in fields(Config))

config = Config()
