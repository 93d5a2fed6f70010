"""Random control flow: nested loops, branches, helper calls, loads and stores in order, against a direct evaluation.

A program is a list of statements as data; one function writes it as a kernel, another executes it on numpy int32.
"""

import numpy as np
import pytest
from helpers import assert_same, module, to_device, to_host

N = 16
SCALARS = ("a", "b", "c")
TILES = ("u", "v", "w")
SLOTS = 4
OPERATORS = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}
COMPARISONS = {"<": np.less, "<=": np.less_equal, ">": np.greater, "==": np.equal, "!=": np.not_equal}


class Writer:
    """Makes up a program: expressions are tuples (kind, ...), statements too."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.loops = 0
        self.helpers = []

    def choose(self, options):
        return options[self.rng.integers(len(options))]

    def expression(self, names, depth=2):
        if depth == 0 or self.rng.random() < 0.3:
            if self.rng.random() < 0.25:
                return ("constant", int(self.choose([0, 1, -1, 2, 3, 5, 100, -37, 64])))
            return ("name", self.choose(names))
        return (
            "binary",
            self.choose(list(OPERATORS)),
            self.expression(names, depth - 1),
            self.expression(names, depth - 1),
        )

    def condition(self):
        scalars = [*SCALARS, *(f"k{level}" for level in range(self.loops))]
        test = (
            "compare",
            self.choose(list(COMPARISONS)),
            self.expression(scalars, 1),
            self.expression(scalars, 1),
        )
        if self.rng.random() < 0.2:
            return (self.choose(["and", "or"]), test, self.condition())
        return test

    def statement(self, depth):
        kind = self.rng.random()
        scalars = [*SCALARS, *(f"k{level}" for level in range(self.loops))]
        if depth > 0 and kind < 0.22:
            otherwise = self.block(depth - 1) if self.rng.random() < 0.6 else []
            return ("if", self.condition(), self.block(depth - 1), otherwise)
        if depth > 0 and kind < 0.42:
            bounds = self.choose(
                [(0, 3, 1), (0, 2, 1), (3, 0, -1), (0, 0, 1), (1, 6, 2), ("m", 4, 1), (0, "m", 1)]
            )
            name = f"k{self.loops}"
            self.loops += 1
            body = self.block(depth - 1)
            self.loops -= 1
            return (self.choose(["for", "for", "static"]) if "m" not in bounds else "for", name, bounds, body)
        if kind < 0.5:
            return ("call", self.helper(), self.choose(SCALARS), self.choose(TILES), self.choose(SCALARS))
        if kind < 0.6:
            return ("store", int(self.rng.integers(SLOTS)), self.expression([*scalars, *TILES]))
        if kind < 0.7:
            return ("accumulate", int(self.rng.integers(SLOTS)), self.expression([*TILES]))
        if kind < 0.75:
            return ("load", self.choose(TILES), int(self.rng.integers(SLOTS)))
        if kind < 0.85:
            return ("assign", self.choose(SCALARS), self.expression(scalars))
        if kind < 0.9:
            return (
                "ternary",
                self.choose(SCALARS),
                self.condition(),
                self.expression(scalars),
                self.expression(scalars),
            )
        return (
            "assign",
            self.choose(TILES),
            ("binary", "+", ("name", self.choose(TILES)), self.expression([*scalars, *TILES])),
        )

    def block(self, depth):
        return [self.statement(depth) for _ in range(self.rng.integers(1, 4))]

    def helper(self):
        """A function of a scalar and a tile that returns one of each."""
        if len(self.helpers) < 2:
            parts = [
                self.expression(["s"], 2),
                ("binary", "+", ("name", "t"), self.expression(["s", "t"], 2)),
            ]
            self.helpers.append((self.expression(["s"], 1), parts, self.expression(["s"], 1)))
        return int(self.rng.integers(len(self.helpers)))


def text_of(expression):
    kind, *parts = expression
    if kind in ("constant", "name"):
        return f"({parts[0]})" if kind == "constant" else parts[0]
    if kind in ("binary", "compare"):
        return f"({text_of(parts[1])} {parts[0]} {text_of(parts[2])})"
    return f"({text_of(parts[0])} {kind} {text_of(parts[1])})"


def lines_of(block, indent=1):
    """The statements as lines of a kernel."""
    pad, lines = "    " * indent, []
    for kind, *parts in block:
        if kind == "if":
            lines += [f"{pad}if {text_of(parts[0])}:", *lines_of(parts[1], indent + 1)]
            lines += [f"{pad}else:", *lines_of(parts[2], indent + 1)] if parts[2] else []
        elif kind in ("for", "static"):
            function = "range" if kind == "for" else "tl.static_range"
            lines += [
                f"{pad}for {parts[0]} in {function}{parts[1]}:".replace("'", ""),
                *lines_of(parts[2], indent + 1),
            ]
        elif kind == "call":
            lines.append(f"{pad}{parts[3]}, {parts[2]} = helper{parts[0]}({parts[1]}, t={parts[2]})")
        elif kind == "store":
            lines.append(f"{pad}tl.store(out_ptr + {parts[0] * N} + i, {text_of(parts[1])})")
        elif kind == "accumulate":
            place = f"out_ptr + {parts[0] * N} + i"
            lines.append(f"{pad}tl.store({place}, tl.load({place}) + {text_of(parts[1])})")
        elif kind == "load":
            lines.append(f"{pad}{parts[0]} = tl.load(out_ptr + {parts[1] * N} + i)")
        elif kind == "assign":
            lines.append(f"{pad}{parts[0]} = {text_of(parts[1])}")
        else:
            lines.append(
                f"{pad}{parts[0]} = {text_of(parts[2])} if {text_of(parts[1])} else {text_of(parts[3])}"
            )
    return lines


def kernel_of(writer, program):
    helpers = ""
    for index, (test, (scalar, tile), other) in enumerate(writer.helpers):
        helpers += (
            f"@triton.jit\ndef helper{index}(s, t):\n    if {text_of(test)} > 0:\n"
            f"        return {text_of(scalar)} + s * 0, {text_of(tile)}\n    return {text_of(other)} + s * 0, t\n\n\n"
        )
    header = f"@triton.jit\ndef kernel(x_ptr, out_ptr, a, b, c, m):\n    i = tl.arange(0, {N})\n"
    header += "".join(f"    {name} = {name} * 1\n" for name in SCALARS)
    header += "".join(f"    {name} = tl.load(x_ptr + {k * N} + i)\n" for k, name in enumerate(TILES))
    ends = "".join(
        f"    tl.store(out_ptr + {(SLOTS + k) * N} + i, {name})\n"
        for k, name in enumerate([*TILES, *SCALARS])
    )
    return helpers + header + "\n".join(lines_of(program)) + "\n" + ends


def value_of(expression, names):
    kind, *parts = expression
    if kind == "constant":
        return np.int32(parts[0])
    if kind == "name":
        return names[parts[0]]
    if kind in ("binary", "compare"):
        function = OPERATORS[parts[0]] if kind == "binary" else COMPARISONS[parts[0]]
        return function(value_of(parts[1], names), value_of(parts[2], names))
    left, right = value_of(parts[0], names), value_of(parts[1], names)
    return (left and right) if kind == "and" else (left or right)


def execute(block, names, memory, helpers):
    """The statements on numpy int32, with every name in `names`."""
    for kind, *parts in block:
        if kind == "if":
            execute(parts[1] if value_of(parts[0], names) else parts[2], names, memory, helpers)
        elif kind in ("for", "static"):
            for k in range(*(int(names["m"]) if bound == "m" else bound for bound in parts[1])):
                names[parts[0]] = np.int32(k)
                execute(parts[2], names, memory, helpers)
        elif kind == "call":
            test, (scalar, tile), other = helpers[parts[0]]
            local = {"s": names[parts[1]], "t": names[parts[2]]}
            is_early = value_of(test, local) > 0
            names[parts[3]] = value_of(scalar if is_early else other, local)
            names[parts[2]] = value_of(tile, local) if is_early else local["t"]
        elif kind == "store":
            memory[parts[0]] = value_of(parts[1], names)
        elif kind == "accumulate":
            memory[parts[0]] = memory[parts[0]] + value_of(parts[1], names)
        elif kind == "load":
            names[parts[0]] = memory[parts[1]].copy()
        elif kind == "assign":
            names[parts[0]] = value_of(parts[1], names)
        else:
            names[parts[0]] = value_of(parts[2] if value_of(parts[1], names) else parts[3], names)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed, device):
    writer = Writer(seed)
    program = [statement for _ in range(5) for statement in writer.block(3)]
    text = kernel_of(writer, program)
    for round_ in range(2):
        rng = np.random.default_rng([seed, round_])
        x = rng.integers(-1000, 1000, (len(TILES), N)).astype(np.int32)
        arguments = [int(value) for value in rng.integers(-4, 5, 3)] + [int(rng.integers(0, 4))]
        out = to_device(np.zeros((SLOTS + 6, N)), "int32", device)
        names = dict(zip(TILES, x, strict=True)) | {
            name: np.int32(value) for name, value in zip([*SCALARS, "m"], arguments, strict=True)
        }
        memory = np.zeros((SLOTS, N), np.int32)
        with np.errstate(over="ignore"):
            execute(program, names, memory, writer.helpers)
        expected = np.stack([*memory, *(np.broadcast_to(names[name], N) for name in [*TILES, *SCALARS])])
        module(text).kernel[(1,)](to_device(x, "int32", device), out, *arguments)
        assert_same(to_host(out), expected.astype(np.int32), (), f"{arguments}\n{text}")
