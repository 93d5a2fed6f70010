"""Tuning files: the configurations of tuned kernels as text, by kernel, device, dtypes and key.

A launch takes the entry with the nearest key and measures nothing. docs/tuning-files.md describes
the format and the rule; ``_tuning_command.py`` writes, imports and merges files.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeGuard

from tilewright import _native
from tilewright.errors import Diagnostic, TritonError, from_diagnostics
from tilewright.runtime._config import Config

FORMAT = 1
"""The version of the format."""

VARIABLE = "TILEWRIGHT_TUNING"
LIMIT_VARIABLE = "TILEWRIGHT_TUNING_MAX_DISTANCE"
RECORD_VARIABLE = "TILEWRIGHT_TUNING_RECORD"

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override", "num_cpu_threads")
"""The parameters of ``triton.Config`` after its compile-time arguments."""

Scalar: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Entry:
    """A line of a file: the launches that it is for, and their configuration.

    The entry of a launch itself has no configuration.
    """

    kernel: str
    device: str
    key: dict[str, Scalar]
    config: dict[str, Scalar] = field(default_factory=dict)
    target: str | None = None
    dtypes: dict[str, str] = field(default_factory=dict)
    source: str | None = None
    median_ms: float | None = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields as in the file, without those that are not set."""
        return {
            name: value for name, value in vars(self).items() if name in _REQUIRED or value not in (None, {})
        }

    def launches(self) -> str:
        """Returns a text that is equal for two entries only if they are for the same launches."""
        # A list of one text is no value of a key, so numbers differ from texts.
        key = {name: [str(Fraction(one))] if _is_number(one) else one for name, one in self.key.items()}
        same = {**self.fields(), "key": key, "config": None, "median_ms": None}
        return json.dumps(same, sort_keys=True)

    def is_for(self, launch: Entry) -> bool:
        """Returns whether kernel, device and dtypes are those of a launch; keys may differ."""
        return (
            self.kernel == launch.kernel
            and self.device == launch.device
            and self.target in (None, launch.target)
            and self.source in (None, launch.source)
            and self.dtypes.items() <= launch.dtypes.items()
        )

    def order(self) -> tuple[Any, ...]:
        """Returns the position in a file: by the fields in this order, numbers by their value."""
        key = [
            (name, *((0, value, "") if _is_number(value) else (1, 0, json.dumps(value))))
            for name, value in sorted(self.key.items())
        ]
        return (
            self.kernel,
            self.device,
            self.target or "",
            sorted(self.dtypes.items()),
            key,
            self.source or "",
        )

    def without_source(self) -> Entry:
        """Returns the entry for every source of the kernel."""
        return replace(self, source=None)

    def with_names(self, renamed: dict[str, str]) -> Entry:
        """Returns the entry with other names in its key; a value without a new name is left out."""
        key = {renamed.get(name, name): value for name, value in self.key.items()}
        return replace(self, key={name: value for name, value in key.items() if name})

    def __str__(self) -> str:
        return f"kernel '{self.kernel}' on {self.device} with {listed(self.key) or 'an empty key'}"


def listed(values: dict[str, Any]) -> str:
    """Returns names with their values in one line."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


@dataclass(frozen=True)
class TuningFile:
    """The entries of a file, and the largest distance at which a launch takes one of them."""

    name: str
    entries: list[Entry]
    max_distance: float = math.inf


# -- reading and writing --


def invalid(name: str, what: str) -> TritonError:
    """Returns the error about a file."""
    hint = "correct the file, or write it anew with `tilewright tuning`"
    return coded("TW0108", f"the tuning file {name} cannot be used: {what}", hint)


_KINDS = {"TW0102": "LaunchKey", "TW0105": "LaunchType", "TW0109": "LaunchState", "TW0110": "LaunchKey"}
"""The kinds of the codes' exceptions, where it is not ``LaunchValue``."""


