"""``python -m tilewright.profiler.viewer -m time/ms profile.hatchet``: the tree of a session on the terminal, as
``proton-viewer`` prints it, without other packages.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

_TIMES = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_SIZES = {"": 1.0, "g": 1e9, "t": 1e12}


def read(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tree in a file, and its devices."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    if not isinstance(content, list) or not content or "frame" not in content[0]:
        raise ValueError(f"{path} is no profile: expected the list that finalize() writes")
    return content[0], content[1] if len(content) > 1 else {}


def total(node: dict[str, Any], name: str) -> float:
    """A metric of a node, with all below it."""
    own = node["metrics"].get(name, 0)
    return (own if isinstance(own, (int, float)) else 0) + sum(
        total(child, name) for child in node["children"]
    )


def metric(node: dict[str, Any], name: str) -> float:
    """A metric as ``-m`` names it: ``time/ms``, ``avg_time/us``, ``count``, ``gbyte/s``, ``tflop16/s``, ``flops``."""
    base, _, unit = name.partition("/")
    nanoseconds = total(node, "time (ns)")
    if base in ("time", "avg_time", "cpu_time"):
        if unit not in _TIMES:
            raise ValueError(f"unknown unit in '{name}': it is one of {', '.join(_TIMES)}")
        value = total(node, "cpu_time (ns)") if base == "cpu_time" else nanoseconds
        count = total(node, "count") or 1
        return value / _TIMES[unit] / (count if base == "avg_time" else 1)
    for prefix, size in _SIZES.items():
        rest = base.removeprefix(prefix)
        if unit == "s" and base.startswith(prefix) and (rest == "byte" or rest.startswith("flop")):
            amount = total(node, rest.replace("byte", "bytes").replace("flop", "flops", 1))
            return amount / size / (nanoseconds / 1e9) if nanoseconds else 0.0
    return total(node, name)


def format_tree(root: dict[str, Any], metrics: list[str], depth: int = 100, threshold: float = 0.0) -> str:
    """The tree as text, a line a node, with what each metric is including the nodes below."""
    lines = [" ".join(metrics)]
    whole = metric(root, metrics[0])

    def add(node: dict[str, Any], before: str, own: str, left: int) -> None:
        values = " ".join(f"{metric(node, name):.3f}" for name in metrics)
        lines.append(f"{own}{values} {node['frame']['name']}")
        if left == 0:
            return
        kept = [
            child for child in node["children"] if not whole or metric(child, metrics[0]) >= threshold * whole
        ]
        kept.sort(key=lambda child: -metric(child, metrics[0]))
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
    """The command."""
    parser = argparse.ArgumentParser(
        prog="tilewright.profiler.viewer", description="Prints a profile as a tree."
    )
    parser.add_argument("file", help="what finalize() has written")
    parser.add_argument(
        "-m", "--metrics", default="time/ms", help="time/ms,avg_time/us,count,gbyte/s,tflop16/s"
    )
    parser.add_argument("-d", "--depth", type=int, default=100, help="how deep the tree is printed")
    parser.add_argument("-t", "--threshold", type=float, default=0.0, help="leave out nodes below this share")
    given = parser.parse_args(arguments)
    try:
        root, _ = read(given.file)
        print(format_tree(root, given.metrics.split(","), given.depth, given.threshold), end="")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
