"""Losses of rows of logits."""

from losskit.cross_entropy import cross_entropy

__all__ = ["cross_entropy"]
