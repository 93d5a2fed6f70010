"""``tilewright bench``: the faster of two versions, and whether the difference is significant.

The versions run in pairs, in a random order within each pair, so that a slow phase of the machine slows both. Versions
exchange their tensors within a pair, because the addresses of tensors may change the time by 20 %. The command
computes a confidence interval of the ratio of the medians by bootstrap. If the interval contains 1, the measurements
show no difference.
"""

from __future__ import annotations

import difflib
import json
import math
import random
import sys
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright._arguments import Parser
from tilewright._output import print_result

_DESCRIPTION = """\
Compare two versions of a kernel or of a function

A name is a function without arguments that does the work, or a kernel. A kernel takes --args and --grid, which are
evaluated for each version by itself, with torch, numpy (np), math and triton. Each file is imported, and its arguments
are evaluated, with the same seed:

    tilewright bench a.py::add b.py::add --grid 1024 \\
        --args 'torch.rand(1 << 20), torch.rand(1 << 20), torch.empty(1 << 20), 1 << 20, BLOCK=1024'

The results of both are compared after the first run; if elements differ by more than 0.001 + 1 % of
the second version's, the exit code is 1. The order is drawn anew for each pair of runs; the ratio
has a 95 % confidence interval by bootstrap. On the simulator of a GPU, where time says nothing,
estimates of a model are compared."""

_CONFIDENCE = 0.95
_RESAMPLES = 2000
_MIN_PAIRS = 15
_MAX_PAIRS = 2000
_MIN_SAMPLE_SECONDS = 1e-3
"""The minimum duration of a sample in seconds: a shorter one measures the clock."""


_INTERRUPTED = 130
"""The exit code after Ctrl-C, as that of a shell: 128 and the number of the signal."""

_PACKAGES = {"torch": "torch", "np": "numpy", "triton": "triton"}
"""The packages that ``--args`` and ``--grid`` may use, by their names there."""


_Place = tuple[Any, Any, Any]
"""The containers of two versions and a key of both, whose tensors the versions may exchange."""


_HINT = (
    "\n  if the functions draw their inputs at random, draw them at the level of the file, which has the same seed "
    "in both versions"
)


@dataclass(frozen=True)
class Comparison:
    """How long b takes, relative to a."""

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def is_different(self) -> bool:
        """Returns whether the confidence interval excludes 1."""
        return self.low > 1 or self.high < 1


