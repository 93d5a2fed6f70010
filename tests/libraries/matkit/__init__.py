"""Matrix products with an epilogue."""

from matkit.linear import linear

__all__ = ["linear"]
