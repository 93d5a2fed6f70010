"""``triton.testing.perf_report``: measures a function over a range of arguments, and writes a table, CSV, PNG and HTML.

pandas makes the data frame and matplotlib the plot. Without pandas there is no data frame, but the table and the CSV
are written; without matplotlib a warning is printed in place of the plot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any


class Benchmark:
    """The arguments that a benchmark varies, and the style of its plot.

    The function is called with each of ``x_vals`` as the arguments ``x_names``, a tuple for several, and with each of
    ``line_vals`` as ``line_arg``; ``args`` are passed as they are.
    """

    def __init__(
        self,
        x_names: list[str],
        x_vals: list[Any],
        line_arg: str,
        line_vals: list[Any],
        line_names: list[str],
        plot_name: str,
        args: dict[str, Any],
        xlabel: str = "",
        ylabel: str = "",
        x_log: bool = False,
        y_log: bool = False,
        styles: Sequence[Any] | None = None,
    ) -> None:
        self.x_names = x_names
        self.x_vals = x_vals
        self.x_log = x_log
        self.line_arg = line_arg
        self.line_vals = line_vals
        self.line_names = line_names
        self.y_log = y_log
        self.styles = styles
        self.xlabel = xlabel
        self.ylabel = ylabel
        self.plot_name = plot_name
        self.args = args


class _Table:
    """The numbers of a benchmark, in columns with names: first those of the lines, then their lower and upper ends."""

    def __init__(self, bench: Benchmark) -> None:
        self.bench = bench
        ends = [f"{name}{end}" for end in ("-min", "-max") for name in bench.line_names]
        self.columns = [*bench.x_names, *bench.line_names, *ends]
        self.rows: list[list[Any]] = []

    def column(self, name: str) -> list[Any]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def shown(self) -> tuple[list[str], list[list[Any]]]:
        """The columns and rows that are printed and saved: those of the ends of intervals are left out."""
        count = len(self.bench.x_names) + len(self.bench.line_names)
        return self.columns[:count], [row[:count] for row in self.rows]


class Mark:
    """A function with its benchmarks."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | list[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function itself."""
        return self.fn(*args, **kwargs)

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Measures; shows the plots, prints the tables, and saves ``<plot_name>.png``, ``.csv`` and ``results.html``.

        With ``return_df``, the result is the data frame of each benchmark, or the one of the only one.
        ``diff_col=True`` adds a column with the difference of the second line from the first; ``save_precision``
        is the digits in the file, six of them.
        """
        is_single = isinstance(self.benchmarks, Benchmark)
        benchmarks: list[Benchmark] = [self.benchmarks] if is_single else self.benchmarks  # type: ignore[assignment,list-item]
        if return_df:
            _pandas(is_needed=True)
        if save_path:
            os.makedirs(save_path, exist_ok=True)
        results = [
            self._run(bench, os.fspath(save_path), show_plots, print_data, **kwargs) for bench in benchmarks
        ]
        if save_path:
            images = "".join(f'<image src="{bench.plot_name}.png"/>\n' for bench in benchmarks)
            with open(os.path.join(save_path, "results.html"), "w", encoding="utf-8") as html:
                html.write(f"<html><body>\n{images}</body></html>\n")
        if not return_df:
            return None
        return results[0] if is_single else results

    def _run(
        self,
        bench: Benchmark,
        save_path: str,
        show_plots: bool,
        print_data: bool,
        diff_col: bool = False,
        save_precision: int = 6,
        **kwargs: Any,
    ) -> Any:
        table = self._measure(bench, kwargs)
        if bench.plot_name and (show_plots or save_path):
            _plot(table, save_path, show_plots)
        columns, rows = table.shown()
        if diff_col and len(bench.line_names) == 2:
            columns = [*columns, "Diff"]
            rows = [[*row, row[-1] - row[-2]] for row in rows]
        pandas = _pandas()
        frame = None if pandas is None else pandas.DataFrame(rows, columns=columns)
        if print_data:
            print(bench.plot_name + ":")
            print(_text(columns, rows) if frame is None else frame.to_string())
        if save_path:
            path = os.path.join(save_path, f"{bench.plot_name}.csv")
            if frame is None:
                _write_csv(path, columns, rows, save_precision)
            else:
                frame.to_csv(path, float_format=f"%.{save_precision}f", index=False)
        return frame

    def _measure(self, bench: Benchmark, kwargs: dict[str, Any]) -> _Table:
        table = _Table(bench)
        for x in bench.x_vals:
            values = list(x) if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            if len(values) != len(bench.x_names):
                raise ValueError(f"expected {len(bench.x_names)} values for {bench.x_names}, got {x}")
            given = dict(zip(bench.x_names, values, strict=True))
            middles, lows, highs = [], [], []
            for line in bench.line_vals:
                found = self.fn(**given, **{bench.line_arg: line}, **bench.args, **kwargs)
                middle, low, high = found if isinstance(found, (list, tuple)) else (found, None, None)
                middles.append(middle)
                lows.append(low)
                highs.append(high)
            table.rows.append([*values, *middles, *lows, *highs])
        return table


def perf_report(benchmarks: Benchmark | list[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Adds measurements to a function: ``@perf_report(Benchmark(...))``, then ``function.run(print_data=True)``.

    The function returns the value to plot, or that with the lower and the upper end of a band around it.
    """
    return lambda fn: Mark(fn, benchmarks)


