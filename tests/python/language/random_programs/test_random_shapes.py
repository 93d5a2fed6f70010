"""Random chains of operations on shapes: transposes, reshapes, new axes, broadcasts and reductions, against numpy."""

import itertools

import numpy as np
import pytest
from helpers import assert_same, convert, empty, is_float, module, to_device, to_host

TYPES = ("int32", "int64", "uint32", "int8", "float32")
LARGEST = 4096


def factors(total, rng):
    """Powers of two, one to three of them, whose product is `total`."""
    rank = int(rng.choice([1, 2, 2, 3, 3]))
    shape = [1] * rank
    while total > 1:
        shape[rng.integers(rank)] *= 2
        total //= 2
    return tuple(shape)


class Generator:
    """Variables are (values, element type), each with a shape of its own. Floats stay small, so that they are exact."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lines = []
        self.inputs = {}
        self.variables = {}
        for name in ("x", "y"):
            shape = factors(int(2 ** self.rng.integers(3, 9)), self.rng)
            dtype = self.choose(TYPES)
            values = convert(self.rng.integers(0 if dtype == "uint32" else -3, 4, shape), dtype)
            self.inputs[name] = self.variables[name] = (values, dtype)

    def choose(self, options):
        options = list(options)
        return options[self.rng.integers(len(options))]

    def variable(self, accept=lambda values: True):
        names = [name for name, (values, _) in self.variables.items() if accept(values)]
        name = self.choose(names or self.variables)
        return name, *self.variables[name]

    def transpose(self):
        name, values, dtype = self.variable()
        order = [int(axis) for axis in self.rng.permutation(values.ndim)]
        if values.ndim == 2 and order == [1, 0] and self.rng.random() < 0.5:
            return f"{name}.T", values.T, dtype
        function = self.choose(["tl.trans", "tl.permute"])
        return f"{function}({name}, {tuple(order)})", values.transpose(order), dtype

    def reshape(self):
        name, values, dtype = self.variable()
        shape = factors(values.size, self.rng)
        return f"tl.reshape({name}, {shape})", values.reshape(shape), dtype

    def expand(self):
        name, values, dtype = self.variable(lambda values: values.ndim < 3)
        if values.ndim >= 3:
            return None
        axis = int(self.rng.integers(0, values.ndim + 1))
        if self.rng.random() < 0.5:
            return f"tl.expand_dims({name}, {axis})", np.expand_dims(values, axis), dtype
        index = ", ".join("None" if k == axis else ":" for k in range(values.ndim + 1))
        return f"{name}[{index}]", np.expand_dims(values, axis), dtype

    def broadcast(self):
        name, values, dtype = self.variable(lambda values: 1 in values.shape)
        shape = tuple(n if n > 1 else int(self.choose([1, 2, 4, 8])) for n in values.shape)
        if np.prod(shape) > LARGEST:
            return None
        return f"tl.broadcast_to({name}, {shape})", np.broadcast_to(values, shape), dtype

    def reduce(self):
        name, values, dtype = self.variable(lambda values: values.ndim > 1)
        if values.ndim < 2:
            return None
        axis = int(self.rng.integers(values.ndim))
        keep = bool(self.rng.random() < 0.3)
        function = self.choose(
            ["sum", "max", "min", "argmax", "argmin"] + ["xor_sum"] * (not is_float(dtype))
        )
        text = f"tl.{function}({name}, axis={self.choose([axis, axis - values.ndim])}, keep_dims={keep})"
        if function == "sum":
            out = "int32" if dtype == "int8" else dtype
            return text, values.sum(axis=axis, keepdims=keep, dtype=out), out
        if function in ("max", "min"):
            out = "int32" if dtype == "int8" else dtype
            return text, getattr(values, function)(axis=axis, keepdims=keep).astype(out), out
        if function == "xor_sum":
            return text, np.bitwise_xor.reduce(values, axis=axis, keepdims=keep), dtype
        return text, getattr(values, function)(axis=axis, keepdims=keep).astype(np.int32), "int32"

    def binary(self):
        left, right = self.variable(), self.variable()
        pairs = [
            (a, b)
            for a, b in itertools.product(self.variables.items(), repeat=2)
            if a[1][1] == b[1][1] and a[1][0].ndim == b[1][0].ndim and a[1][0].ndim > 0
            and all(m == n or 1 in (m, n) for m, n in zip(a[1][0].shape, b[1][0].shape, strict=True))
        ]  # fmt: skip
        if not pairs:
            return None
        (left, (x, dtype)), (right, (y, _)) = self.choose(pairs)
        if np.broadcast(x, y).size > LARGEST:
            return None
        kind = self.choose(["add", "where", "minimum"])
        with np.errstate(over="ignore"):
            if kind == "add":
                # Kept small by the remainder.
                text = f"({left} + {right})"
                return text, x + y, dtype
            if kind == "where":
                return f"tl.where({left} > {right}, {left}, {right})", np.where(x > y, x, y), dtype
            return f"tl.minimum({left}, {right})", np.minimum(x, y), dtype

    def statement(self):
        kinds = [
            self.transpose,
            self.reshape,
            self.expand,
            self.broadcast,
            self.reduce,
            self.reduce,
            self.binary,
        ]
        made = self.choose(kinds)()
        if made is None:
            return
        text, values, dtype = made
        if is_float(dtype) and np.abs(values).max() > 2**20:
            return
        name = f"v{len(self.variables)}"
        self.lines.append(f"{name} = {text}")
        self.variables[name] = (np.ascontiguousarray(values), dtype)

    def kernel(self):
        for _ in range(14):
            self.statement()
        lines = []
        for name, (values, _) in self.inputs.items():
            lines.append(
                f"{name} = tl.reshape(tl.load({name}_ptr + tl.arange(0, {values.size})), {values.shape})"
            )
        lines += self.lines
        results = {name: found for name, found in self.variables.items() if name not in self.inputs}
        for name, (values, _) in results.items():
            place = f"out_{name} + tl.arange(0, {values.size})"
            lines.append(f"tl.static_assert({name}.numel == {values.size})")
            lines.append(f"tl.store({place}, tl.reshape({name}, ({values.size},)))")
        parameters = [*(f"{name}_ptr" for name in self.inputs), *(f"out_{name}" for name in results)]
        body = "\n".join(f"    {line}" for line in lines)
        return f"@triton.jit\ndef kernel({', '.join(parameters)}):\n{body}\n", results


@pytest.mark.parametrize("seed", range(150))
def test_random_shapes(seed, device):
    generator = Generator(seed)
    text, results = generator.kernel()
    inputs = [to_device(values.ravel(), dtype, device) for values, dtype in generator.inputs.values()]
    outputs = {name: empty((values.size,), dtype, device) for name, (values, dtype) in results.items()}
    module(text).kernel[(1,)](*inputs, *outputs.values())
    for name, (values, dtype) in results.items():
        assert_same(to_host(outputs[name]), values.ravel().astype(dtype), (), f"{name}: {dtype} in\n{text}")
