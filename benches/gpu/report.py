"""The lines of the result, and how they are shown: on the terminal, as Markdown, as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from gpu.sides import SIDES, TILEWRIGHT, TORCH, TRITON

DRAW = 0.02
"""A ratio below the required one by this much still passes: two runs of one kernel differ by as much."""

SCALES = {"GB/s": 1e9, "TFLOP/s": 1e12, "µs": 1.0, "ms": 1e-3}
"""How much work a second is one of the unit; how much a microsecond is of a unit of time."""


@dataclass(frozen=True)
class Row:
    """One case at one size: for each side the microseconds a call of each round, or what went wrong."""

    case: str
    size: str
    unit: str
    work: float
    """Bytes or floating-point operations of a call; 0 where the time itself is the figure."""
    asked: float | None
    """The required ratio to the official triton."""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    asked_torch: float | None = None
    """The required ratio to torch."""

    def time(self, side: str) -> float | None:
        """Microseconds a call: the median of the rounds."""
        rounds = self.rounds.get(side)
        return statistics.median(rounds) if rounds else None

    def figure(self, side: str) -> float | None:
        """The time or the rate, in the row's unit."""
        time = self.time(side)
        if time is None:
            return None
        return self.work / (time * 1e-6) / SCALES[self.unit] if self.work else time * SCALES[self.unit]

    def ratios(self, peer: str) -> list[float]:
        """Time of the peer / time of tilewright, round by round: more is better."""
        ours, theirs = self.rounds.get(TILEWRIGHT, []), self.rounds.get(peer, [])
        return [b / a for a, b in zip(ours, theirs, strict=False)]

    def ratio(self, peer: str) -> float | None:
        """The median of the ratios."""
        ratios = self.ratios(peer)
        return statistics.median(ratios) if ratios else None

    @property
    def passed(self) -> bool:
        """Returns whether the row reaches its required ratios; a row without such ratios always does."""
        wanted = {TRITON: self.asked, TORCH: self.asked_torch}
        if set(wanted.values()) == {None}:
            return True
        return TILEWRIGHT in self.rounds and all(
            (self.ratio(peer) or 0.0) >= asked - DRAW
            for peer, asked in wanted.items()
            if asked is not None and peer in self.rounds
        )


@dataclass(frozen=True)
class Check:
    """A part of the suite that is no benchmark, and how it ended."""

    name: str
    passed: bool
    outcome: str


def first_line(error: BaseException | str) -> str:
    """The kind of an error and its first line, cut to fit into a table."""
    text = error if isinstance(error, str) else str(error)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no message")
    kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
    return (kind + line)[:160]


# --- Text ---


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(row: Row, peer: str) -> str:
    ratios = row.ratios(peer)
    if not ratios:
        return "–"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _mark(passed: bool) -> str:
    return "✓" if passed else "✗"


def _asked(row: Row) -> str:
    wanted = _wanted(row)
    return f"{wanted} {_mark(row.passed)}" if wanted else ""


def _wanted(row: Row) -> str:
    """The required ratios."""
    beside = [] if row.asked is None else [f"{row.asked}"]
    return ", ".join(beside if row.asked_torch is None else [*beside, f"{row.asked_torch} of torch"])


def sizes_markdown(rows: Iterable[Row]) -> str:
    """Every size of every case, as a Markdown table."""
    lines = [
        "| case | size | unit | torch | triton | tilewright | µs | beside triton | beside torch | required |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = " | ".join(_number(row.figure(side)) for side in SIDES)
        ratios = f"{_ratio(row, TRITON)} | {_ratio(row, TORCH)}"
        lines.append(
            f"| {row.case} | {row.size} | {row.unit} | {figures} | {_number(row.time(TILEWRIGHT))} | {ratios} "
            f"| {_asked(row)} |"
        )
        lines += [
            f"| {row.case} | {row.size} | {side} failed: {error.replace('|', '/')} | | | | | | | |"
            for side, error in row.errors.items()
        ]
    return "\n".join(lines) + "\n"


SUMMARY = (
    "",
    "case",
    "sizes",
    "unit",
    "torch",
    "triton",
    "tilewright",
    "beside triton",
    "beside torch",
    "asked",
)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """One line a case: the figures of its last size, the median and the worst ratio of all, and the first error.

    If the figure is a time, each size is a line.
    """
    lines: list[tuple[str, ...]] = []
    for name in dict.fromkeys(row.case for row in rows):
        group = [row for row in rows if row.case == name]
        parts = [group] if group[0].work else [[row] for row in group]
        lines += [_summary_line(name, part) for part in parts]
        for side in SIDES:
            failed = [row for row in group if side in row.errors]
            if failed:
                where = f"{len(failed)} of {len(group)} sizes, first {failed[0].size}"
                lines.append(("", f"  {side} failed ({where}): {failed[0].errors[side]}"))
    return lines


def _summary_line(name: str, group: list[Row]) -> tuple[str, ...]:
    passed = sum(row.passed for row in group)
    wanted = _wanted(group[0])
    asked = f"{wanted} at {passed} of {len(group)}" if wanted else ""
    last = group[-1]
    sizes = last.size if len(group) == 1 else f"{group[0].size} to {last.size}"
    figures = (_number(last.figure(side)) for side in SIDES)
    worst = (_worst(group, peer) for peer in (TRITON, TORCH))
    mark = _mark(passed == len(group)) if wanted else ""
    return (mark, name, sizes, last.unit, *figures, *worst, asked)


def _worst(group: list[Row], peer: str) -> str:
    found = [(ratio, row.size) for row in group if (ratio := row.ratio(peer)) is not None]
    if not found:
        return "–"
    middle = statistics.median(ratio for ratio, _ in found)
    low, size = min(found)
    return f"{middle:.2f}" if len(found) == 1 else f"{middle:.2f}, worst {low:.2f} at {size}"


def columns(lines: list[tuple[str, ...]]) -> str:
    """Lines in columns; a line that has fewer than the first is text after its columns."""
    count = len(lines[0])
    full = [line for line in lines if len(line) == count]
    widths = [max(len(line[i]) for line in full) for i in range(count)]
    pad: Callable[[tuple[str, ...]], str] = lambda line: "  ".join(  # noqa: E731 - as long as its use
        cell.ljust(width) for cell, width in zip(line, widths, strict=False)
    )
    return "\n".join(pad(line).rstrip() for line in lines) + "\n"


def terminal(checks: list[Check], rows: list[Row]) -> str:
    """The result for people: what was checked, one line a case."""
    parts = [columns([("", "part", "outcome"), *((_mark(c.passed), c.name, c.outcome) for c in checks)])]
    if rows:
        parts.append(columns([SUMMARY, *summary(rows)]))
        parts.append(
            "Figures of the last size; ratios are time of the peer / time of tilewright, more is better.\n"
        )
    return "\n".join(parts)


def markdown(checks: list[Check], rows: list[Row]) -> str:
    """The same with every size."""
    lines = ["| | part | outcome |", "|---|---|---|"]
    lines += [
        f"| {_mark(check.passed)} | {check.name} | {check.outcome.replace('|', '/')} |" for check in checks
    ]
    return "\n".join(lines) + "\n\n" + sizes_markdown(rows)


def as_json(checks: list[Check], rows: list[Row]) -> dict[str, Any]:
    """Everything, with the time of each round."""
    medians = [{f"{peer}_ratio": row.ratio(peer) for peer in (TRITON, TORCH)} for row in rows]
    return {
        "checks": [asdict(check) for check in checks],
        "rows": [{**asdict(row), **more} for row, more in zip(rows, medians, strict=True)],
    }