def _pandas(is_needed: bool = False) -> Any:
    try:
        import pandas
    except ImportError as error:
        if is_needed:
            raise ImportError(
                "return_df=True returns data frames of pandas, which is not installed: pip install pandas"
            ) from error
        return None
    return pandas


def _plot(table: _Table, save_path: str, show_plots: bool) -> None:
    """Draws each line, with a band if the function returns one."""
    try:
        import matplotlib.pyplot as pyplot
    except ImportError:
        import warnings

        warnings.warn(
            f"benchmark '{table.bench.plot_name}' is measured, and its plot is not drawn: matplotlib is not "
            "installed (pip install matplotlib)",
            stacklevel=4,
        )
        return
    bench = table.bench
    figure = pyplot.figure()
    axes = pyplot.subplot()
    first = bench.x_names[0]
    places = table.column(first)
    for number, name in enumerate(bench.line_names):
        style = {}
        if bench.styles:
            style = {"color": bench.styles[number][0], "linestyle": bench.styles[number][1]}
        (line,) = axes.plot(places, _numbers(table.column(name)), label=name, **style)
        low, high = _numbers(table.column(f"{name}-min")), _numbers(table.column(f"{name}-max"))
        if any(a == a and b == b for a, b in zip(low, high, strict=True)):
            axes.fill_between(places, low, high, alpha=0.15, color=line.get_color())
    axes.legend()
    axes.set_xlabel(bench.xlabel or first)
    axes.set_ylabel(bench.ylabel)
    axes.set_xscale("log" if bench.x_log else "linear")
    axes.set_yscale("log" if bench.y_log else "linear")
    if show_plots:
        pyplot.show()
    if save_path:
        figure.savefig(os.path.join(save_path, f"{bench.plot_name}.png"))
    pyplot.close(figure)


def _numbers(values: list[Any]) -> list[float]:
    return [float("nan") if value is None else float(value) for value in values]


def _text(columns: list[str], rows: list[list[Any]]) -> str:
    """Returns the table as text. Numbers of a column have equally many digits, and columns are aligned at the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    indices = [str(number) for number in range(len(rows))]
    margin = max(map(len, indices), default=0)
    widths = [max(len(name), *(len(row[i]) for row in cells), 0) for i, name in enumerate(columns)]
    lines = [
        " " * margin + "".join(f"  {name:>{width}}" for name, width in zip(columns, widths, strict=True))
    ]
    for index, row in zip(indices, cells, strict=True):
        parts = "".join(f"  {cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append(index.ljust(margin) + parts)
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "NaN"
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _write_csv(path: str, columns: list[str], rows: list[list[Any]], precision: int) -> None:
    import csv

    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(
                f"{value:.{precision}f}" if isinstance(value, float) else "" if value is None else value
                for value in row
            )
