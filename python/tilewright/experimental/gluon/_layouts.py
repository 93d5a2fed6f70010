"""Layouts of Gluon as values that the host makes and passes to kernels. Computing with one raises an error."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from tilewright import _native
from tilewright._native import Missing
from tilewright.experimental.gluon._runtime import HINT
from tilewright.language._constexpr import _unwrap_if_constexpr, constexpr_type
from tilewright.runtime.jit import constexpr_function


def _absent(path: str) -> Missing:
    """A method that this version does not have."""
    return Missing(f"triton.experimental.gluon.language.{path}", HINT)


def _text_of(part: Any) -> str:
    """A field of a layout as the compiler reads it."""
    if isinstance(part, _Value):
        return part._text
    if isinstance(part, (list, tuple)):
        return f"[{', '.join(_text_of(item) for item in part)}]"
    return repr(_unwrap_if_constexpr(part))


def _from_text(text: str) -> Any:
    """The layout that an expression of the compiler makes."""
    return eval(text, {name: value for name, value in globals().items() if name.endswith("Layout")})


def _plain(part: Any) -> Any:
    """A field without compile-time values; a list that a kernel writes is a tuple, and becomes a list."""
    part = _unwrap_if_constexpr(part)
    return [_plain(item) for item in part] if isinstance(part, (list, tuple)) else part


class _Value:
    """A value that equals its fields; fields that are compile-time values are unwrapped."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, each.name, _plain(getattr(self, each.name)))

    def __hash__(self) -> int:
        # The fields are lists.
        return hash(repr(self))

    @property
    def type(self) -> constexpr_type:
        """The type of this one value in a kernel."""
        return constexpr_type(self)

    @cached_property
    def _text(self) -> str:
        """The expression that makes the layout, which the compiler reads. Every launch reads it."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        is_missing = {TensorMemoryLayout: "fp4_padded", PaddedSharedLayout: "cga_layout"}
        for kind, name in is_missing.items():
            if isinstance(self, kind) and parts.get(name):
                raise _native.not_available(
                    f"{name} of {type(self).__name__} is not available in this version of tilewright", HINT
                )
        # No program can observe the alignment: the compiler aligns memory as its uses need.
        parts.pop("alignment", None)
        if isinstance(self, TensorMemoryLayout):
            parts.pop("fp4_padded")
            if not self.two_ctas and not self.cga_layout:
                del parts["two_ctas"], parts["cga_layout"]
        elif not isinstance(self, DistributedLinearLayout):
            # Layouts for one block have no bases of blocks, and then nothing that precedes these.
            names = ("cga_layout", "block_bases")
            bases = [parts.pop(name) for name in names if name in parts]
            padded = [parts.pop(name) for name in ("fp4_padded",) if name in parts]
            if any(bases) or any(padded):
                parts |= {
                    str(at): part for at, part in enumerate([*padded, *(basis for basis in bases if basis)])
                }
        own = SwizzledSharedLayout if isinstance(self, SwizzledSharedLayout) else type(self)
        return f"{own.__name__}({', '.join(map(_text_of, parts.values()))})"


class DistributedLayout(_Value):
    """The map from the registers of each thread to the elements of a tile."""

    def format_tensor_view(self, shape: Any) -> str:
        """A table of the elements of a tile of this shape, each with the warps, lanes and registers that hold it."""
        return _native.gluon_layout_table(self._text, list(shape))

    def format_hardware_view(self, shape: Any) -> str:
        """A line for each warp, lane and register, with the element that it holds."""
        return _native.gluon_layout_places(self._text, list(shape))

    mangle = _absent("DistributedLayout.mangle")

    @property
    def rank(self) -> int:
        """The number of axes, if the layout has it."""
        raise _native.not_available(
            f"the rank of a {type(self).__name__} is not available in this version of tilewright", HINT
        )


class SharedLayout(_Value):
    """The map from the elements of a tile to shared memory."""

    def format_tensor_view(self, shape: Any) -> str:
        """A table of the elements of a buffer of this shape, each with its offset."""
        return _native.gluon_layout_table(self._text, list(shape), getattr(self, "element_bitwidth", 32))

    def format_hardware_view(self, shape: Any) -> str:
        """A line for each offset, with the element there."""
        return _native.gluon_layout_places(self._text, list(shape), getattr(self, "element_bitwidth", 32))

    mangle = _absent("SharedLayout.mangle")


@dataclass(frozen=True)
class AutoLayout(DistributedLayout):
    """A layout that the compiler chooses: that of the tiles which the tile meets, or of ``set_auto_layout``."""

    __hash__ = _Value.__hash__


@dataclass(frozen=True)
class CoalescedLayout(DistributedLayout):
    """A layout that the compiler chooses for accesses to memory, as ``AutoLayout``."""

    __hash__ = _Value.__hash__


@dataclass(frozen=True)
class BlockedLayout(DistributedLayout):
    """A layout of blocks: a thread holds a block of elements, a warp one of threads, and a program one of warps.

    ``size_per_thread``, ``threads_per_warp`` and ``warps_per_cta`` have a power of two for each axis, and ``order`` has
    the axes, the fastest one first. A larger tile repeats the layout, and a smaller one has several holders of an
    element.
    """

    size_per_thread: Any
    threads_per_warp: Any
    warps_per_cta: Any
    order: Any
    cga_layout: Any = field(default_factory=list)

    __hash__ = _Value.__hash__
    rank = property(lambda self: len(self.order))


@dataclass(frozen=True)
class SliceLayout(DistributedLayout):
    """The layout of a tile with one axis less: the axis ``dim`` of the layout ``parent`` is gone.

    It is that of a reduction along the axis, and of what ``expand_dims`` (``x[:, None]``) takes.
    """

    dim: Any
    parent: Any

    __hash__ = _Value.__hash__
    rank = property(lambda self: self.parent.rank - 1)

    @property
    def cga_layout(self) -> Any:
        """The bases of the blocks of a cluster, without the removed axis."""
        return [[*basis[: self.dim], *basis[self.dim + 1 :]] for basis in self.parent.cga_layout]


@dataclass(frozen=True)
class DistributedLinearLayout(DistributedLayout):
    """A linear layout: the coordinates that each bit of the register, the lane and the warp contributes.

    ``block_bases`` are those of the blocks of a cluster, and empty for one block; ``shape`` is that of the tile.
    """

    reg_bases: Any
    lane_bases: Any
    warp_bases: Any
    block_bases: Any
    shape: Any

    __hash__ = _Value.__hash__
    rank = property(lambda self: len(self.shape))


@dataclass(frozen=True)
class DotOperandLayout(DistributedLayout):
    """The layout of an operand in registers of a dot whose result has the layout ``parent``.

    ``operand_index`` is 0 for A and 1 for B, and ``k_width`` is the number of elements of 32 bits: 2 for fp16.
    """

    operand_index: Any
    parent: Any
    k_width: Any

    __hash__ = _Value.__hash__
    rank = property(lambda self: self.parent.rank)
    cga_layout = property(lambda self: self.parent.cga_layout)


@dataclass(frozen=True)
class NVMMADistributedLayout(DistributedLayout):
    """The layout of the accumulator of a dot on tensor cores of NVIDIA.

    ``version`` is [2, 0] for ``mma_v2`` and [3, 0] for ``warpgroup_mma``; ``instr_shape`` is [16, 8] for the first,
    and [16, N, K] for the second, where N is the width of the instruction and K has 32 bytes.
    """

    version: Any
    warps_per_cta: Any
    instr_shape: Any
    cga_layout: Any = field(default_factory=list)

    __hash__ = _Value.__hash__
    rank = property(lambda self: len(self.warps_per_cta))


@dataclass(frozen=True)
class AMDMFMALayout(DistributedLayout):
    """The layout of the result of a dot on matrix cores of AMD's CDNA."""

    version: Any
    instr_shape: Any
    transposed: Any
    warps_per_cta: Any
    element_bitwidth: Any = None
    tiles_per_warp: Any = None
    cga_layout: Any = field(default_factory=list)

    __hash__ = _Value.__hash__
    rank = property(lambda self: len(self.warps_per_cta))


