"""Matrices of random programs: what is in memory, how a program reaches tiles of it, and what such accesses do.

Functions without a class stand in the files of programs too, which run by themselves.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

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


LANGUAGE = SimpleNamespace(where=torch.where, minimum=min, maximum=max)
"""The language's names that the text of a mask uses, as torch has them."""


class Masks:
    """Masks of any form over the rows and columns of a tile, as text that Triton and torch give one meaning."""

    def __init__(self, number: int, name: str, extents: tuple[int, int]) -> None:
        self.rng = random.Random(f"{number}/{name}")
        self.name, self.extents = name, extents
        self.limit = self.rng.randint(-3, max(extents) + 5)
        self.is_box = self.rng.random() < 0.4
        """True if all are bounds of single indices, which hold together."""

    def index(self, axis: int) -> str:
        return f"{self.name}_{'rc'[axis]}[{'None, :' if axis else ':, None'}]"

    def comparison(self, index: str, sign: str, bound: str) -> str:
        """A comparison in either direction."""
        turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(sign, sign)
        return f"({bound} {turned} {index})" if self.rng.random() < 0.4 else f"({index} {sign} {bound})"

    def bound(self, axis: int, extent: int) -> str:
        """That an index is one of the tensor."""
        index = self.index(axis)
        below = self.comparison(index, "<", str(extent))
        upto = self.comparison(index, "<=", str(extent - 1))
        beyond = self.comparison(index, ">=", str(extent))
        return self.rng.choice([below, below, upto, f"(~{beyond})", f"({below} & ({index} >= 0))"])

    def leaf(self) -> str:
        axis = self.rng.randrange(2)
        own, other, most = self.index(axis), self.index(1 - axis), self.extents[axis]
        if self.rng.random() < 0.2 and not self.is_box:
            return f"({self.name}_f[:, None] {self.rng.choice(['> 0', '!= 1', '== 0', '<= 0'])})"
        number = self.rng.choice([0, 1, -2, most, most + 3, self.rng.randint(0, most), most // 2, most // 2])
        clamped = f"tl.minimum(tl.maximum({self.name}_limit, 0), {self.rng.choice([most, 1 << 12])})"
        bound = self.rng.choice([str(number), str(number), str(number), f"{self.name}_limit", clamped])
        sign = self.rng.choice(["<", "<", "<=", ">", ">="] + ["==", "!="] * (not self.is_box))
        if self.rng.random() < 0.15:
            flat = f"{self.name}_{'rc'[axis]}"
            return f"{self.comparison(flat, sign, bound)}[{'None, :' if axis else ':, None'}]"
        moved = [*[own] * 8, f"({own} + 5)", f"(7 - {own})"]
        others = [f"({own} * 2)", f"({own} % 3)", f"({own} & 6)", f"({own} + {other})", f"({own} - {other})"]
        index = self.rng.choice(moved if self.is_box else moved + others)
        return self.comparison(index, sign, bound)

    def tree(self, depth: int) -> str:
        others = ["or", "or", "xor", "not", "not", "where", "constant"]
        kind = self.rng.choice(["and"] * 4 + ["leaf"] + others * (not self.is_box))
        if depth == 0 or kind == "leaf":
            return self.leaf()
        one = self.tree(depth - 1)
        if kind == "not":
            return f"(~{one})"
        if kind == "constant":
            return f"({one} {self.rng.choice(['& True', '| False', '^ True', '^ False'])})"
        other = self.tree(depth - 1)
        if kind == "where":
            third = self.rng.choice([self.leaf(), self.leaf(), "False", "True"])
            return f"tl.where({one}, {other}, {third})"
        return f"({one} {dict(zip(['and', 'or', 'xor'], '&|^', strict=True))[kind]} {other})"

    def within(self, bounds: str, condition: str) -> str:
        """A condition that holds where both do."""
        return self.rng.choice(
            [
                *[f"({bounds}) & {condition}", f"{condition} & ({bounds})"],
                *[f"~(~({bounds}) | (~{condition}))", f"tl.where({condition}, {bounds}, False)"],
                f"(({bounds}) ^ (({bounds}) & (~{condition})))",
            ]
        )


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
    """For rows and for columns: True if they are compared with the matrix's extent."""
    other: int = 0
    padding: int = 0
    fill: str = "small"
    condition: int = 0
    """The number of the condition that its mask has besides the bounds; none of 0."""

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
        if f"{self.name}_f[" in self.mask:
            found[f"{self.name}_flags"] = f"make_line({self.name!r}, {self.extents[0]})"
        if f"{self.name}_limit" in self.mask:
            found[f"{self.name}_limit"] = str(self.masks.limit)
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
        if f"{name}_f[" in self.mask:
            lines += (
                f"\n{name}_f = tl.load({name}_flags + {name}_r, mask={name}_r < {self.extents[0]}, other=0)"
            )
        return lines

    @cached_property
    def masks(self) -> Masks:
        return Masks(self.condition, self.name, self.extents)

    @cached_property
    def mask(self) -> str:
        """The mask of its accesses; none if it is empty."""
        bounds = []
        for axis in range(2):
            if self.is_masked[axis] and (axis or self.access != "wrapped"):
                index, extent = self.masks.index(axis), self.extents[axis]
                plain = f"({index} < {extent})"
                bounds.append(self.masks.bound(axis, extent) if self.condition else plain)
        if not self.condition or self.access in ("host", "made", "block"):
            return " & ".join(bounds)
        condition = self.masks.tree(3)
        return self.masks.within(" & ".join(bounds), condition) if bounds else condition

    def holds(self, row: int, column: int) -> torch.Tensor:
        """The elements at which the mask of a tile holds."""
        name, (height, width) = self.name, self.block
        rows, columns = torch.arange(row, row + height), torch.arange(column, column + width)
        rows = rows % self.extents[0] if self.access == "wrapped" else rows
        flags = torch.nn.functional.pad(make_line(name, self.extents[0]), (0, max(row + height, 0)))[rows]
        names = {f"{name}_r": rows, f"{name}_c": columns, f"{name}_f": flags, "tl": LANGUAGE}
        return eval(self.mask or "True", names | {f"{name}_limit": self.masks.limit}) & torch.ones(
            height, width, dtype=torch.bool
        )

    def made(self) -> str:
        """The statement that makes the descriptor in the kernel."""
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
        """The lines before a loop in which the tile moves."""
        if self.access == "moved":
            offsets = self.offsets(f"{self.name}_r", f"{self.name}_c")
            return f"{self.indices(row, column)}\n{self.name}_ptrs = {self.name}_ptr + ({offsets})"
        if self.access == "block":
            return f"{self.name}_block = {self.block_pointer(row, column)}"
        return ""

    def load(self, to: str, row: str, column: str, in_loop: bool) -> str:
        """Lines that load a tile; in a loop, after the lines of `before_loop`."""
        name, turned = self.name, ".T" if self.is_turned else ""
        if self.access in ("host", "made"):
            return f"{to} = {name}_desc.load([{self.ordered(row, column)}]){turned}"
        if self.access == "block":
            at = f"{name}_block" if in_loop else self.block_pointer(row, column)
            return f'{to} = tl.load({at}, boundary_check=(0, 1), padding_option="zero"){turned}'
        rows = f"{name}_g" if self.access == "gathered" else f"{name}_r"
        pointers = f"{name}_ptr + ({self.offsets(rows, f'{name}_c')})"
        pointers = f"{name}_ptrs" if self.access == "moved" and in_loop else pointers
        mask = f", mask={self.mask}, other={self.other}" if self.mask else ""
        return f"{self.indices(row, column)}\n{to} = tl.load({pointers}{mask})"

    def advance(self, axis: int, by: str) -> str:
        """The line at the end of an iteration."""
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
        verb, mask = ("atomic_add" if adds else "store"), self.mask
        offsets = self.offsets(f"{self.name}_r", f"{self.name}_c")
        mask = f", mask={mask}" if mask else ""
        return f"{self.indices(row, column)}\ntl.{verb}({self.name}_ptr + ({offsets}), {value}{mask})"

    def tile(self, values: torch.Tensor, row: int, column: int) -> torch.Tensor:
        """The result of a load, of the elements in binary64."""
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
        if self.condition and is_pointers:
            found = torch.where(self.holds(row, column), found, float(self.other))
        return found

    def write(self, values: torch.Tensor, row: int, column: int, tile: torch.Tensor, adds: bool) -> None:
        """Applies a store to the elements."""
        there = values[row : row + self.block[0], column : column + self.block[1]]
        tile = tile[: there.shape[0], : there.shape[1]]
        new = there + tile if adds else tile
        if self.condition and self.access not in ("host", "made", "block"):
            new = torch.where(self.holds(row, column)[: there.shape[0], : there.shape[1]], new, there)
        there.copy_(new)
