"""Timings of autotuned kernels on disk: one file for each kernel, key and device, with a row for each configuration.

A second process therefore measures nothing, and only the new configuration is measured if one is added to a kernel. The
name of the file is a digest of everything that the times depend on: the code of the kernel, the key, the device, and
the settings of compilation. Configurations with a hook are not stored, because hooks cannot be compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tilewright import _native
from tilewright.runtime._config import Config


class Results:
    """The timings of one kernel for one key."""

    def __init__(self, manager: Any, filename: str, key: Any, is_requested: bool) -> None:
        self.is_requested = is_requested
        self.manager = manager
        self.filename = filename
        self.key = key
        self.rows: dict[str, list[float]] = {}
        self.timings: dict[Config, list[float]] = {}

    @classmethod
    def of(
        cls, tuner: Any, key: Any, configs: Sequence[Config], is_requested: bool = False
    ) -> Results | None:
        """The timings on disk of configurations; nothing if the program does not want timings on disk.

        Without such a request, timings of the program's own function are not kept: their meaning is not known.
        """
        from tilewright import __version__
        from tilewright.runtime import autotuner

        is_on = autotuner.knobs.autotuning.cache
        is_requested = bool(is_requested or tuner.cache_results or is_on)
        if not is_requested and (tuner.has_own_benchmark or is_on is False):
            return None
        if any(config.pre_hook is not None for config in configs):
            return None
        kernel = tuner.fn
        while not hasattr(kernel, "cache_key") and hasattr(kernel, "fn"):
            kernel = kernel.fn
        if not hasattr(kernel, "cache_key"):
            return None
        place = str(tuner._place)
        parts = [__version__, kernel.cache_key, str(key), place, device_description(), *_environment()]
        digest = hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
        try:
            manager = autotuner.get_cache_manager(digest)
        except OSError as error:
            if is_requested:
                _warn(error)
            return None
        found = cls(manager, f"{tuner.__name__[:150]}.autotune.json", key, is_requested)
        found.rows = found._read()
        for config in configs:
            row = found.rows.get(_row_name(config))
            if row is not None:
                found.timings[config] = row
        return found

    def _read(self) -> dict[str, list[float]]:
        """The rows of the file. An invalid file counts as empty: it is written anew."""
        rows = {}
        try:
            path = self.manager.get_file(self.filename)
            if path is None:
                return {}
            with open(path, encoding="utf-8") as file:
                found = json.load(file)["configs_timings"]
            for name, numbers in found.items():
                values = [float("inf") if value is None else float(value) for value in numbers]
                # Drop rows with a NaN: no comparison shows that it is slower, so it would count as
                # the fastest.
                if len(values) == 3 and all(value >= 0 for value in values):
                    rows[name] = values
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return {}
        return rows

    def store(self, outcome: Any) -> None:
        """Adds the timings of a tuning, without failed runs: these are tried again, since memory may be free then."""
        # Another process may have added timings meanwhile.
        self.rows = self._read() | self.rows
        for config, timing in outcome.timings.items():
            is_known = timing[0] == timing[0]
            if is_known and (config not in outcome.failures or config in outcome.not_compiled):
                self.rows[_row_name(config)] = timing
        rows = {
            name: [None if value == float("inf") else value for value in timing]
            for name, timing in self.rows.items()
        }
        text = json.dumps({"key": str(self.key), "configs_timings": rows}, indent=1)
        try:
            self.manager.put(text, self.filename, binary=False)
        except OSError as error:
            if self.is_requested:
                _warn(error)


def _warn(error: OSError) -> None:
    import warnings

    from tilewright.errors import LaunchWarning

    warnings.warn(f"timings are not kept on disk: {error}", LaunchWarning, stacklevel=2)


def _row_name(config: Config) -> str:
    return json.dumps(config.all_kwargs(), sort_keys=True, default=repr)


def _environment() -> list[str]:
    """The settings that change the compiled code."""
    from tilewright import knobs

    return [
        f"{name}={value}" for name, value in (knobs.language.knobs | {"debug": knobs.runtime.debug}).items()
    ]


def device_description() -> str:
    """A text that differs between devices, for the names of files."""
    name, properties = _native.device(), sorted(_native.device_properties().items())
    if name == "cpu" or name.startswith("sim"):
        name = f"{name} {_processor()}"
    return f"{name.partition(':')[0] if name.startswith('cuda') else name} {_native.current_target()} {properties}"


def _processor() -> str:
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