@dataclass(frozen=True)
class AMDWMMALayout(DistributedLayout):
    """The layout of the result of a dot on matrix cores of AMD's RDNA."""

    version: Any
    transposed: Any
    warp_bases: Any
    reg_bases: Any = None
    instr_shape: Any = None
    cga_layout: Any = field(default_factory=list)
    rank: Any = None

    __hash__ = _Value.__hash__


@dataclass(frozen=True)
class NVMMASharedLayout(SharedLayout):
    """The layout of tensor copies and of operands of ``warpgroup_mma``, with swizzled rows.

    ``swizzle_byte_width`` is 0, 32, 64 or 128, and at most the bytes of a row; ``transposed`` makes the first axis the
    fastest. ``fp4_padded`` is for bytes of two 4-bit elements that a dot with scales reads beside elements of 8 bits.
    Each 8 bytes are followed by 8 unused ones, and ``swizzle_byte_width`` is 128.
    """

    swizzle_byte_width: Any
    element_bitwidth: Any
    rank: Any = 2
    transposed: Any = False
    fp4_padded: Any = False
    cga_layout: Any = field(default_factory=list)

    __hash__ = _Value.__hash__

    @staticmethod
    @constexpr_function
    def get_default_for(
        block_shape: Any,
        dtype: Any,
        transposed: bool = False,
        fp4_padded: bool = False,
        cga_layout: Any = None,
    ) -> NVMMASharedLayout:
        """The layout with the longest swizzled rows that fit blocks of this shape and element type.

        Blocks of fewer than 8 rows are not swizzled: the pattern has 8 rows. With ``cga_layout``, the rows and columns
        are those in one block of the cluster.
        """
        bits = 8 if fp4_padded else _unwrap_if_constexpr(dtype).primitive_bitwidth
        extents = [_unwrap_if_constexpr(extent) for extent in block_shape]
        for basis in cga_layout or []:
            extents = [extent // 2 if part else extent for extent, part in zip(extents, basis, strict=True)]
        columns = extents[0 if transposed else -1]
        rows = math.prod(extents) // columns
        widths = (128, 64, 32) if rows >= 8 else ()
        widest = next(
            (width for width in widths if columns * bits // 8 * (2 if fp4_padded else 1) >= width), 0
        )
        return NVMMASharedLayout(widest, bits, len(extents), transposed, fp4_padded, cga_layout or [])


@dataclass(frozen=True)
class SwizzledSharedLayout(SharedLayout):
    """Rows whose vectors are permuted from row to row, so that columns have no bank conflicts.

    A vector has ``vec`` elements; the permutation changes after ``per_phase`` rows, and repeats after ``max_phase``
    changes. With (1, 1, 1) nothing is permuted. ``order`` has the axes, the fastest one first.
    """

    vec: Any
    per_phase: Any
    max_phase: Any
    order: Any
    cga_layout: Any = field(default_factory=list)

    __hash__ = _Value.__hash__


class MBarrierLayout(SwizzledSharedLayout):
    """The layout of the memory of mbarriers: an int64 for each."""

    def __init__(self, cga_layout: Any = None) -> None:
        super().__init__(1, 1, 1, [0], cga_layout or [])

    @staticmethod
    @constexpr_function
    def multicta(num_ctas: int, two_cta: bool = False) -> MBarrierLayout:
        """The layout of an mbarrier for each block of a cluster or, with ``two_cta``, for each pair of blocks."""
        blocks, skipped = _unwrap_if_constexpr(num_ctas), int(_unwrap_if_constexpr(two_cta))
        if blocks <= 0 or blocks & (blocks - 1) or blocks < 1 + skipped:
            raise AssertionError(f"a cluster has a power of two of blocks, found {blocks}")
        bits = blocks.bit_length() - 1
        return MBarrierLayout([[0]] * skipped + [[1 << bit] for bit in range(bits - skipped)])


@dataclass(frozen=True)
class PaddedSharedLayout(SharedLayout):
    """Shared memory with padding, so that columns have no bank conflicts.

    ``interval_padding_pairs`` is a list of intervals, each with its padding in elements, which follows each interval.
    ``offset_bases`` has the coordinates that each bit of the offset without padding contributes; ``cga_layout`` is for
    clusters, and empty.
    """

    interval_padding_pairs: Any
    offset_bases: Any
    cga_layout: Any
    shape: Any

    __hash__ = _Value.__hash__

    def __post_init__(self) -> None:
        super().__post_init__()
        self.verify()

    def verify(self) -> None:
        """Raises an error unless the padding is a list of different intervals, each with its padding."""
        pairs: list[Any] = [tuple(map(_unwrap_if_constexpr, pair)) for pair in self.interval_padding_pairs]
        sizes = [size for pair in pairs for size in pair]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise AssertionError(f"padding is a list of pairs of an interval and its padding, not {pairs}")
        if any(size <= 0 or size & (size - 1) for size in sizes):
            raise AssertionError(f"intervals and paddings are powers of two, found {pairs}")
        if len({interval for interval, _ in pairs}) < len(pairs):
            raise AssertionError(f"an interval has two paddings: {pairs}")

    @staticmethod
    @constexpr_function
    def with_identity_for(
        interval_padding_pairs: Any, shape: Any, order: Any, cga_layout: Any = None
    ) -> PaddedSharedLayout:
        """The layout without reordering for a buffer of this shape, whose fastest axis is ``order[0]``."""
        extents = [_unwrap_if_constexpr(extent) for extent in shape]
        axes = [_unwrap_if_constexpr(axis) for axis in order]
        if len(extents) != len(axes) or any(extent & (extent - 1) for extent in extents):
            raise AssertionError(f"a shape of powers of two has an axis for each of {axes}, found {extents}")
        bases = [
            [1 << bit if other == axis else 0 for other in range(len(extents))]
            for axis in axes
            for bit in range(extents[axis].bit_length() - 1)
        ]
        return PaddedSharedLayout(interval_padding_pairs, bases, cga_layout or [], extents)


@dataclass(frozen=True)
class SharedLinearLayout(SharedLayout):
    """A linear layout of shared memory: the coordinates that each bit of the offset contributes."""

    offset_bases: Any
    block_bases: Any = field(default_factory=list)
    alignment: Any = 16

    __hash__ = _Value.__hash__

    @property
    def shape(self) -> list[int]:
        """The extents of the tile that the bases span."""
        bases = [*self.offset_bases, *self.block_bases]
        return [1 << max(step.bit_length() for step in axis) for axis in zip(*bases, strict=True)]


@dataclass(frozen=True)
class PartitionedSharedLayout(SharedLayout):
    """A layout of shared memory that is divided into partitions."""

    num_partitions: Any
    num_groups: Any
    partition_dim: Any
    partition_layout: Any

    __hash__ = _Value.__hash__


@dataclass(frozen=True)
class TensorMemoryLayout(_Value):
    """The layout of tensor memory: blocks of rows and columns, each row in a lane.

    ``block`` has 64 or 128 rows. ``col_stride`` is 1 for elements that share cells of 32 bits, and else the number of
    elements that a cell could hold: 1 for fp32, 2 for an accumulator of fp16.
    """

    block: Any
    col_stride: Any
    cga_layout: Any = field(default_factory=list)
    two_ctas: Any = False
    fp4_padded: Any = False

    __hash__ = _Value.__hash__

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "block", tuple(self.block))

    mangle = _absent("nvidia.blackwell.TensorMemoryLayout.mangle")


@dataclass(frozen=True)
class TensorMemoryScalesLayout(_Value):
    """The layout of the scales of a dot in tensor memory, each of 8 bits.

    Row r of a matrix of scales is in the lanes r mod 32 of each quarter of the lanes. A cell has four columns of it.
    """

    cga_layout: Any = field(default_factory=list)

    __hash__ = _Value.__hash__
    mangle = _absent("nvidia.blackwell.TensorMemoryScalesLayout.mangle")


@dataclass(frozen=True)
class RubinTensorMemoryScalesLayout(TensorMemoryScalesLayout):
    """The map from scales to tensor memory, with the order of their blocks."""

    block_rep_order: Any = "mnThenK"

    __hash__ = _Value.__hash__


@dataclass(frozen=True)
class CachePolicy(_Value):
    """How an access treats the caches."""

    cache_modifier: Any = None
    l1: Any = None
    l2: Any = None
    l2_prefetch_size: Any = None

    __hash__ = _Value.__hash__


@dataclass(frozen=True)
class FractionalEvictionPolicy(_Value):
    """One policy for a part of the lines, and another for the rest."""

    primary: Any
    fraction: Any
    secondary: Any = "evict_unchanged"

    __hash__ = _Value.__hash__


def to_linear_layout(layout: Any, shape: Any) -> Any:
    """The linear layout, as an object, of a tile or buffer of this shape with a layout."""
    layout, shape = _unwrap_if_constexpr(layout), [_unwrap_if_constexpr(extent) for extent in shape]
    bases = dict(_native.gluon_layout_bases(layout._text, shape, getattr(layout, "element_bitwidth", 32)))
    if isinstance(layout, SharedLayout):
        return SharedLinearLayout(bases["offset"], bases["block"])
    return DistributedLinearLayout(bases["register"], bases["lane"], bases["warp"], bases["block"], shape)


bases_per_dim = _absent("_layouts.bases_per_dim")
warps_per_cta = _absent("_layouts.warps_per_cta")
