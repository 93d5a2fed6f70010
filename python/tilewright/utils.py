"""``triton.utils`` of release 2.0: names that later releases have in ``triton``."""

from tilewright import MockTensor, TensorWrapper, cdiv, next_power_of_2, reinterpret

__all__ = ["MockTensor", "TensorWrapper", "cdiv", "next_power_of_2", "reinterpret"]
