"""``triton.tools.ragged_tma``: blocks of slices of a tensor whose lengths differ, such as the tokens of each expert.

A slice is ``slice_size`` rows from ``slice_off`` on, along one axis. Elements of a block beyond the end of its slice
are loaded as zero and are not stored, though the tensor goes on there.
"""

# The functions are written in the kernel language, which types have no part in.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined, assignment, func-returns-value"

from __future__ import annotations

from typing import Any

from tilewright import language as tl
from tilewright.runtime.jit import jit
from tilewright.tools.tensor_descriptor import TensorDescriptor


def create_ragged_descriptor(T: Any, block_shape: list[int], ragged_dim: int = 0) -> TensorDescriptor:
    """The descriptor of a tensor that the functions below access by slices along an axis."""
    rank = len(T.shape)
    if not -rank <= ragged_dim < rank:
        raise ValueError(f"ragged_dim is an axis of the tensor, which has {rank}; it is {ragged_dim}")
    return TensorDescriptor.from_tensor(T, list(block_shape))


@jit
def to_ragged_indices(slice_off, slice_size, row):
    """The row of the tensor for a row of a slice, and the row at which the slice ends."""
    return slice_off + row, slice_off + slice_size


@jit
def _of_slice(TMA, slice_off, slice_size, ragged_dim: tl.constexpr):
    """Returns the tensor up to the end of a slice."""
    axis: tl.constexpr = ragged_dim % len(TMA.block_shape)
    shape = TMA.shape
    end = tl.minimum(shape[axis], slice_off + slice_size)
    shape = shape[:axis] + (end,) + shape[axis + 1 :]  # noqa: RUF005
    return tl.make_tensor_descriptor(TMA.base, shape, TMA.strides, TMA.block_shape)


@jit
def _in_slice(TMA, slice_off, coords, ragged_dim: tl.constexpr):
    """The coordinates in the tensor at which a block begins."""
    axis: tl.constexpr = ragged_dim % len(TMA.block_shape)
    # In a kernel that Python runs, the coordinates may be a list.
    before, after = tuple(coords[:axis]), tuple(coords[axis + 1 :])
    return before + (coords[axis] + slice_off,) + after  # noqa: RUF005


@jit
def load_ragged(TMA, slice_off, slice_size, coords, ragged_dim: tl.constexpr = 0):
    """Loads the block of a slice at ``coords``, which are counted from the beginning of the slice."""
    return _of_slice(TMA, slice_off, slice_size, ragged_dim).load(
        _in_slice(TMA, slice_off, coords, ragged_dim)
    )


@jit
def store_ragged(TMA, slice_off, slice_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Stores the block of a slice at ``coords``."""
    _of_slice(TMA, slice_off, slice_size, ragged_dim).store(
        _in_slice(TMA, slice_off, coords, ragged_dim), data
    )


@jit
def atomic_add_ragged(TMA, slice_off, slice_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Adds to the block of a slice at ``coords``."""
    whole = _of_slice(TMA, slice_off, slice_size, ragged_dim)
    whole.atomic_add(_in_slice(TMA, slice_off, coords, ragged_dim), data)