def coded(code: str, message: str, hint: str, notes: Sequence[str] = ()) -> TritonError:
    """Returns an error with a code, without a position in a kernel."""
    text = [f"error[{code}]: {message}", *(f"  = note: {note}" for note in notes), f"  = help: {hint}"]
    about = Diagnostic(
        "\n".join(text),
        code=code,
        message=text[0],
        **dict.fromkeys(("file", "line", "column", "end_column")),
        label="",
        labels=(),
        notes=tuple(notes),
        hint=hint,
    )
    return from_diagnostics(_KINDS.get(code, "LaunchValue"), (about,))


def read(path: str) -> list[Entry]:
    """Reads a file."""
    document = read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("entries"), list):
        raise invalid(path, 'it is not an object with "format" and a list of "entries"')
    version = document.get("format")
    if type(version) is not int or version != FORMAT:
        raise invalid(path, f"its format is {json.dumps(version)}, expected {FORMAT}")
    if unknown := sorted(document.keys() - {"format", "entries"}):
        raise invalid(path, f"it has the unknown field {unknown[0]!r}")
    found: dict[str, int] = {}
    entries = []
    for number, content in enumerate(document["entries"], 1):
        entry = _entry(path, number, content)
        first = found.setdefault(entry.launches(), number)
        if first != number:
            raise invalid(path, f"entries {first} and {number} are for the same launches, {entry}")
        entries.append(entry)
    return entries


def read_json(path: str) -> Any:
    """Returns the content of a JSON file, in whose objects each name occurs once."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, object_pairs_hook=_unique)
    except OSError as error:
        raise invalid(path, f"it cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise invalid(path, f"it is not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"an object has the name {name!r} twice")
        found[name] = value
    return found


def render(entries: Iterable[Entry]) -> str:
    """Returns the text of a file: an entry a line, sorted. Equal entries are equal bytes."""
    ordered = sorted(entries, key=Entry.order)
    lines = ",\n".join(json.dumps(entry.fields(), sort_keys=True) for entry in ordered)
    return f'{{"format": {FORMAT}, "entries": [\n{lines}\n]}}\n'


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_scalar(value: object) -> bool:
    """Returns whether a file can state a value: a text, a finite number, a bool or null."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))


def is_scalars(value: object) -> bool:
    """Returns whether a file can state names with these values."""
    return isinstance(value, dict) and all(
        isinstance(name, str) and is_scalar(one) for name, one in value.items()
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_time(value: object) -> bool:
    return _is_number(value) and 0 <= value < math.inf


_SCALARS = "an object of texts, finite numbers, bools and null"
_FIELDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "kernel": (_is_text, "a name"),
    "device": (_is_text, "a name"),
    "key": (is_scalars, _SCALARS),
    "config": (is_scalars, _SCALARS),
    "target": (_is_text, "a name"),
    "dtypes": (_is_texts, "an object with the dtype of each tensor"),
    "source": (_is_text, "a digest"),
    "median_ms": (_is_time, "a time of at least 0"),
}
_REQUIRED = ("kernel", "device", "key", "config")


def _entry(path: str, number: int, content: object) -> Entry:
    """Checks the fields of an entry."""
    if not isinstance(content, dict):
        raise invalid(path, f"entry {number} is {_shown(content)}, expected an object")
    kernel = content.get("kernel")
    where = f"entry {number}" + (f" of kernel '{kernel}'" if _is_text(kernel) else "")
    if unknown := sorted(content.keys() - _FIELDS.keys()):
        raise invalid(path, f"{where} has the unknown field {unknown[0]!r}")
    for name, (is_valid, expected) in _FIELDS.items():
        if name not in content and name in _REQUIRED:
            raise invalid(path, f"{where} has no field {name!r}")
        if name in content and not is_valid(content[name]):
            raise invalid(path, f"{name!r} of {where} is {_shown(content[name])}, expected {expected}")
    return Entry(**{**content, "device": device_in_file(content["device"])})


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def device_in_file(name: str) -> str:
    """Returns the name of a device as files have it, and the names of files of other projects."""
    return name.replace(" ", "_")


# -- the files of this process --

loaded: dict[str, TuningFile] = {}
"""The files that the program has loaded, by their absolute paths."""


