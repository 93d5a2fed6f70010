"""``python -m tilewright.profiler.viewer -m time/ms profile.hatchet``: the tree of a session on the terminal, as
``proton-viewer`` prints it, without other packages.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from typing import Any

from tilewright._files import cannot

_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_SIZES = {"": 1.0, "g": 1e9, "t": 1e12}
_FLOPS = ("flops8", "flops16", "flops32", "flops64")


def read(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tree in a file, and its devices."""
    with open(path, encoding="utf-8") as file:
        try:
            content = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is no profile: {error}") from None
    if not isinstance(content, list) or not content or "frame" not in content[0]:
        raise ValueError(f"{path} is no profile: expected the list that finalize() writes")
    return content[0], content[1] if len(content) > 1 else {}


def total(node: dict[str, Any], name: str) -> float:
    """Returns a metric of a node, with all nodes below it."""
    own = node["metrics"].get(name, 0)
    return (own if isinstance(own, (int, float)) else 0) + sum(
        total(child, name) for child in node["children"]
    )


def names_below(node: dict[str, Any]) -> set[str]:
    """The metrics that a node, or one below it, has."""
    return set(node["metrics"]).union(*(names_below(child) for child in node["children"]))


def metric(node: dict[str, Any], name: str, root: dict[str, Any] | None = None) -> float:
    """Returns a metric by its name for ``-m``: ``time/ms``, ``avg_time/us``, ``time/%``, ``count``, ``gbyte/s``,
    ``tflop16/s``, ``tflop/s``, ``flops``, or one of the program's own. Percentages are relative to ``root``."""
    base, _, unit = name.partition("/")
    nanoseconds = total(node, "time (ns)")
    kind = base.removeprefix("avg_")
    if kind in ("time", "cpu_time"):
        raw = f"{kind} (ns)"
        if unit == "%":
            whole = total(root or node, raw)
            return 100 * total(node, raw) / whole if whole else 0.0
        if unit not in _TIMES:
            raise ValueError(f"unknown unit in '{name}': it is one of {', '.join(_TIMES)}, %")
        return total(node, raw) / _TIMES[unit] / ((total(node, "count") or 1) if kind != base else 1)
    if (rate := _rate(name)) is not None:
        amounts, size = rate
        amount = sum(total(node, one) for one in amounts)
        return amount / size / (nanoseconds / 1e9) if nanoseconds else 0.0
    return total(node, name)


def _rate(name: str) -> tuple[tuple[str, ...], float] | None:
    """The metrics that a rate such as ``tflop16/s`` adds up, and its unit. ``flop/s`` is of all widths."""
    base, _, unit = name.partition("/")
    for prefix, size in _SIZES.items():
        rest = base.removeprefix(prefix)
        if unit != "s" or not base.startswith(prefix):
            continue
        if rest == "byte":
            return ("bytes",), size
        if rest == "flop":
            return ("flops", *_FLOPS), size
        if rest.startswith("flop") and rest.replace("flop", "flops", 1) in _FLOPS:
            return (rest.replace("flop", "flops", 1),), size
    return None


