"""Random kernels: statements over tensors and scalars of all types, generated as source text, against numpy.

The seed of a failure is the name of the test; the assertion shows the kernel.
"""

import numpy as np
import pytest
from helpers import (
    CARRIER,
    assert_same,
    convert,
    empty,
    is_float,
    is_unsigned,
    module,
    promote,
    sample,
    to_device,
    to_host,
)
from helpers_oracle import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    arithmetic,
    c_quotient,
    c_remainder,
    cast,
    shifted,
)

TYPES = (
    "int1",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
N = 256


class Generator:
    """Writes statements and computes what they mean. A variable is (values, element type)."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lines = []
        self.variables = {}
        self.inputs = {}
        for index in range(3):
            self.add_input(f"x{index}", self.choose(TYPES))

    def choose(self, options):
        options = list(options)
        return options[self.rng.integers(len(options))]

    def add_input(self, name, dtype):
        values = self.rng.permutation(sample(dtype, N, seed=int(self.rng.integers(1 << 30))))[:N]
        self.inputs[name] = self.variables[name] = (values, dtype)

    def operand(self, accept=lambda dtype: True):
        """A variable with an acceptable type; a cast of one where there is none."""
        names = [name for name, (_, dtype) in self.variables.items() if accept(dtype)]
        if names and self.rng.random() < 0.9:
            name = self.choose(names)
            return name, *self.variables[name]
        name = self.choose(self.variables)
        values, dtype = self.variables[name]
        out = self.choose(filter(accept, TYPES))
        return f"{name}.to(tl.{out})", cast(values, dtype, out), out

    def common(self, left, right):
        dtype = promote(left[2], right[2])
        return dtype, convert(left[1], dtype), convert(right[1], dtype)

    def arithmetic(self):
        left, right = self.operand(), self.operand()
        symbol = self.choose(ARITHMETIC)
        dtype, a, b = self.common(left, right)
        return f"{left[0]} {symbol} {right[0]}", arithmetic(symbol, a, b, dtype), dtype

    def bitwise(self):
        left, right = (self.operand(lambda dtype: not is_float(dtype)) for _ in range(2))
        symbol = self.choose(BITWISE)
        dtype, a, b = self.common(left, right)
        return f"{left[0]} {symbol} {right[0]}", BITWISE[symbol](a, b), dtype

    def comparison(self):
        left, right = self.operand(), self.operand()
        symbol = self.choose(COMPARISONS)
        _, a, b = self.common(left, right)
        return f"{left[0]} {symbol} {right[0]}", COMPARISONS[symbol](a, b), "int1"

    def shift(self):
        text, values, dtype = self.operand(
            lambda dtype: not is_float(dtype) and dtype not in ("int1", "int8")
        )
        count = int(self.rng.integers(0, 18))
        symbol = self.choose(["<<", ">>"])
        return f"{text} {symbol} {count}", shifted(symbol, values, np.full_like(values, count)), dtype

    def division(self):
        text, values, dtype = self.operand(lambda dtype: not is_float(dtype) and dtype != "int1")
        divisor = int(self.choose([0, 1, 2, 3, 7, 16, 100]))
        symbol, function = self.choose([("//", c_quotient), ("%", c_remainder)])
        return f"{text} {symbol} {divisor}", function(values, np.full_like(values, divisor)), dtype

    def extremum(self):
        left, right = (self.operand(lambda dtype: not is_float(dtype) and dtype != "int1") for _ in range(2))
        name = self.choose(["maximum", "minimum"])
        dtype, a, b = self.common(left, right)
        return f"tl.{name}({left[0]}, {right[0]})", getattr(np, name)(a, b), dtype

    def select(self):
        condition, left = self.operand(lambda dtype: dtype == "int1"), self.operand()
        right = self.operand(lambda dtype: dtype == left[2])
        return (
            f"tl.where({condition[0]}, {left[0]}, {right[0]})",
            np.where(condition[1], left[1], right[1]),
            left[2],
        )

    def conversion(self):
        text, values, dtype = self.operand()
        out = self.choose(TYPES)
        return f"{text}.to(tl.{out})", cast(values, dtype, out), out

    def unary(self):
        text, values, dtype = self.operand(lambda dtype: dtype != "int1")
        with np.errstate(all="ignore"):
            if is_float(dtype) or (self.rng.random() < 0.5 and not is_unsigned(dtype)):
                if self.rng.random() < 0.5:
                    return f"tl.abs({text})", np.abs(values), dtype
                return f"-{text}", -values, dtype
        return f"~{text}", ~values, dtype

    def expression(self):
        kinds = [self.arithmetic] * 4 + [self.bitwise] * 2 + [self.comparison, self.shift, self.division]
        kinds += [self.extremum, self.select, self.select, self.conversion, self.unary]
        return self.choose(kinds)()

    def statement(self):
        if self.rng.random() < 0.15:
            self.loop()
            return
        text, values, dtype = self.expression()
        # A few names only, so that they are assigned again with other types.
        name = f"v{self.rng.integers(5)}"
        self.lines.append(f"{name} = {text}")
        self.variables[name] = (values, dtype)

    def loop(self):
        """`for k in range(n): a = a op b` with the type of a kept."""
        name = self.choose(self.variables)
        values, dtype = self.variables[name]
        other = self.operand(lambda other: promote(dtype, other) == dtype)
        symbol = self.choose(ARITHMETIC)
        if promote(dtype, other[2]) != dtype or (other[0] != name and other[0].startswith(f"{name}.")):
            return
        count = int(self.rng.integers(0, 4))
        bound = self.choose([f"{count}", f"n - {N - count}"])
        self.lines.append(f"for k in range({bound}):")
        self.lines.append(f"    {name} = {name} {symbol} {other[0]}")
        step = convert(other[1], dtype)
        for _ in range(count):
            values = arithmetic(symbol, values, values if other[0] == name else step, dtype)
        self.variables[name] = (values, dtype)

    def kernel(self, statements=12):
        """The text, and what is to be stored at the end: the variables."""
        for _ in range(statements):
            self.statement()
        results = dict(self.variables)
        parameters = [*self.inputs, *(f"out_{name}" for name in results)]
        lines = ["i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "mask = i < n"]
        lines += [f"{name} = tl.load({name}_ptr + i, mask=mask, other=0)" for name in self.inputs]
        lines += self.lines
        lines += [f"tl.store(out_{name} + i, {name}, mask=mask)" for name in results]
        header = ", ".join(name + "_ptr" if name in self.inputs else name for name in parameters)
        body = "\n".join(f"    {line}" for line in lines)
        return f"@triton.jit\ndef kernel({header}, n, BLOCK: tl.constexpr):\n{body}\n", results


@pytest.mark.parametrize("seed", range(150))
def test_random_kernels(seed, device):
    generator = Generator(seed)
    text, results = generator.kernel()
    inputs = [to_device(values, dtype, device) for values, dtype in generator.inputs.values()]
    outputs = {name: empty((N,), dtype, device) for name, (_, dtype) in results.items()}
    module(text).kernel[(4,)](*inputs, *outputs.values(), N, BLOCK=64)
    for name, (values, dtype) in results.items():
        found = to_host(outputs[name])
        assert found.dtype == CARRIER[dtype]
        assert_same(found, values.astype(CARRIER[dtype]), (), f"{name}: {dtype} in\n{text}")
