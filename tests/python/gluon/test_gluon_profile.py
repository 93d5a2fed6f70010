"""The cost of layouts: the accesses to memory that `tilewright profile` counts for their example."""

from __future__ import annotations

import json

from conftest import ROOT


def test_counts_of_layouts(run, tmp_path):
    """A lane in each row touches more sectors than lanes along a row, and swizzled memory has fewer conflicts."""
    report = tmp_path / "profile.json"
    example = ROOT / "examples" / "50_gluon_layouts.py"
    done = run("-m", "tilewright", "profile", "--device", "sim:sm_90", "--json", report, example)
    assert done.code == 0, done.err
    totals = {}
    for kernel in json.loads(report.read_text())["kernels"]:
        totals.setdefault(kernel["name"], []).append(kernel["sim"]["total"])
    (rows,), (columns,) = totals["double_rows"], totals["double_columns"]
    assert rows["read"] == columns["read"] == 4 * 80 * 112
    assert rows["idealSectors"] == columns["idealSectors"] == 2 * 80 * 112 // 8
    # Each element is a sector of its own: eight times as many as those that hold them.
    assert columns["sectors"] == 8 * columns["idealSectors"]
    assert 2 * rows["sectors"] <= columns["sectors"]
    assert len(totals["transpose"]) == 2
    swizzled, plain = sorted(total["wavefronts"] for total in totals["transpose"])
    assert swizzled < plain