def compare(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Comparison:
    """Returns the ratio of the medians of b and a, which were measured in pairs, and a bootstrap interval of it."""
    if len(a) != len(b) or not a:
        raise ValueError("times are compared in pairs")
    pairs = list(zip(a, b, strict=True))
    draw = random.Random(seed)
    ratios = sorted(_ratio(draw.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    tail = (1 - _CONFIDENCE) / 2
    low, high = ratios[int(tail * _RESAMPLES)], ratios[int((1 - tail) * _RESAMPLES) - 1]
    return Comparison(_ratio(pairs), low, high, len(pairs))


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The ratio of the printed medians, so that the ratio and the medians agree."""
    return _median([later for _, later in pairs]) / _median([earlier for earlier, _ in pairs])


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def verdict(comparison: Comparison, names: tuple[str, str]) -> str:
    """The comparison as a sentence."""
    a, b = names
    ratio, low, high = comparison.ratio, comparison.low, comparison.high
    about = f"95 % confidence: {{:.3f}} to {{:.3f}}, {comparison.pairs} pairs"
    if not comparison.is_different:
        return f"no difference: {b} takes {ratio:.3f} times what {a} takes ({about.format(low, high)})"
    if ratio < 1:
        return f"{b} is {1 / ratio:.3f} times as fast as {a} ({about.format(1 / high, 1 / low)})"
    return f"{a} is {ratio:.3f} times as fast as {b} ({about.format(low, high)})"


class _Refused(Exception):
    """An error in the command line, or in a version that it names."""


def parser() -> Parser:
    """The parser of ``tilewright bench``."""
    made = Parser("tilewright bench", ("<a.py>::<name> <b.py>::<name>",), _DESCRIPTION)
    made.refusals["--locked"] = "the variable TILEWRIGHT_LOCK=<file> makes both versions launch from a lock"
    made.add_argument("names", nargs="*", help=SUPPRESS)
    made.add_option("--args", metavar="<arguments>", help="what kernels are launched with")
    made.add_option(
        "--grid",
        metavar="<grid>",
        help="a number, a tuple, or a function of the compile-time values: 'lambda meta: (8,)'",
    )
    made.add_option(
        "--device",
        metavar="<device>",
        help="where kernels run: cpu, cuda, sim:sm_90; as for `tilewright run`",
    )
    made.add_option(
        "--gpu",
        metavar="<name>",
        help="the GPU that runs on the simulator are estimated for: H200, A100 ...",
    )
    made.add_option("--time", metavar="<seconds>", type=float, default=3.0, help="how long to measure (3)")
    made.add_option("--json", action="store_true", help="print the result as JSON")
    return made


def main(arguments: list[str]) -> int:
    """The command; after Ctrl-C, it reports the pairs that were measured, and the exit code is 130."""
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        print("tilewright: interrupted before a pair was measured", file=sys.stderr)
        return _INTERRUPTED


def _main(arguments: list[str]) -> int:
    command = parser()
    wanted = command.parse(arguments)
    names: list[str] = wanted.names
    if len(names) != 2:
        command.error(f"two versions are compared, a.py::name b.py::name; {len(names)} are given")

    from tilewright import _native, _run

    if (failure := _run._prepare(wanted.device)) is not None:
        print(failure, file=sys.stderr)
        return 1
    try:
        places = [_place(name) for name in names]
        versions = [_version(*place, number, wanted) for number, place in enumerate(places)]
        is_simulated = _native.device().startswith("sim")
        if wanted.gpu is not None and not is_simulated:
            text = f"--gpu {wanted.gpu} has no effect on {_native.device()}: it is for simulated GPUs"
            print(f"warning: {text} (--device sim:sm_90)", file=sys.stderr)
        outcomes = [_first_run(version, name) for version, name in zip(versions, names, strict=True)]
        difference = _difference(*outcomes)
        # A result that is kept would change the addresses that later results get.
        outcomes.clear()
        if difference is not None:
            hint = "" if wanted.args is not None else _HINT
            print(f"warning: the two versions do not compute the same: {difference}{hint}", file=sys.stderr)
        labels = ("a", "b") if names[0] == names[1] else (names[0], names[1])
        if is_simulated:
            result = _estimated(versions, wanted.gpu)
        else:
            result = _measured(versions, wanted.time)
    except _Refused as error:
        # A diagnostic begins with `error` itself.
        text = str(error)
        print(text if text.startswith("error[") else f"error: {text}", file=sys.stderr)
        return 2
    is_interrupted = result.get("interrupted", False)
    pairs = result["comparison"].pairs if is_interrupted else 0
    print_result(_text(result, labels, wanted.json))
    if is_interrupted:
        print(f"tilewright: interrupted after {_counted(pairs, 'pair')}", file=sys.stderr)
        return _INTERRUPTED
    return int(difference is not None)


def _text(result: dict[str, Any], labels: tuple[str, str], is_json: bool) -> str:
    """The result as JSON, or for a reader."""
    from tilewright._profile import duration

    comparison: Comparison | None = result.pop("comparison", None)
    if is_json:
        more = {} if comparison is None else {**asdict(comparison), "different": comparison.is_different}
        return json.dumps({"names": labels, **result, **more}) + "\n"
    lines = [
        f"{duration(nanoseconds):>12}  {label}"
        for label, nanoseconds in zip(labels, result["ns"], strict=True)
    ]
    a, b = result["ns"]
    if comparison is not None:
        lines.append(verdict(comparison, labels))
    elif a == b:
        lines.append(f"no difference on {result['gpu']}, as the model sees it")
    else:
        fast, slow = (labels[1], labels[0]) if b < a else labels
        ratio = f"{max(a, b) / min(a, b):.3f} times as fast as {slow}"
        lines.append(f"{fast} is {ratio} on {result['gpu']}, as the model sees it")
    return "\n".join(lines) + "\n"


def _place(name: str) -> tuple[str, str]:
    """Returns the file that a text names, and the name in the file."""
    path, _, function = name.rpartition("::")
    if not path or not function:
        raise _Refused(f"a version is a file and a name, such as a.py::add, not '{name}'")
    return path, function


def _version(path: str, function: str, number: int, wanted: Namespace) -> Callable[[], Any]:
    """Returns a function that runs a version once and returns its results."""
    name = f"{path}::{function}"
    module = _load(path, number)
    if not hasattr(module, function):
        near = difflib.get_close_matches(
            function, [one for one in vars(module) if not one.startswith("__")], 1
        )
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise _Refused(f"{path} has no '{function}'{hint}")
    target = getattr(module, function)
    from tilewright.runtime.jit import KernelInterface

    if isinstance(target, KernelInterface):
        return _launch(target, name, module, wanted)
    if not callable(target):
        raise _Refused(f"'{name}' is neither a function nor a kernel, but {type(target).__name__}")
    needed = _required(target)
    if needed:
        raise _Refused(f"'{name}' takes arguments ({', '.join(needed)}): bench calls functions without any")
    return _Function(target, vars(module))


def _first_run(version: Callable[[], Any], name: str) -> Any:
    """Runs a version for the first time.

    A launch or compile error of its kernels is reported without frames of tilewright.
    """
    from tilewright.errors import TritonError

    try:
        return version()
    except TritonError as error:
        hint = (
            "\n  both kernels are launched with the same --args and --grid; to compare kernels that take others, "
            "name functions\n  without arguments that launch them"
        )
        is_launch = type(error).__name__.startswith("Launch")
        raise _Refused(f"{name} cannot run: {error}{hint if is_launch else ''}") from error


def _required(function: Any) -> list[str]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.kind not in variadic and one.default is one.empty]


def _load(path: str, number: int) -> Any:
    import importlib.util

    file = Path(path)
    if not file.is_file():
        raise _Refused(f"cannot read {path}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"tilewright_bench_{number}_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise _Refused(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.resolve().parent))
    _seed()
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise _Refused(f"cannot read {path}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def _seed() -> None:
    """Seeds the global generators, and those of torch and numpy when they are imported, with the same seed."""
    from tilewright._import_hook import when_imported

    random.seed(0)
    when_imported("torch", lambda torch: torch.manual_seed(0))
    when_imported("numpy", lambda numpy: numpy.random.seed(0))


class _Function:
    """A version that is a function, with the names of its module."""

    def __init__(self, work: Callable[[], Any], names: dict[str, Any]) -> None:
        self.work, self.names = work, names

    def __call__(self) -> Any:
        return self.work()


def _equal_places(mine: Any, theirs: Any) -> Iterator[_Place]:
    """Yields where two dictionaries or lists, or those that they contain, have equal tensors."""
    keys = mine.keys() & theirs.keys() if isinstance(mine, dict) else range(min(len(mine), len(theirs)))
    for key in keys:
        one, other = mine[key], theirs[key]
        if one is other or (isinstance(key, str) and key.startswith("__")):
            continue
        if type(one) is type(other) and isinstance(one, (dict, list)):
            yield from _equal_places(one, other)
        elif _are_equal(one, other):
            yield mine, theirs, key


def _exchange_tensors(places: list[_Place]) -> None:
    """Exchanges tensors with equal properties between the versions. Each version keeps its other objects."""
    for mine, theirs, key in places:
        if _layout(mine[key]) is not None and _layout(mine[key]) == _layout(theirs[key]):
            mine[key], theirs[key] = theirs[key], mine[key]


def _are_equal(one: Any, other: Any) -> bool:
    """Returns whether two objects are tensors with equal properties and elements."""
    if _layout(one) is None or _layout(one) != _layout(other):
        return False
    try:
        return bool((one == other).all())
    except Exception:
        # A type of tensors that cannot be compared, such as float8 in some versions of torch.
        return False


class _Launch:
    """A version that is a kernel with its arguments."""

    def __init__(self, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.kernel, self.grid = kernel, grid
        self.args, self.kwargs = list(args), kwargs

    def __call__(self) -> Any:
        self.kernel[self.grid](*self.args, **self.kwargs)
        return [value for value in (*self.args, *self.kwargs.values()) if hasattr(value, "shape")]

    def common_places(self, other: _Launch) -> list[_Place]:
        """Returns the arguments of equal parameters."""
        return [
            *((self.args, other.args, index) for index in range(min(len(self.args), len(other.args)))),
            *((self.kwargs, other.kwargs, name) for name in self.kwargs.keys() & other.kwargs.keys()),
        ]


def _layout(value: Any) -> object:
    """Returns the properties in which two tensors must agree to be exchanged; ``None`` if the object is no tensor."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None
    strides = value.stride() if hasattr(value, "stride") else getattr(value, "strides", None)
    return type(value), tuple(value.shape), str(value.dtype), strides, str(getattr(value, "device", None))


def _launch(kernel: Any, name: str, module: Any, wanted: Namespace) -> _Launch:
    if wanted.args is None or wanted.grid is None:
        raise _Refused(f"'{name}' is a kernel: say what it is launched with, by --args and --grid")
    known: dict[str, Any] = {"math": math, **vars(module)}
    for short, package in _PACKAGES.items():
        try:
            known.setdefault(short, __import__(package))
        except ImportError:
            continue
    _seed()
    args, kwargs = _evaluated(f"(lambda *args, **kwargs: (args, kwargs))({wanted.args})", "--args", known)
    grid = _evaluated(wanted.grid, "--grid", known)
    return _Launch(kernel, (grid,) if isinstance(grid, int) else grid, args, kwargs)


def _evaluated(text: str, option: str, known: dict[str, Any]) -> Any:
    try:
        return eval(text, known)
    except NameError as error:
        hint = f": {_PACKAGES[error.name]} is not installed" if error.name in _PACKAGES else ""
        raise _Refused(f"{option}: {type(error).__name__}: {error}{hint}") from error
    except Exception as error:
        raise _Refused(f"{option}: {type(error).__name__}: {error}") from error


def _difference(a: Any, b: Any) -> str | None:
    """Describes the difference between the results of two versions; empty if they are equal or not comparable."""
    lists = [list(value) if isinstance(value, (list, tuple)) else [value] for value in (a, b)]
    if len(lists[0]) != len(lists[1]):
        return f"{_counted(len(lists[0]), 'result')} and {len(lists[1])}"
    for number, (one, other) in enumerate(zip(*lists, strict=True)):
        if not hasattr(one, "shape") or not hasattr(other, "shape"):
            continue
        if tuple(one.shape) != tuple(other.shape):
            return f"tensor {number} has shape {tuple(one.shape)} and {tuple(other.shape)}"
        try:
            import numpy as np
        except ImportError:
            raise _Refused("numpy, which compares the results, is not installed: pip install numpy") from None
        left, right = (_array(value) for value in (one, other))
        same = np.isclose(left, right, rtol=1e-2, atol=1e-3, equal_nan=True)
        if not same.all():
            furthest = np.nanmax(np.abs(left - right)[~same])
            count = int((~same).sum())
            verb = "differs" if count == 1 else "differ"
            return f"{_counted(count, 'element')} of tensor {number} {verb}, by up to {furthest:.4g}"
    return None


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _array(value: Any) -> Any:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, dtype=np.float64)


def _synchronize() -> Callable[[], None]:
    from tilewright import _native

    if not _native.device().startswith("cuda"):
        return lambda: None
    import torch

    wait: Callable[[], None] = torch.cuda.synchronize
    return wait


def _measured(versions: list[Callable[[], Any]], seconds: float) -> dict[str, Any]:
    wait = _synchronize()

    def sample(version: Callable[[], Any], count: int) -> float:
        wait()
        began = time.perf_counter()
        for _ in range(count):
            version()
        wait()
        return (time.perf_counter() - began) / count

    # Both versions have run once, so they are compiled.
    counts = _counts([min(sample(version, 1) for _ in range(3)) for version in versions])
    a, b = versions
    places: list[_Place] = []
    if isinstance(a, _Function) and isinstance(b, _Function):
        places = list(_equal_places(a.names, b.names))
    elif isinstance(a, _Launch) and isinstance(b, _Launch):
        places = a.common_places(b)

    def measure(number: int) -> float:
        if counts[number] > 1:
            # The other version has filled the caches.
            versions[number]()
        return sample(versions[number], counts[number])

    draw = random.Random(1)
    pairs: list[tuple[float, float]] = []

    def measure_pair() -> tuple[float, float]:
        pair: list[list[float]] = [[], []]
        order = [0, 1] if draw.random() < 0.5 else [1, 0]
        for number in order:
            pair[number].append(measure(number))
        if places:
            # The versions run in the other order, so that a drift and the state of the caches affect both alike.
            _exchange_tensors(places)
            for number in reversed(order):
                pair[number].append(measure(number))
            _exchange_tensors(places)
        return sum(pair[0]) / len(pair[0]), sum(pair[1]) / len(pair[1])

    end = time.perf_counter() + seconds
    is_interrupted = False
    try:
        while len(pairs) < _MAX_PAIRS and (len(pairs) < _MIN_PAIRS or time.perf_counter() < end):
            pairs.append(measure_pair())
    except KeyboardInterrupt:
        if not pairs:
            raise
        is_interrupted = True
    times = [[pair[number] for pair in pairs] for number in (0, 1)]
    result: dict[str, Any] = {
        "ns": [1e9 * _median(one) for one in times],
        "comparison": compare(times[0], times[1]),
    }
    return {**result, "interrupted": True} if is_interrupted else result


def _counts(seconds: Sequence[float]) -> list[int]:
    """Returns the runs in a sample of each version, from the durations of one run.

    Versions of similar durations have equal counts, so that the first run of a sample counts equally in both.
    """
    counts = [max(1, math.ceil(_MIN_SAMPLE_SECONDS / max(one, 1e-9))) for one in seconds]
    is_similar = max(counts) <= 4 * min(counts)
    return [max(counts)] * len(counts) if is_similar else counts


def _estimated(versions: list[Callable[[], Any]], gpu: str | None) -> dict[str, Any]:
    from tilewright import _native
    from tilewright.errors import TritonError

    found: list[float] = []
    name = ""
    for version in versions:
        _native.start_profile()
        try:
            version()
            taken = json.loads(_native.take_profile(gpu))
        except TritonError as error:
            raise _Refused(str(error)) from error
        finally:
            _native.stop_profile()
        if not taken["kernels"]:
            raise _Refused(
                "a version launches no kernel, and on the simulator there is nothing else to compare"
            )
        name = taken["kernels"][0]["sim"]["estimate"]["gpu"]
        found.append(sum(launch["ns"] for launch in taken["launches"]))
    return {"ns": found, "gpu": name}