def load(path: str | os.PathLike[str], max_distance: float | None) -> None:
    """Adds a file to those of this process, or reads it again."""
    name = os.fspath(path)
    limit = math.inf if max_distance is None else max_distance
    if not _is_number(limit) or not limit >= 0:
        raise coded("TW0108", f"max_distance is {max_distance!r}", "a distance is a number of at least 0")
    loaded[os.path.realpath(name)] = TuningFile(name, read(name), limit)


def files() -> list[TuningFile]:
    """Returns the files of the environment, then those that the program has loaded."""
    of_environment = _of_environment(os.environ.get(VARIABLE, ""), os.environ.get(LIMIT_VARIABLE, ""))
    return [*of_environment, *loaded.values()]


@functools.lru_cache(1)
def _of_environment(paths: str, limit: str) -> list[TuningFile]:
    try:
        max_distance = float(limit or "inf")
    except ValueError:
        max_distance = math.nan
    if not max_distance >= 0:
        hint = "a distance is a number of at least 0; 0 takes only entries with an equal key"
        raise coded("TW0108", f"{LIMIT_VARIABLE} is '{limit}'", hint)
    return [TuningFile(path, read(path), max_distance) for path in paths.split(os.pathsep) if path]


# -- the choice for a launch --


def launch_of(tuner: Any, named: dict[str, Any]) -> Entry:
    """Describes a launch with these arguments, as an entry without configuration."""
    from tilewright.runtime._locked_tuning import _source_digest

    # The numbers of numpy have dtypes, too.
    tensors = {name: value for name, value in named.items() if not isinstance(value, Real)}
    dtypes = {
        name: str(value.dtype).removeprefix("torch.")
        for name, value in tensors.items()
        if name in tuner.arg_names and getattr(value, "dtype", None) is not None
    }
    device, target = _device(tuner._place)
    return Entry(
        kernel=tuner.__name__,
        device=device,
        key={name: _plain(named[name]) for name in tuner.keys if name in named},
        target=target,
        dtypes=dtypes,
        source=_source_digest(tuner)[:16],
    )


def _device(place: Any) -> tuple[str, str]:
    """Returns the name of the device of the first tensor, and its target."""
    name = _native.device()
    if not name.startswith("cuda"):
        backend, architecture, _ = _native.current_target()
        return name, f"sm_{architecture}" if backend == "cuda" else str(architecture)
    if place is None or str(place) == "cpu":
        import platform

        return "cpu", platform.machine()
    number = getattr(place, "index", None)
    major, minor = _native.device_capability(number)
    return device_in_file(_native.device_name(number)), f"sm_{major}{minor}"


