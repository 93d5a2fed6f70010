"""Random programs with loops of products, each a Python file that runs by itself, and what it has to leave in binary64.

A program sums up ``acc[j] += weights @ y[j]`` in one to three loops. Weights are loaded (``a``), or the scores
``x[j] @ y[j].T`` that an activation bounds, that other scores gate as in a backward pass, or that softmax normalizes as
in attention. All numbers are small integers, so that sums are exact, but for softmax.

`Decisions` draw a program: each by the seed and its own name, so that one can be changed and the others stay.
The first option of each is the plainest, to which a failing program is shrunk. ``fuzz_dots.py`` is the command.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch
from random_matrices import Matrix, make_line, make_matrix, make_order, moved

SIZES = {
    "int8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "int32": 4,
}
WORDS = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
"""Names of the language for types of torch that have another."""


LARGEST = 3_000_000
"""Multiplications of a product in a loop."""

FILE = '''"""Seed {seed}: python tests/python/support/fuzz_dots.py {seed} --plain {plain}"""

import zlib

import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.tools.tensor_descriptor import TensorDescriptor


{helpers}

@triton.jit
def combine(sum_a, most_a, sum_b, most_b):
    return sum_a + sum_b, tl.maximum(most_a, most_b)


@triton.jit
def kernel({parameters}):
{body}


def arguments():
    return {{
{bound}
    }}


def launch(device="cpu", **options):
    bound = arguments()
    for name, value in bound.items():
        if isinstance(value, torch.Tensor):
            bound[name] = moved(value, device)
        elif isinstance(value, TensorDescriptor):
            value.base = moved(value.base, device)
    return kernel[{grid}](**bound, {options}, **options), bound


if __name__ == "__main__":
    for name, value in launch()[1].items():
        print(name, getattr(value, "base", value))
'''


class Decisions:
    """Draws from options by the name of the decision; names of `plain` take the first option."""

    def __init__(self, seed: int, plain: frozenset[str] = frozenset()) -> None:
        self.seed, self.plain = seed, plain
        self.taken: dict[str, int] = {}

    def pick(self, name, options):
        options = list(options)
        place = 0 if name in self.plain else random.Random(f"{self.seed}/{name}").randrange(len(options))
        self.taken[name] = options.index(options[place])
        return options[place]

    def chance(self, name: str, one_in: int) -> bool:
        return self.pick(name, [False] * (one_in - 1) + [True])


@dataclass
class Node:
    """A statement: its text, what it does to the values of the reference, or how often what is within it is done."""

    text: str
    run: Callable[[dict], object] | None = None
    repeat: Callable[[dict], Iterable[dict]] | None = None
    within: list[Node] = field(default_factory=list)

    def lines(self, depth: int) -> Iterator[str]:
        for line in self.text.splitlines():
            yield "    " * depth + line
        for node in self.within:
            yield from node.lines(depth + 1)

    def execute(self, values: dict) -> None:
        if self.run:
            self.run(values)
        for new in self.repeat(values) if self.repeat else ():
            values.update(new)
            for node in self.within:
                node.execute(values)


@dataclass
class Loop:
    """How often a loop runs, and where what it reads begins."""

    name: str
    first: int
    end: int
    shift: int
    bounds: str
    """How the program knows them; `rows` is an end that differs from tile to tile, as in causal attention."""
    form: str
    body: str
    """The name of the decisions about what it does: a loop may do what another does."""


class Program:
    """A program of a seed: ``text`` is a file with ``launch``, and ``expected`` what it leaves, by the tensor.

    Some have masks of any form; `has_conditions` asks for them.
    """

    def __init__(
        self, seed: int, plain: frozenset[str] = frozenset(), *, has_conditions: bool = False
    ) -> None:
        self.decisions = Decisions(seed, plain)
        self.pick, self.chance = self.decisions.pick, self.decisions.chance
        self.matrices: dict[str, Matrix] = {}
        self.lines: dict[str, int] = {}
        self.outputs: dict[str, tuple[Matrix, bool]] = {}
        self.numbers: dict[str, int] = {}
        self.bounds: list[int] = []
        self.states: dict[str, Callable[[dict], None]] = {}
        self.nodes: list[Node] = []
        self.has_conditions = has_conditions or self.chance("conditions", 4)
        self.choose_launch()
        self.choose_sizes()
        self.loops = [self.choose_loop(number) for number in range(self.pick("loops", [1, 2, 2, 3]))]
        self.depth = max(map(self.furthest, self.loops)) - self.pick("cut depth", [0, 0, 5])
        self.statements = self.kernel()
        self.text = self.file(self.statements)

    # The choices that make a program.

    def choose_launch(self) -> None:
        types = ["float16", "float16", "bfloat16", "float32", "int8", "float8_e5m2", "float8_e4m3fn"]
        self.dtype = self.pick("dtype", types)
        self.sum = "int32" if self.dtype == "int8" else "float32"
        self.word = WORDS.get(self.dtype, self.dtype)
        self.is_byte = SIZES[self.dtype] == 1
        self.is_soft = self.pick("softmax", [False, True, False]) and not self.is_byte
        self.options = {
            "num_warps": self.pick("num_warps", [4, 4, 8, 8, 1, 2, 16]),
            "num_stages": self.pick("num_stages", [3, 2, 4, 1, 5, 6]),
            "num_ctas": self.pick("num_ctas", [1] * 8 + [2]),
        }

    def choose_sizes(self) -> None:
        least = 32 if self.is_byte else 16
        # Accumulators that few warps have no registers for take the assembler minutes.
        rows = self.pick("rows", [64, 128, 64, 128, least, 32, 256])
        self.height = max(min(rows, 32 * self.options["num_warps"]), least)
        self.step = self.pick("step", [64, 32, 32, 128, least])
        self.widths = [self.pick(f"width{j}", [64, 32, 32, 128, least]) for j in range(2)]
        self.tiles = self.pick("tiles", [1, 2, 1, 3])
        self.cut = self.pick("cut rows", [0, 0, 7])
        self.is_persistent = self.chance("persistent", 3)
        self.programs = min(self.pick("programs", [1, 2]), self.tiles) if self.is_persistent else self.tiles
        self.split = 1 if self.is_soft else self.pick("split", [1, 1, 1, 2, 3])

    def choose_loop(self, number: int) -> Loop:
        name = f"loop{number}"
        # Large tiles are simulated for long.
        most = max(LARGEST // (self.height * self.step * max(self.widths) * self.tiles), 1)
        trips = min(self.pick(f"{name}.trips", [3, 1, 2, 0, 4, 5, -1, 6]), most)
        first = self.pick(f"{name}.first", [0, 0, 1, 2]) * self.step
        tail = self.pick(f"{name}.tail", [0, 0, 0, 3]) if trips > 0 else 0
        bounds = self.pick(f"{name}.bounds", ["constant", "argument", "loaded", "loaded", "rows"])
        forms = ["range", "tl.range", "tl.range", "counted", "while", "parts"]
        forms += ["static"] if bounds == "constant" and 0 < trips < 4 and self.split == 1 else ["range"]
        form = self.pick(f"{name}.form", forms)
        end = first + trips * self.step * self.split - tail
        shift = self.pick(f"{name}.shift", [0, 0, 0, 2]) * self.step
        body = self.pick(f"{name}.body", ["loop0", name])
        return Loop(name, first, end, shift, bounds, form, body if number else "loop0")

    def furthest(self, loop: Loop) -> int:
        """The end of all indices that a loop reads."""
        end = self.tiles * self.height if loop.bounds == "rows" else loop.end
        return max(end, loop.first) + loop.shift + 2 * self.split * self.step

    # Statements.

    def say(self, text: str, run: Callable[[dict], object] | None = None) -> None:
        if text or run:
            self.nodes.append(Node(text, run))

    def give(self, name: str, text: str, value: Callable[[dict], object]) -> None:
        """An assignment."""
        self.say(f"{name} = {text}", lambda v: v.update({name: value(v)}))

    @contextmanager
    def inside(self, node: Node) -> Iterator[None]:
        """Statements stand within this one."""
        self.nodes.append(node)
        before, self.nodes = self.nodes, node.within
        yield
        self.nodes = before

    # Matrices.

    def matrix(self, name: str, height: int, width: int, along: int | None) -> Matrix:
        """The operand of a name. Loops move along an axis, or along none."""
        if name in self.matrices:
            return self.matrices[name]
        dtype = self.dtype
        if name[0] == "a" and dtype in ("float16", "bfloat16"):
            dtype = self.pick(f"{name}.dtype", [dtype, dtype, "int8", "float8_e5m2"])
        kinds = ["host", "pointers", "made", "block", "host", "pointers"]
        kinds += ["wrapped", "gathered"] + ["moved"] * (along is not None)
        narrow = self.pick(f"{name}.narrow", [0] * 7 + [16]) if along != 1 and width > 16 else 0
        rows = self.depth if along == 0 else self.tiles * self.height - self.cut
        columns = self.depth if along == 1 else width - narrow
        found = Matrix(name, dtype, (height, width), (rows, columns), self.pick(f"{name}.access", kinds))
        self.shape(found)
        always = self.chance(f"{name}.masked", 3)
        found.is_masked = (
            always or self.depth_is_cut() if along == 0 else always or self.cut > 0,
            always or (self.depth_is_cut() if along == 1 else narrow > 0),
        )
        return self.matrices.setdefault(name, found)

    def depth_is_cut(self) -> bool:
        return self.depth < max(map(self.furthest, self.loops))

    def shape(self, matrix: Matrix) -> None:
        """How a matrix lies in memory."""
        name = matrix.name
        matrix.is_turned = self.chance(f"{name}.turned", 3)
        matrix.other = self.pick(f"{name}.other", [0, 0, 0, 1])
        whole = matrix.access in ("host", "made")
        matrix.padding = self.pick(f"{name}.padding", [0, 16, 0, 16 if whole else 3])
        if self.has_conditions:
            matrix.condition = self.pick(f"{name}.condition", range(80))
        if matrix.condition and matrix.access in ("host", "made", "block"):
            matrix.access = "pointers"

    def output(self, name: str, height: int, width: int, rows: int, dtype: str, adds: bool) -> Matrix:
        """A matrix of results."""
        if name not in self.outputs:
            access = self.pick(f"{name}.access", ["host", "pointers", "made", "block"])
            found = Matrix(
                name, dtype, (height, width), (rows, width), access, is_masked=(rows % height > 0, False)
            )
            found.fill = "zero" if adds else "poison"
            self.shape(found)
            self.outputs[name] = found, adds
        return self.outputs[name][0]

    def load(self, to: str, matrix: Matrix, row: str, column: str, in_loop: bool = False) -> None:
        """Loads a tile at numbers that the program has by these names, and converts it to what products take."""

        def run(values: dict) -> None:
            at = (eval(place, {}, values) for place in (row, column))
            values[to] = matrix.tile(values[f"{matrix.name} in memory"], *at)

        self.say(matrix.load(to, row, column, in_loop), run)
        if matrix.dtype != self.dtype:
            self.say(f"{to} = {to}.to(tl.{self.word})")

    def store(self, matrix: Matrix, value: str, row: str, adds: bool) -> None:
        def run(values: dict) -> None:
            matrix.write(values[f"{matrix.name} in memory"], eval(row, {}, values), 0, values[value], adds)

        dtype = WORDS.get(matrix.dtype, matrix.dtype)
        self.say(matrix.store(f"{value}.to(tl.{dtype})", row, "0", adds), run)

    # Loops.

    def bound(self, name: str, number: int, how: str) -> str:
        """A number of the program, as the program knows it."""
        if how == "argument":
            self.numbers[name] = number
            return name
        if how == "loaded":
            self.bounds.append(number)
            text = f"tl.load(bounds_ptr + {len(self.bounds) - 1})"
            self.give(name, text, lambda _: number)
            return name
        return str(number)

    def loop(self, loop: Loop) -> None:
        """A loop with the lines before it."""
        name, step = loop.name, self.step * self.split
        if loop.bounds == "rows":
            low, high = str(loop.first), f"(row + {self.height})"
        else:
            low, high = (self.bound(f"{name}_{x}", getattr(loop, x), loop.bounds) for x in ("first", "end"))
        if self.split > 1:
            low = f"({low} + part * {self.step})"
        how = "loaded" if loop.bounds == "loaded" else "argument"
        shift = self.bound(f"{name}_shift", loop.shift, how) if loop.shift else ""
        body = Body(self, loop.body)
        if loop.form != "parts":
            self.iterations(loop, body, (low, high, step), shift)
            return
        half = f"{name}_half"
        repeat = lambda _: ({half: number} for number in range(2))  # noqa: E731
        with self.inside(
            Node(f"for {half} in tl.range(2{self.loop_options(f'{name}.outer')}):", repeat=repeat)
        ):
            middle = max((loop.end - loop.first) // step // 2, 1) * step
            inner_low, inner_high = f"{name}_low", f"{name}_high"
            self.give(
                inner_low,
                f"{low} + {half} * {middle}",
                lambda v: eval(low, {}, v) + v[half] * middle,
            )
            self.give(
                inner_high,
                f"{high} * {half} + tl.minimum({high}, {low} + {middle}) * (1 - {half})",
                lambda v: eval(high, {}, v) if v[half] else min(eval(high, {}, v), eval(low, {}, v) + middle),
            )
            self.iterations(loop, body, (inner_low, inner_high, step), shift)

    def loop_options(self, name: str) -> str:
        """The options of a loop."""
        found = []
        stages = self.pick(f"{name}.stages", [None, None, None, None, 1, 2, 3, 5])
        found += [f"num_stages={stages}"] if stages else []
        unrolls = self.pick(f"{name}.unroll", [None] * 6 + [2, 3])
        found += [f"loop_unroll_factor={unrolls}"] if unrolls else []
        found += ["warp_specialize=True"] if self.chance(f"{name}.roles", 4) else []
        found += ["disallow_acc_multi_buffer=True"] if self.chance(f"{name}.single", 8) else []
        found += ["flatten=True"] if self.chance(f"{name}.flatten", 6) else []
        return "".join(f", {option}" for option in found)

    def iterations(self, loop: Loop, body: Body, bounds: tuple[str, str, int], shift: str) -> None:
        """The head of a loop, and what each iteration does."""
        low, high, step = bounds
        k = f"{loop.name}_k"
        begin = f"{low} + {shift}" if shift else low
        for matrix, axis in body.moving():
            self.say(
                matrix.before_loop(
                    *(begin if axis == place else "row" if place == 0 else "0" for place in (0, 1))
                )
            )

        def repeat(values: dict) -> Iterator[dict]:
            first, end = (eval(text, {}, values) for text in (low, high))
            return ({k: number} for number in range(first, end, step))

        options = self.loop_options(loop.name)
        heads = {
            "range": f"for {k} in range({low}, {high}, {step}):",
            "static": f"for {k} in tl.static_range({low}, {high}, {step}):",
            "counted": f"for {k}_ in tl.range(tl.cdiv({high} - {low}, {step}){options}):",
            "while": f"{k} = {low}\nwhile {k} < {high}:",
        }
        head = heads.get(loop.form, f"for {k} in tl.range({low}, {high}, {step}{options}):")
        with self.inside(Node(head, repeat=repeat)):
            if loop.form == "counted":
                self.say(f"{k} = {low} + {k}_ * {step}")
            at = f"{k} + {shift}" if shift else k
            self.give("at", at, lambda v: eval(at, {}, v))
            body.iteration()
            for matrix, axis in body.moving():
                self.say(matrix.advance(axis, str(step)))
            if loop.form == "while":
                self.say(f"{k} += {step}")

    # The whole.

    def kernel(self) -> Node:
        """The statements of a kernel."""
        tile = Node(
            "tile = tl.program_id(0)", repeat=lambda _: ({"tile": number} for number in range(self.tiles))
        )
        if self.is_persistent:
            options = self.loop_options("tiles")
            tile.text = f"for tile in tl.range(tl.program_id(0), {self.tiles}, tl.num_programs(0){options}):"
        with self.inside(tile):
            self.give("row", f"tile * {self.height}", lambda v: v["tile"] * self.height)
            if self.split > 1:
                self.say("part = tl.program_id(1)")
            place = len(self.nodes)
            for number, loop in enumerate(self.loops):
                self.between(number)
                self.loop(loop)
            after = self.nodes[place:]
            del self.nodes[place:]
            self.begin()
            self.nodes += after
            self.end()
        return tile

    def begin(self) -> None:
        """The lines before loops: tiles that all iterations need, and the initial loop-carried values."""
        for matrix in [matrix for name, matrix in self.matrices.items() if name[0] == "x"]:
            self.load(matrix.name, matrix, "row", "0")
        for name, (text, value) in self.states.items():
            self.give(name, text, value)

    def between(self, number: int) -> None:
        """The lines that change accumulators between loops."""
        if number and self.chance(f"between{number}", 3):
            for name in [name for name in self.states if name[:3] == "acc"]:
                self.give(name, f"{name} * 2", lambda v, name=name: v[name] * 2)

    def end(self) -> None:
        """The lines that use accumulators after loops."""
        rows = self.tiles * self.height - self.cut
        for name in [name for name in self.states if name[:3] == "acc"]:
            self.epilogue(name)
            adds = self.split > 1 or self.chance(f"{name}.adds", 6)
            wide = (
                [self.sum] if adds or self.sum == "int32" else ["float32", "float16", "float32", "bfloat16"]
            )
            width = self.widths[int(name[3])]
            matrix = self.output(
                f"out_{name}", self.height, width, rows, self.pick(f"{name}.out", wide), adds
            )
            self.store(matrix, name, "row", adds)
            self.parts(name)
        for name in [name for name in self.states if name[:3] != "acc" and name != "highest"]:
            matrix = self.output(f"out_{name}", self.height, 1, rows, "float32", self.split > 1)
            matrix.access, matrix.is_turned = "pointers", False
            self.give(name, f"{name}[:, None]", lambda v, name=name: v[name][:, None])
            self.store(matrix, name, "row", self.split > 1)

    def epilogue(self, name: str) -> None:
        kind = self.pick(f"{name}.epilogue", ["none", "none", "relu", "extreme", "halves", "divided"])
        if kind == "relu":
            self.give(name, f"tl.where({name} > 0, {name}, 0)", lambda v: v[name].clamp(min=0))
        if kind == "extreme":
            self.give(
                name,
                f"{name} - tl.max({name}, 1)[:, None]",
                lambda v: v[name] - v[name].max(1, True).values,
            )
        if kind == "divided" and self.is_soft and "total" in self.states:
            self.give(
                name,
                f"{name} / (total + 1)[:, None]",
                lambda v: v[name] / (v["total"] + 1)[:, None],
            )

        if not self.is_soft and self.chance(f"{name}.scanned", 5):
            self.scan(name)

    def scan(self, name: str) -> None:
        """Sums and maxima so far along an axis, of a tile that may be flipped."""
        axis, flipped = self.pick(f"{name}.scanned along", [0, 1]), self.pick(f"{name}.flipped", [None, 0, 1])
        if flipped is not None:
            self.give(name, f"tl.flip({name}, {flipped})", lambda v: v[name].flip(flipped))
        self.say(f"{name}_sum, {name}_most = tl.associative_scan(({name}, {name}), {axis}, combine)")
        self.give(
            name,
            f"{name}_sum + {name}_most",
            lambda v: v[name].cumsum(axis) + v[name].cummax(axis).values,
        )

    def parts(self, name: str) -> None:
        """Sums of blocks of a tile: small tiles, whose boxes differ."""
        whole = self.height, self.widths[int(name[3])]
        for number in range(0 if self.is_soft else self.pick(f"{name}.parts", [0, 0, 0, 1, 2, 3])):
            part = f"{name}_part{number}"
            rows = self.pick(f"{part}.rows", [4, 2, 8, 16])
            columns = min(self.pick(f"{part}.columns", [16, 16, 32, 64]), whole[1])
            shape = rows, whole[0] // rows, whole[1] // columns, columns
            self.give(
                part,
                f"tl.sum(tl.sum(tl.reshape({name}, {shape}), 2), 1)",
                lambda v, shape=shape: v[name].reshape(shape).sum(2).sum(1),
            )
            adds = self.split > 1
            matrix = self.output(f"out_{part}", rows, columns, self.tiles * rows, self.sum, adds)
            # A row of a box has 16 bytes at least.
            matrix.is_turned &= rows >= 4
            self.store(matrix, part, f"tile * {rows}", adds)

    @cached_property
    def expected(self) -> dict[str, torch.Tensor]:
        """The memory after a launch, by the parameter, in binary64."""
        values: dict = {f"{name} in memory": matrix.values() for name, matrix in self.matrices.items()}
        values |= {f"{name} in memory": matrix.values() for name, (matrix, _) in self.outputs.items()}
        values |= {f"{name} in memory": make_line(name, length) for name, length in self.lines.items()}
        values |= self.numbers
        for part in range(self.split):
            self.statements.execute(values | {"part": part})
        found = {}
        for name, (matrix, _) in self.outputs.items():
            memory = values[f"{name} in memory"]
            found[name] = memory.T if matrix.is_turned else memory
        return found

    def file(self, kernel: Node) -> str:
        """A file that launches the kernel."""
        matrices = [*self.matrices.values(), *(matrix for matrix, _ in self.outputs.values())]
        arguments = {key: text for matrix in matrices for key, text in matrix.arguments().items()}
        arguments |= {f"{name}_ptr": f"make_line({name!r}, {length})" for name, length in self.lines.items()}
        if self.bounds:
            arguments["bounds_ptr"] = f"torch.tensor({self.bounds}, dtype=torch.int32)"
        arguments |= {name: str(number) for name, number in self.numbers.items()}
        made = [matrix.made() for matrix in matrices if matrix.access == "made"]
        body = "\n".join([*(f"    {text}" for text in made), *self.kernel_lines(kernel)])
        bound = "\n".join(f"        {name!r}: {text}," for name, text in arguments.items())
        options = ", ".join(f"{name}={number}" for name, number in self.options.items())
        helpers = "\n\n".join(
            inspect.getsource(helper) for helper in (make_matrix, make_line, make_order, moved)
        )
        return FILE.format(
            seed=self.decisions.seed, plain=" ".join(sorted(self.decisions.plain)), helpers=helpers,
            parameters=", ".join(arguments), body=body, bound=bound, options=options,
            grid=(self.programs, self.split),
        )  # fmt: skip

    def kernel_lines(self, kernel: Node) -> Iterator[str]:
        if self.is_persistent:
            yield from kernel.lines(1)
            return
        yield f"    {kernel.text}"
        for node in kernel.within:
            yield from node.lines(1)


class Body:
    """The body of a loop: dots of weights, loaded or computed, and tiles that move with the loop."""

    def __init__(self, program: Program, name: str) -> None:
        self.program, self.name = program, name
        self.pick, self.chance = program.pick, program.chance
        self.products = [
            self.choose(number) for number in range(self.pick(f"{name}.products", [1, 2, 1, 2, 3]))
        ]

    def choose(self, number: int) -> dict:
        """A product: how its weights come about, which tile they multiply and where they are summed up."""
        name = f"{self.name}.{number}"
        options = ["loaded", "scores", "scores", "same"] if number else ["loaded", "scores", "scores"]
        y = self.pick(f"{name}.y", [0, 0, 1])
        product = {"name": name, "weights": self.pick(f"{name}.weights", options), "y": y}
        product["x"] = self.pick(f"{name}.x", [0, 0, 1])
        product["a"] = self.pick(f"{name}.a", [0, 0, 1])
        product["acc"] = f"acc{y}{self.pick(f'{name}.acc', [0, 0, 1])}"
        kinds = ["bounded", "masked", "gated", "bounded"]
        product["kind"] = self.pick(f"{name}.kind", kinds)
        return product

    # Operands.

    def y(self, number: int) -> Matrix:
        return self.program.matrix(f"y{number}", self.program.step, self.program.widths[number], 0)

    def x(self, number: int) -> Matrix:
        return self.program.matrix(f"x{number}", self.program.height, self.program.widths[number], None)

    def a(self, number: int) -> Matrix:
        return self.program.matrix(f"a{number}", self.program.height, self.program.step, 1)

    def moving(self) -> list[tuple[Matrix, int]]:
        """The matrices with a new tile in each iteration, and the axis along which it moves."""
        found = {}
        for product in self.products:
            found[f"y{product['y']}"] = self.y(product["y"]), 0
            if product["weights"] == "loaded":
                found[f"a{product['a']}"] = self.a(product["a"]), 1
            if product["weights"] == "scores":
                for number in (
                    {product["x"], 1 - product["x"]} if product["kind"] == "gated" else {product["x"]}
                ):
                    found[f"y{number}"] = self.y(number), 0
        return list(found.values())

    def need(self, name: str) -> None:
        """Loads a moving tile where it is needed first."""
        if name not in self.loaded:
            self.loaded.add(name)
            matrix = getattr(self, name[0])(int(name[1]))
            place = ("at", "0") if name[0] == "y" else ("row", "at")
            self.program.load(name, matrix, *place, in_loop=True)

    # Statements.

    def iteration(self) -> None:
        """One iteration."""
        self.loaded: set[str] = set()
        self.is_normalized = False
        if self.chance(f"{self.name}.early", 3):
            for matrix, _ in self.moving():
                self.need(matrix.name)
        comes_first = self.chance(f"{self.name}.weights first", 3)
        if comes_first:
            for number in range(len(self.products)):
                self.weights(number)
        for number in range(len(self.products)):
            if not comes_first:
                self.weights(number)
            self.sum_up(number)

    def weights(self, number: int) -> None:
        """The tile that a product takes from the left, `w` and its number."""
        product = self.products[number]
        if product["weights"] == "same":
            self.program.give(f"w{number}", f"w{number - 1}", lambda v: v[f"w{number - 1}"])
        elif product["weights"] == "loaded":
            a = f"a{product['a']}"
            self.need(a)
            self.program.give(f"w{number}", a, lambda v: v[a])
        else:
            self.scores(number)
            self.send_back(number)
        if self.chance(f"{product['name']}.totals", 8) and not self.program.is_soft:
            name = f"total{number}"
            rows = self.program.height
            self.program.states[name] = (
                f"tl.zeros(({rows},), tl.float32)",
                lambda _: torch.zeros(rows).double(),
            )
            self.program.give(
                name,
                f"{name} + tl.sum(w{number}.to(tl.float32), 1)",
                lambda v: v[name] + v[f"w{number}"].sum(1),
            )

    def multiply_scores(self, to: str, number: int, name: str) -> None:
        """The scores of the rows of `x` for those of `y`, in either order."""
        x, y = f"x{number}", f"y{number}"
        self.x(number)
        self.need(y)
        texts = [f"tl.dot({x}, {y}.T{self.precision(name)})", f"tl.dot({y}, {x}.T{self.precision(name)}).T"]
        self.program.give(
            to,
            self.pick(f"{name}.order", [texts[0], texts[0], texts[1]]),
            lambda v: v[x] @ v[y].T,
        )

    def scores(self, number: int) -> None:
        """Weights that are computed from scores."""
        product, program = self.products[number], self.program
        name, s, w = product["name"], f"s{number}", f"w{number}"
        self.multiply_scores(s, product["x"], name)
        if program.is_soft and not self.is_normalized:
            self.is_normalized = True
            self.normalize(s, w)
        else:
            self.activate(s, w, product)
        program.say(f"{w} = {w}.to(tl.{program.word})")

    def activate(self, s: str, w: str, product: dict) -> None:
        """Small weights of scores."""
        program, name = self.program, product["name"]
        program.give(w, f"tl.minimum(tl.maximum({s}, -2), 2)", lambda v: v[s].clamp(-2, 2))
        if product["kind"] == "masked":
            program.lines["line"] = program.depth
            place = f"at + tl.arange(0, {program.step})"
            text = f"tl.load(line_ptr + {place}, mask={place} < {program.depth}, other=0)"

            def load(values: dict) -> torch.Tensor:
                known = values["line in memory"][values["at"] : values["at"] + program.step]
                return torch.nn.functional.pad(known, (0, program.step - len(known)))

            program.give("limits", text, load)
            program.give(
                w,
                f"tl.where({s} > limits[None, :], {w}, 1)",
                lambda v: torch.where(v[s] > v["limits"][None, :], v[w], 1.0),
            )
        if product["kind"] == "gated":
            other = f"g{s}"
            self.multiply_scores(other, 1 - product["x"], f"{name}.gate")
            program.give(
                w,
                f"tl.where({other} > 0, {w}, {w} - 1)",
                lambda v: torch.where(v[other] > 0, v[w], v[w] - 1),
            )

    def normalize(self, s: str, w: str) -> None:
        """Softmax of rows over all iterations: sums so far are scaled by what has become of the highest score."""
        program, rows = self.program, self.program.height
        low = -float("inf")
        program.states["highest"] = (
            f'tl.zeros(({rows},), tl.float32) - float("inf")',
            lambda _: torch.full((rows,), low).double(),
        )
        program.states["total"] = f"tl.zeros(({rows},), tl.float32)", lambda _: torch.zeros(rows).double()
        program.give(s, f"{s} * 0.125", lambda v: v[s] * 0.125)
        if self.chance(f"{self.name}.causal", 4):
            columns = f"(at + tl.arange(0, {program.step}))"
            program.give(
                s,
                f"tl.where(row + tl.arange(0, {rows})[:, None] >= {columns}[None, :], {s}, -1.0e6)",
                lambda v: torch.where(
                    v["row"] + torch.arange(rows)[:, None] >= v["at"] + torch.arange(program.step)[None, :],
                    v[s],
                    -1.0e6,
                ),
            )
        program.give(
            "higher",
            f"tl.maximum(highest, tl.max({s}, 1))",
            lambda v: torch.maximum(v["highest"], v[s].max(1).values),
        )
        program.give(
            w,
            f"tl.math.exp2({s} - higher[:, None])",
            lambda v: torch.exp2(v[s] - v["higher"][:, None]),
        )
        program.give(
            "decay",
            "tl.math.exp2(highest - higher)",
            lambda v: torch.exp2(v["highest"] - v["higher"]),
        )
        program.give(
            "total",
            f"total * decay + tl.sum({w}, 1)",
            lambda v: v["total"] * v["decay"] + v[w].sum(1),
        )
        for name in sorted({product["acc"] for product in self.products}):
            self.accumulator(name)
            program.give(
                name,
                f"{name} * decay[:, None]",
                lambda v, name=name: v[name] * v["decay"][:, None],
            )
        program.give("highest", "higher", lambda v: v["higher"])

    def send_back(self, number: int) -> None:
        """Adds to rows of memory that only this iteration has, as the backward pass of attention adds to dq."""
        product, program = self.products[number], self.program
        if not self.chance(f"{product['name']}.back", 5):
            return
        x, w = product["x"], f"w{number}"
        adds = program.tiles * program.split > 1 or self.chance(f"back{x}.adds", 2)
        matrix = program.output(f"back{x}", program.step, program.widths[x], program.depth, program.sum, adds)
        matrix.is_masked = (True, False)
        self.program.give(
            "back",
            f"tl.dot({w}.T, x{x}{self.precision(product['name'])})",
            lambda v: v[w].T @ v[f"x{x}"],
        )
        self.program.store(matrix, "back", "at", adds)

    def precision(self, name: str) -> str:
        if self.program.dtype == "float32":
            kinds = ["", "", ', input_precision="ieee"', ', input_precision="tf32x3"']
        elif self.program.dtype.startswith("float8"):
            kinds = ["", "", ", max_num_imprecise_acc=32"]
        elif self.program.dtype == "int8":
            return ", out_dtype=tl.int32"
        else:
            return ""
        return self.pick(f"{name}.precision", kinds)

    def accumulator(self, name: str) -> None:
        program = self.program
        shape = program.height, program.widths[int(name[3])]
        program.states[name] = f"tl.zeros({shape}, tl.{program.sum})", lambda _: torch.zeros(shape).double()

    def sum_up(self, number: int) -> None:
        """Weights times a tile, added to the sums so far."""
        product, program = self.products[number], self.program
        acc, y, w = product["acc"], f"y{product['y']}", f"w{number}"
        self.accumulator(acc)
        self.need(y)
        precision = self.precision(product["name"])
        texts = [f"tl.dot({w}, {y}, {acc}{precision})", f"{acc} + tl.dot({w}, {y}{precision})"]
        text = self.pick(f"{product['name']}.sum", [texts[0], texts[0], texts[1]])
        add = lambda v: v[acc] + v[w] @ v[y]  # noqa: E731
        if not self.chance(f"{product['name']}.conditional", 10):
            program.give(acc, text, add)
            return
        place = program.step * 2
        with program.inside(Node(f"if at != {place}:", repeat=lambda v: [{}] * (v["at"] != place))):
            program.give(acc, text, add)
