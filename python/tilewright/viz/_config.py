"""The parts of a traced launch that are recorded, and their limits: ``triton_viz.config``."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Config:
    """Settings of traces; ``reset()`` brings back the defaults."""

    programs: int = 256
    """The maximum number of programs of a launch, spread evenly, that are recorded with values; of the others, only the
    memory that they access is recorded."""

    value_bytes: int = 64 << 20
    """Bytes of values that are kept of a launch; then values are left out."""

    max_bytes: int = 256 << 20
    """Bytes in all that are kept of a launch; then accesses are left out too."""

    tensor_bytes: int = 4 << 20
    """The elements of larger tensors are not kept: the page shows what is accessed of them."""

    disable_sanitizer: bool = False
    enable_sanitizer: bool = True
    """True if the clients ``Sanitizer`` and ``RaceDetector`` have launches sanitized."""

    # Names of the public triton-viz that programs set. Each is accepted; what it would switch is always on here, or is
    # about an interpreter that is not there.
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
        """Brings back the defaults."""
        self.__init__()  # type: ignore[misc]


_NAMES = frozenset(field.name for field in fields(Config))

config = Config()