def _plain(value: Any) -> Scalar:
    """Returns a value of the key as a file has it."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    if type(value).__name__ in ("bool", "bool_"):
        # The bools of numpy are no bools of Python.
        return bool(value)
    return str(value)


def ratio(key: dict[str, Scalar], other: dict[str, Scalar]) -> Fraction | None:
    """Returns the product of ``max(a, b) / min(a, b)`` of the numbers in two keys.

    Its logarithm is the distance of the keys, the sum of ``|log2(a) - log2(b)|``; the product is
    exact. Returns nothing for keys with other names, or other values that are not numbers.
    """
    if key.keys() != other.keys():
        return None
    product = Fraction(1)
    for name, a in key.items():
        b = other[name]
        if _is_number(a) and _is_number(b):
            if a != b:
                if min(a, b) <= 0:
                    return None
                product *= Fraction(max(a, b)) / Fraction(min(a, b))
        elif type(a) is not type(b) or a != b:
            return None
    return product


def _is_within(product: Fraction, max_distance: float) -> bool:
    return math.log2(product.numerator) - math.log2(product.denominator) <= max_distance


def nearest(launch: Entry, tables: Iterable[TuningFile]) -> list[tuple[TuningFile, Entry]]:
    """Returns the entries for a launch, the nearest first.

    Of equally near entries, the one with the smaller numbers in its key is first, then the one that
    states more of target, source and dtypes, then the one of the earlier file.
    """
    found = []
    for table in tables:
        for entry in table.entries:
            if not entry.is_for(launch):
                continue
            product = ratio(entry.key, launch.key)
            if product is None or not _is_within(product, table.max_distance):
                continue
            numbers = [value for name in launch.key if _is_number(value := entry.key[name])]
            stated = (entry.target is not None) + (entry.source is not None) + len(entry.dtypes)
            found.append(((product, numbers, -stated), table, entry))
    found.sort(key=lambda one: one[0])
    return [(table, entry) for _, table, entry in found]


def choose(tuner: Any, key: Any, named: dict[str, Any], kwargs: dict[str, Any]) -> Config | None:
    """Returns the configuration of the nearest entry; nothing if no file has one for the launch."""
    tables = files()
    if not tables:
        return None
    launch = launch_of(tuner, named)
    for table, entry in nearest(launch, tables):
        config = _config(tuner, table, entry, {*named, *kwargs})
        if _is_kept(tuner, config, kwargs):
            from tilewright.runtime import _tuning_report

            tuner.configs_timings, tuner.bench_time = {}, 0.0
            _tuning_report.report_entry(tuner, key, config, f"{table.name}, key {listed(entry.key)}")
            return config
    _warn_of_names(tuner, launch, tables)
    return None


def _is_kept(tuner: Any, config: Config, kwargs: dict[str, Any]) -> bool:
    """Returns whether pruning keeps a configuration: the entry may be for another key."""
    prune = tuner.early_config_prune
    return prune is None or bool(list(prune([config], tuner.nargs or {}, **kwargs)))


def _config(tuner: Any, table: TuningFile, entry: Entry, given: set[str]) -> Config:
    """Returns the configuration of an entry, with the hook of the tuner's configurations."""
    _check_names(tuner, table, entry, given)
    _check_types(tuner, table, entry)
    options = {name: value for name, value in entry.config.items() if name in _OPTIONS}
    values = {name: value for name, value in entry.config.items() if name not in _OPTIONS}
    made = Config(values, **options)  # type: ignore[arg-type]
    # No line of the program made it.
    object.__delattr__(made, "_made_at")
    for config in tuner.configs:
        if config.all_kwargs() == made.all_kwargs():
            return config  # type: ignore[no-any-return]
    hooks = {config.pre_hook for config in tuner.configs}
    if len(hooks) > 1:
        what = (
            f"the configurations of {entry} have different hooks, and {listed(entry.config)} is none of them"
        )
        raise invalid(table.name, what)
    made.pre_hook = hooks.pop()
    return made


def _check_names(tuner: Any, table: TuningFile, entry: Entry, given: set[str]) -> None:
    """Refuses an entry that sets a name that the kernel does not have, or leaves one unset."""
    from tilewright.runtime._config_errors import _option_names

    known = {*tuner.arg_names, *_option_names()}
    if unknown := [name for name in entry.config if name not in known]:
        import difflib

        near = difflib.get_close_matches(unknown[0], sorted(known), 1)
        raise coded(
            "TW0102",
            f"{unknown[0]!r} of an entry of the tuning file {table.name} is neither a parameter of "
            f"kernel '{tuner.__name__}' nor a launch option",
            f"did you mean {near[0]!r}?" if near else "remove the name from the entry",
            [f"the entry is that of {entry}", f"its configuration is {listed(entry.config)}"],
        )
    if doubled := sorted(entry.config.keys() & given):
        what = f"the configuration of {entry} sets {doubled[0]!r}, which the launch passes"
        raise invalid(table.name, what)
    kernel = tuner.fn
    while not hasattr(kernel, "params") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    for param in getattr(kernel, "params", ()):
        is_set = param.has_default or param.name in entry.config or param.name in given
        if not is_set and all(param.name in config.kwargs for config in tuner.configs):
            raise invalid(table.name, f"the configuration of {entry} has no {param.name!r}")


