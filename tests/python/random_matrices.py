"""Matrices of random programs: what is in memory, how a program reaches tiles of it, and what such accesses do.

Functions without a class stand in the files of programs too, which run by themselves.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch


def make_matrix(name, rows, columns, stride, dtype, fill="small", turned=False):
    """Rows and columns of a larger block of memory, NaN where no element is, as it lies in memory if turned."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    dtype = getattr(torch, dtype)
    values = {
        "small": lambda: torch.randint(-1, 2, (rows, columns), generator=generator),
        "zero": lambda: torch.zeros(rows, columns),
        "poison": lambda: torch.full(
            (rows, columns), 77 if dtype in (torch.int8, torch.int32) else float("nan")
        ),
    }[fill]()
    values = values.T if turned else values
    memory = torch.full((values.shape[0], stride), 77 if dtype in (torch.int8, torch.int32) else float("nan"))
    memory[:, : values.shape[1]] = values
    return memory.to(dtype)[:, : values.shape[1]]


def moved(tensor, device):
    """The tensor on a device, with what lies between its rows."""
    whole = tensor if tensor._base is None else tensor._base
    return whole.to(device).as_strided(tensor.shape, tensor.stride())


def make_line(name, count):
    """Numbers, one for each place."""
    return torch.randint(-1, 2, (count,), generator=torch.Generator().manual_seed(len(name))).float()


