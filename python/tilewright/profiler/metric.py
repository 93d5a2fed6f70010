"""Metrics of scopes and launches: the names that count operations, and the values of those that tensors hold."""

from __future__ import annotations

from typing import Any

from tilewright.profiler._session import as_number

FLOPS_WIDTHS = (8, 16, 32, 64)
"""The operand widths in bits that ``flops8`` to ``flops64`` count operations for; ``flops`` is for any width."""


def transform_tensor_metrics(metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the metrics as numbers and texts, and those that only a device knows: none, tensors are read here."""
    return {name: as_number(value) for name, value in metrics.items()}, {}


def set_metric_kernels() -> None:
    """Does nothing: the host reads tensors, so no kernels copy metrics on a device."""