def _check_types(tuner: Any, table: TuningFile, entry: Entry) -> None:
    """Refuses a compile-time value whose type is that of none of the tuner's values under its name."""
    for name, value in entry.config.items():
        known = [_plain_value(config.kwargs[name]) for config in tuner.configs if name in config.kwargs]
        kinds = {_kind(one) for one in known}
        # Files cannot state dtypes and functions, so the kernel decides what it takes in their place.
        if not known or _kind(value) in kinds or "object" in kinds or None in known:
            continue
        if type(value) is int and ("a float" in kinds or ("a bool" in kinds and value in (0, 1))):
            continue
        what = (
            f"{name!r} of {entry} is {_shown(value)}, {_kind(value)}, but the tuner's configurations have "
            f"{' or '.join(sorted(kinds))}, such as {known[0]!r}"
        )
        raise invalid(table.name, what)


def _plain_value(value: Any) -> Any:
    """Returns a value of a configuration without `tl.constexpr`, and numbers of numpy as those of Python."""
    value = getattr(value, "value", value)
    is_number = isinstance(value, (Integral, Real)) or type(value).__name__ in ("bool", "bool_")
    return _plain(value) if is_number else value


def _kind(value: object) -> str:
    """Returns the type of a value as a message names it."""
    if value is None:
        return "no value"
    kinds = {bool: "a bool", int: "an int", float: "a float", str: "a text"}
    return kinds.get(type(value), "object")


def _warn_of_names(tuner: Any, launch: Entry, tables: Iterable[TuningFile]) -> None:
    """Warns once if files have entries for the launch, but with other names in the key."""
    if vars(tuner).get("_has_warned_of_names"):
        return
    entries = [(table, entry) for table in tables for entry in table.entries if entry.is_for(launch)]
    if not entries or any(entry.key.keys() == launch.key.keys() for _, entry in entries):
        return
    import warnings

    from tilewright.errors import LaunchWarning
    from tilewright.runtime._tuning_report import program_stacklevel

    vars(tuner)["_has_warned_of_names"] = True
    table, entry = entries[0]
    text = (
        f"the tuning file {table.name} has no entry for '{tuner.__name__}' that launches can take: the key "
        f"of its entries is {', '.join(sorted(entry.key)) or 'empty'}, that of the autotuner is "
        f"{', '.join(sorted(launch.key)) or 'empty'}"
    )
    warnings.warn(text, LaunchWarning, stacklevel=program_stacklevel())


# -- recording --


def record(folder: str, tuner: Any, named: dict[str, Any], best: Config) -> None:
    """Adds the choice for a launch to the recording of ``tilewright tuning export``."""
    import hashlib

    from tilewright._files import write_file

    config = best.all_kwargs()
    if not is_scalars(config):
        import sys

        print(f"tilewright: a file cannot state the configuration {best}: it is left out", file=sys.stderr)
        return
    median = tuner.configs_timings[best][0]
    time = float(f"{median:.6g}") if math.isfinite(median) else None
    text = render([replace(launch_of(tuner, named), config=config, median_ms=time)])
    write_file(os.path.join(folder, f"{hashlib.sha256(text.encode()).hexdigest()}.json"), text)


def merge(tables: Iterable[TuningFile]) -> list[Entry]:
    """Returns the entries of several files; of two for the same launches, the faster one."""
    found: dict[str, tuple[str, Entry]] = {}
    for table in tables:
        for entry in table.entries:
            launches = entry.launches()
            if launches in found:
                found[launches] = _faster(found[launches], (table.name, entry))
            else:
                found[launches] = (table.name, entry)
    return [entry for _, entry in found.values()]


def _faster(a: tuple[str, Entry], b: tuple[str, Entry]) -> tuple[str, Entry]:
    """Returns the entry with the smaller time, of two for the same launches."""

    def rank(one: tuple[str, Entry]) -> tuple[float, str]:
        time = one[1].median_ms
        return math.inf if time is None else time, json.dumps(one[1].config, sort_keys=True)

    if a[1].config != b[1].config and None in (a[1].median_ms, b[1].median_ms):
        raise coded(
            "TW0108",
            f"two entries choose differently for {a[1]}",
            "delete one of the entries, or state median_ms in both: the smaller time counts",
            [f"{name}: {listed(entry.config)}" for name, entry in (a, b)],
        )
    return min(a, b, key=rank)