def _check(metrics: list[str], root: dict[str, Any]) -> None:
    """Raises for a metric that the profile does not have."""
    known = names_below(root)
    for name in metrics:
        base = name.partition("/")[0]
        if (rate := _rate(name)) is not None:
            needed = set(rate[0])
        elif base.removeprefix("avg_") in ("time", "cpu_time"):
            needed = {f"{base.removeprefix('avg_')} (ns)"}
            metric(root, name, root)
        else:
            needed = {name}
        if not needed & known:
            derived = _derived(known)
            near = difflib.get_close_matches(name, [*derived, *known], 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            more = f", and from these {', '.join(derived)}" if derived else ""
            raise ValueError(f"the profile has no '{name}': it has {', '.join(sorted(known))}{more}{hint}")


def _derived(known: set[str]) -> list[str]:
    """Returns the metrics that the viewer computes from those of a profile."""
    times = [kind for kind in ("time", "cpu_time") if f"{kind} (ns)" in known]
    derived = [f"{prefix}{kind}/{unit}" for kind in times for prefix in ("", "avg_") for unit in _TIMES]
    derived += [f"{kind}/%" for kind in times]
    flops = [name for name in _FLOPS if name in known]
    rates = [
        *(name.replace("flops", "flop", 1) for name in flops),
        *(["flop"] if flops or "flops" in known else []),
    ]
    rates += ["byte"] if "bytes" in known else []
    return derived + [f"{prefix}{rate}/s" for rate in rates for prefix in _SIZES]


def get_raw_metrics(file: Any) -> tuple[dict[str, Any], list[str], dict[str, Any], dict[str, Any]]:
    """Returns the tree in an open file, the names of its metrics, and its devices (by their type, and unchanged)."""
    content = json.load(file)
    devices = content[1] if len(content) > 1 else {}
    return content[0], sorted(names_below(content[0])), devices, devices


def parse(
    metrics: list[str] | str,
    filename: str,
    include: str | None = None,
    exclude: str | None = None,
    threshold: float | None = None,
    depth: int | None = None,
    format: str | None = None,
    print_sorted: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The tree of a profile, for ``print_tree``, and the names of the metrics.

    ``include`` and ``exclude`` are regular expressions that are searched in the names of nodes; the ancestors and
    children of a matching node stay. With ``depth`` or ``format`` the tree is printed as well, as older versions did.
    """
    root, _ = read(filename)
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    _check(names, root)
    if include is not None or exclude is not None:
        root = _chosen(root, re.compile(include or ""), None if exclude is None else re.compile(exclude)) or {
            **root,
            "children": [],
        }
    if threshold:
        root = _above(root, names[0], threshold * metric(root, names[0], root))
    if depth is not None or format is not None:
        print_tree(root, names, 100 if depth is None else depth, format, print_sorted)
    return root, names


def _chosen(node: dict[str, Any], include: Any, exclude: Any) -> dict[str, Any] | None:
    """The node without the children that the patterns exclude."""
    name = node["frame"]["name"]
    if exclude is not None and exclude.search(name):
        return None
    if include.pattern and include.search(name):
        return node if exclude is None else _chosen(node, re.compile(""), exclude)
    children = [kept for child in node["children"] if (kept := _chosen(child, include, exclude)) is not None]
    return {**node, "children": children} if children or not include.pattern else None


def _above(node: dict[str, Any], name: str, least: float) -> dict[str, Any]:
    children = [_above(child, name, least) for child in node["children"] if metric(child, name) >= least]
    return {**node, "children": children}


def print_tree(
    tree: dict[str, Any],
    metrics: list[str],
    depth: int = 100,
    format: str | None = None,
    print_sorted: bool = False,
) -> None:
    """Prints the result of ``parse``. The formats ``"full"`` and ``"file_function"`` choose the length of names."""
    print(format_tree(tree, list(metrics), depth, format=format), end="")
    if print_sorted:
        print("Sorted kernels by metric", metrics[0])
        leaves = sorted(_leaves(tree), key=lambda node: -metric(node, metrics[0], tree))
        for node in leaves:
            print(f"{_short(node['frame']['name'], format)} {metric(node, metrics[0], tree):.3f}")


def _leaves(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [leaf for child in node["children"] for leaf in _leaves(child)] if node["children"] else [node]


def _short(name: str, format: str | None) -> str:
    """The name of a node; of functions of Python, ``path:function@line``, without the folder, unless ``full``."""
    if format in (None, "full") or "@" not in name:
        return name
    return name.rpartition("/")[2]


def format_tree(
    root: dict[str, Any],
    metrics: list[str],
    depth: int = 100,
    threshold: float = 0.0,
    format: str | None = None,
) -> str:
    """Formats the tree as text, a line a node, with each metric including the nodes below."""
    lines = [" ".join(metrics)]
    whole = metric(root, metrics[0], root)

    def add(node: dict[str, Any], before: str, own: str, left: int) -> None:
        values = " ".join(f"{metric(node, name, root):.3f}" for name in metrics)
        lines.append(f"{own}{values} {_short(node['frame']['name'], format)}")
        if left == 0:
            return
        kept = [
            child
            for child in node["children"]
            if not whole or metric(child, metrics[0], root) >= threshold * whole
        ]
        kept.sort(key=lambda child: -metric(child, metrics[0], root))
        for index, child in enumerate(kept):
            is_last = index == len(kept) - 1
            add(
                child,
                before + ("   " if is_last else "│  "),
                before + ("└─ " if is_last else "├─ "),
                left - 1,
            )

    add(root, "", "", depth)
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="tilewright.profiler.viewer", description="Prints a profile as a tree."
    )
    parser.add_argument("file", help="what finalize() has written")
    parser.add_argument(
        "-m", "--metrics", default="time/ms", help="time/ms,avg_time/us,count,gbyte/s,tflop16/s"
    )
    parser.add_argument("-l", "--list", action="store_true", help="say which metrics the profile has")
    parser.add_argument("-i", "--include", help="only nodes whose names have this regular expression")
    parser.add_argument("-e", "--exclude", help="no nodes whose names have this regular expression")
    parser.add_argument("-d", "--depth", type=int, default=100, help="how deep the tree is printed")
    parser.add_argument("-t", "--threshold", type=float, default=0.0, help="leave out nodes below this share")
    parser.add_argument("-f", "--format", choices=("full", "file_function"), help="how long names are")
    parser.add_argument("--print-sorted", action="store_true", help="and the kernels by the first metric")
    given = parser.parse_args(arguments)
    try:
        if given.list:
            print("\n".join(sorted(names_below(read(given.file)[0]))))
            return 0
        metrics = given.metrics.split(",")
        tree, metrics = parse(metrics, given.file, given.include, given.exclude, given.threshold)
        print_tree(tree, metrics, given.depth, given.format, given.print_sorted)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"error: {cannot('read', given.file, error)}", file=sys.stderr)
        return 1
    except (ValueError, re.error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    from tilewright._output import run_command

    sys.exit(run_command(main, sys.argv[1:]))