def make_order(count):
    """A permutation of numbers."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(count)).int()


@dataclass
class Matrix:
    """A matrix in memory, and how the program reaches its tiles."""

    name: str
    dtype: str
    block: tuple[int, int]
    extents: tuple[int, int]
    access: str = "pointers"
    is_turned: bool = False
    is_masked: tuple[bool, bool] = (False, False)
    """Whether rows, and columns, are compared with what is there."""
    other: int = 0
    padding: int = 0
    fill: str = "small"

    @property
    def memory(self) -> list[int]:
        """The extents in memory."""
        return list(self.extents[::-1] if self.is_turned else self.extents)

    @property
    def stride(self) -> int:
        columns = self.memory[1]
        return -(-columns // 16) * 16 + self.padding

    @property
    def stands_for(self) -> str:
        """The expression that makes it."""
        what = self.name, *self.extents, self.stride, self.dtype, self.fill, self.is_turned
        return f"make_matrix{what}"

    def values(self) -> torch.Tensor:
        """Its elements in binary64, as rows and columns."""
        memory = eval(self.stands_for).double()
        return memory.T if self.is_turned else memory

    def arguments(self) -> dict[str, str]:
        if self.access == "host":
            block = list(self.block[::-1] if self.is_turned else self.block)
            return {f"{self.name}_desc": f"TensorDescriptor.from_tensor({self.stands_for}, {block})"}
        found = {f"{self.name}_ptr": self.stands_for}
        if self.access == "gathered":
            found[f"{self.name}_order"] = f"make_order({self.extents[0]})"
        return found

    def ordered(self, first: str, second: str) -> str:
        return f"{second}, {first}" if self.is_turned else f"{first}, {second}"

    def offsets(self, rows: str, columns: str) -> str:
        if self.is_turned:
            return f"{rows}[:, None] + {columns}[None, :] * {self.stride}"
        return f"{rows}[:, None] * {self.stride} + {columns}[None, :]"

    def indices(self, row: str, column: str) -> str:
        """Lines that name the rows and columns of a tile."""
        name, (height, width) = self.name, self.block
        rows = f"{row} + tl.arange(0, {height})"
        wraps = f" % {self.extents[0]}" if self.access == "wrapped" else ""
        lines = f"{name}_r = ({rows}){wraps}\n{name}_c = {column} + tl.arange(0, {width})"
        if self.access == "gathered":
            lines += (
                f"\n{name}_g = tl.load({name}_order + {name}_r, mask={name}_r < {self.extents[0]}, other=0)"
            )
        return lines

    def mask(self) -> str:
        name, bounds = self.name, []
        if self.is_masked[0] and self.access != "wrapped":
            bounds.append(f"({name}_r[:, None] < {self.extents[0]})")
        if self.is_masked[1]:
            bounds.append(f"({name}_c[None, :] < {self.extents[1]})")
        return " & ".join(bounds)

    def made(self) -> str:
        """What makes the descriptor in the kernel."""
        block = list(self.block[::-1] if self.is_turned else self.block)
        return (
            f"{self.name}_desc = tl.make_tensor_descriptor({self.name}_ptr, shape={self.memory}, "
            f"strides=[{self.stride}, 1], block_shape={block})"
        )

    def block_pointer(self, row: str, column: str) -> str:
        block = list(self.block[::-1] if self.is_turned else self.block)
        return (
            f"tl.make_block_ptr({self.name}_ptr, shape={self.memory}, strides=[{self.stride}, 1], "
            f"offsets=[{self.ordered(row, column)}], block_shape={block}, order=[1, 0])"
        )

    def before_loop(self, row: str, column: str) -> str:
        """What stands before a loop in which the tile moves."""
        if self.access == "moved":
            offsets = self.offsets(f"{self.name}_r", f"{self.name}_c")
            return f"{self.indices(row, column)}\n{self.name}_ptrs = {self.name}_ptr + ({offsets})"
        if self.access == "block":
            return f"{self.name}_block = {self.block_pointer(row, column)}"
        return ""

    def load(self, to: str, row: str, column: str, in_loop: bool) -> str:
        """Lines that load a tile; in a loop, what stands before it is there."""
        name, turned = self.name, ".T" if self.is_turned else ""
        if self.access in ("host", "made"):
            return f"{to} = {name}_desc.load([{self.ordered(row, column)}]){turned}"
        if self.access == "block":
            at = f"{name}_block" if in_loop else self.block_pointer(row, column)
            return f'{to} = tl.load({at}, boundary_check=(0, 1), padding_option="zero"){turned}'
        rows = f"{name}_g" if self.access == "gathered" else f"{name}_r"
        pointers = f"{name}_ptr + ({self.offsets(rows, f'{name}_c')})"
        pointers = f"{name}_ptrs" if self.access == "moved" and in_loop else pointers
        mask = self.mask()
        mask = f", mask={mask}, other={self.other}" if mask else ""
        return f"{self.indices(row, column)}\n{to} = tl.load({pointers}{mask})"

    def advance(self, axis: int, by: str) -> str:
        """What stands at the end of an iteration."""
        if self.access == "moved":
            is_contiguous = (axis == 1) != self.is_turned
            return f"{self.name}_ptrs += {by}" + ("" if is_contiguous else f" * {self.stride}")
        if self.access == "block":
            distance = self.ordered(*(by if axis == k else "0" for k in range(2)))
            return f"{self.name}_block = tl.advance({self.name}_block, [{distance}])"
        return ""

    def store(self, value: str, row: str, column: str, adds: bool) -> str:
        turned = ".T" if self.is_turned else ""
        if self.access in ("host", "made"):
            verb = "atomic_add" if adds else "store"
            return f"{self.name}_desc.{verb}([{self.ordered(row, column)}], ({value}){turned})"
        if self.access == "block" and not adds:
            return f"tl.store({self.block_pointer(row, column)}, ({value}){turned}, boundary_check=(0, 1))"
        verb, mask = ("atomic_add" if adds else "store"), self.mask()
        offsets = self.offsets(f"{self.name}_r", f"{self.name}_c")
        mask = f", mask={mask}" if mask else ""
        return f"{self.indices(row, column)}\ntl.{verb}({self.name}_ptr + ({offsets}), {value}{mask})"

    def tile(self, values: torch.Tensor, row: int, column: int) -> torch.Tensor:
        """What a load gives, of the elements in binary64."""
        height, width = self.block
        is_pointers = self.access not in ("host", "made", "block")
        found = torch.full((height, width), float(self.other if is_pointers else 0)).double()
        rows = torch.arange(row, row + height)
        rows = rows % self.extents[0] if self.access == "wrapped" else rows
        is_there = (rows >= 0) & (rows < self.extents[0])
        end = max(min(column + width, self.extents[1]) - column, 0)
        source = rows[is_there]
        source = make_order(self.extents[0]).long()[source] if self.access == "gathered" else source
        found[is_there, :end] = values[source, column : column + end]
        return found

    def write(self, values: torch.Tensor, row: int, column: int, tile: torch.Tensor, adds: bool) -> None:
        """What a store does to the elements."""
        there = values[row : row + self.block[0], column : column + self.block[1]]
        tile = tile[: there.shape[0], : there.shape[1]]
        there.copy_(there + tile if adds else tile)
