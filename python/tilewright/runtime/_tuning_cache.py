"""Timings of autotuned kernels on disk: one file for each kernel, key and device, with a row for each configuration.

A second process therefore measures nothing, and only the new configuration is measured if one is added to a kernel. The
name of the file is a digest of everything that the times depend on: the code of the kernel, the key, the device, and
the settings of compilation. Configurations with a hook are not stored, because hooks cannot be compared.

The last member of a file is the checksum of the text before it. A file without one was edited by hand, and is read.
``crates/command-line/src/cache/timings.rs`` reads the files for ``tilewright cache``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from typing import Any

from tilewright import _native
from tilewright.runtime._config import Config

_CHECKSUM = b',\n "crc32": "'
"""The text between the timings and their checksum."""


class Results:
    """The timings of one kernel for one key."""

    def __init__(self, manager: Any, filename: str, key: Any, is_requested: bool) -> None:
        self.is_requested = is_requested
        self.has_warned = False
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
                _warn(str(error))
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
            with open(path, "rb") as file:
                if reason := _distrust(os.fstat(file.fileno())):
                    self._tell(f"{path}: {reason}; TILEWRIGHT_CACHE_SHARED=1 trusts the files of all users")
                    return {}
                text = file.read()
            if not _is_undamaged(text):
                return {}
            found = json.loads(text)["configs_timings"]
            for name, numbers in found.items():
                values = [float("inf") if value is None else float(value) for value in numbers]
                # Drop rows with a NaN: no comparison shows that it is slower, so it would count as
                # the fastest.
                if len(values) == 3 and all(value >= 0 for value in values):
                    rows[name] = values
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return {}
        except Exception as error:
            # A remote store has exceptions of its own.
            self._tell(f"{type(error).__name__}: {error}")
            return {}
        _record_use(path)
        return rows

    def _tell(self, reason: str) -> None:
        """Warns if the program requested timings on disk, once."""
        if self.is_requested and not self.has_warned:
            self.has_warned = True
            _warn(reason)

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
        text = json.dumps({"key": str(self.key), "device": _device(), "configs_timings": rows}, indent=1)
        body = text.removesuffix("\n}").encode()
        data = body + _CHECKSUM + b'%08x"\n}' % zlib.crc32(body)
        try:
            self.manager.put(data, self.filename, binary=True)
        except Exception as error:
            # A remote store has exceptions of its own.
            self._tell(str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}")


def _warn(reason: str) -> None:
    import warnings

    from tilewright.errors import LaunchWarning
    from tilewright.runtime._tuning_report import program_stacklevel

    text = f"timings are not kept on disk: {reason}"
    warnings.warn(text, LaunchWarning, stacklevel=program_stacklevel())


def _is_undamaged(text: bytes) -> bool:
    """Returns whether the text of a file has the checksum that it states, if it states one."""
    body, separator, checksum = text.rpartition(_CHECKSUM)
    return not separator or checksum.partition(b'"')[0] == b"%08x" % zlib.crc32(body)


def _distrust(about: os.stat_result) -> str | None:
    """The reason why a file is not trusted, if there is one, by the rule of the cache of cubins."""
    from tilewright import _environment

    if not hasattr(os, "geteuid") or _environment.is_on("TILEWRIGHT_CACHE_SHARED"):
        return None
    user = os.geteuid()
    if about.st_uid not in (user, 0):
        return f"it belongs to user {about.st_uid}, and this process runs as user {user}"
    if about.st_mode & (0o002 if about.st_uid == user else 0o022):
        return "other users may write it"
    return None


def _record_use(path: str) -> None:
    """Sets the time of the last use, by which ``tilewright cache gc`` chooses."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _device() -> str:
    """The device of the timings, for ``tilewright cache ls``."""
    name = _native.device()
    return f"sm_{_native.current_target()[1]}" if name.startswith("cuda") else name


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
