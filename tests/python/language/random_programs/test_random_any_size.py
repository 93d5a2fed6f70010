"""Random chains of operations on tiles of any size and up to nine axes, slices and scans among them, against numpy."""

import os

import numpy as np
import pytest
from helpers import assert_same, convert, empty, is_float, module, to_device, to_host

TYPES = ("int32", "int32", "int64", "uint32", "int8", "int16", "uint8", "float32", "float16")
LARGEST = 1500
AXES = 9
WIDER = {"int8": "int32", "int16": "int32", "uint8": "uint32"}


def factors(total, rng, rank=None):
    """One to nine numbers whose product is `total`."""
    rank = rank or int(rng.choice([1, 2, 2, 3, 3, 4, 5, 7, AXES]))
    shape = [1] * rank
    prime = 2
    while total > 1:
        if total % prime == 0:
            shape[rng.integers(rank)] *= prime
            total //= prime
        else:
            prime += 1
    return tuple(shape)


class Generator:
    """Variables are (values, element type). Floats are small integers, so that they are exact."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.lines = []
        self.inputs = {}
        self.variables = {}
        for name in ("x", "y"):
            rank = int(self.choose([1, 2, 2, 3, 3, 4]))
            shape = tuple(int(self.choose([1, 2, 3, 4, 5, 6, 7, 8, 11, 13])) for _ in range(rank))
            while np.prod(shape) > 600:
                shape = shape[1:]
            dtype = self.choose(TYPES)
            values = convert(self.rng.integers(0 if dtype[0] == "u" else -3, 4, shape), dtype)
            self.inputs[name] = self.variables[name] = (values, dtype)

    def choose(self, options):
        options = list(options)
        return options[self.rng.integers(len(options))]

    def variable(self, accept=lambda values: values.ndim > 0):
        names = [name for name, (values, _) in self.variables.items() if accept(values)]
        name = self.choose(names or self.variables)
        return name, *self.variables[name]

    def axis(self, values):
        """An axis, and how it is written."""
        axis = int(self.rng.integers(values.ndim))
        return axis, int(self.choose([axis, axis - values.ndim]))

    def transpose(self):
        name, values, dtype = self.variable()
        order = [int(axis) for axis in self.rng.permutation(values.ndim)]
        return f"tl.permute({name}, {tuple(order)})", values.transpose(order), dtype

    def reshape(self):
        name, values, dtype = self.variable()
        shape = factors(values.size, self.rng)
        return f"tl.reshape({name}, {shape})", values.reshape(shape), dtype

    def expand(self):
        name, values, dtype = self.variable(lambda values: values.ndim < AXES)
        if values.ndim >= AXES:
            return None
        axis = int(self.rng.integers(0, values.ndim + 1))
        index = ", ".join("None" if k == axis else ":" for k in range(values.ndim + 1))
        return f"{name}[{index}]", np.expand_dims(values, axis), dtype

    def broadcast(self):
        name, values, dtype = self.variable(lambda values: 1 in values.shape)
        shape = tuple(n if n > 1 else int(self.choose([1, 2, 3, 5, 6])) for n in values.shape)
        if np.prod(shape) > LARGEST:
            return None
        return f"tl.broadcast_to({name}, {shape})", np.broadcast_to(values, shape), dtype

    def slice(self):
        name, values, dtype = self.variable()
        texts, index = [], []
        for n in values.shape:
            kind = self.rng.integers(6)
            start, stop = sorted(int(place) for place in self.rng.integers(0, n + 1, 2))
            step = int(self.choose([1, 1, 2, 3]))
            if kind < 2 or start == stop:
                texts.append(":")
                index.append(slice(None))
            elif kind == 2:
                place = int(self.rng.integers(-n, n))
                texts.append(str(place))
                index.append(place)
            elif kind == 3:
                texts.append(f"::{-step}")
                index.append(slice(None, None, -step))
            elif kind == 4:
                texts.append(f"{start - n}:{stop if stop < n else ''}:{step}")
                index.append(slice(start - n, stop if stop < n else None, step))
            else:
                texts.append(f"{start}:{stop}:{step}")
                index.append(slice(start, stop, step))
        if self.rng.random() < 0.2:
            cut = int(self.rng.integers(len(texts)))
            texts, index = [*texts[:cut], "..."], [*index[:cut], ...]
        found = values[tuple(index)]
        if found.ndim == 0 or found.size == 0:
            return None
        return f"{name}[{', '.join(texts)}]", found, dtype

    def flip(self):
        name, values, dtype = self.variable()
        axis, written = self.axis(values)
        return f"tl.flip({name}, {written})", np.flip(values, axis), dtype

    def join(self):
        name, values, dtype = self.variable(lambda values: 0 < values.ndim < AXES)
        if values.ndim >= AXES or values.size * 2 > LARGEST:
            return None
        kind = self.choose(["join", "interleave", "cat"])
        if kind == "join":
            return f"tl.join({name}, {name} + {name})", np.stack([values, values + values], -1), dtype
        if kind == "interleave":
            # Zeros of either sign have no order.
            found = np.stack([values, 0 - values], -1).reshape(*values.shape[:-1], -1)
            return f"tl.interleave({name}, 0 - {name})", found, dtype
        axis, written = self.axis(values)
        other = np.flip(values, axis)
        found = np.concatenate([values, other], axis)
        return f"tl.cat({name}, tl.flip({name}, {axis}), dim={written})", found, dtype

    def split(self):
        name, values, dtype = self.variable(lambda values: values.ndim > 1 and values.shape[-1] == 2)
        if values.ndim < 2 or values.shape[-1] != 2:
            return None
        place = int(self.rng.integers(2))
        return f"tl.split({name})[{place}]", values[..., place], dtype

    def reduce(self):
        name, values, dtype = self.variable(lambda values: values.ndim > 1)
        if values.ndim < 2:
            return None
        axis, written = self.axis(values)
        keep = bool(self.rng.random() < 0.3)
        names = ["sum", "max", "min", "argmax", "argmin"] + ["xor_sum"] * (not is_float(dtype))
        function = self.choose(names)
        text = f"tl.{function}({name}, axis={written}, keep_dims={keep})"
        wide = WIDER.get(dtype, dtype)
        if function == "sum":
            return text, values.sum(axis=axis, keepdims=keep, dtype=wide), wide
        if function in ("max", "min"):
            wide = "float32" if dtype == "float16" else wide
            return text, getattr(values, function)(axis=axis, keepdims=keep), None
        if function == "xor_sum":
            return text, np.bitwise_xor.reduce(values, axis=axis, keepdims=keep), None
        return text, getattr(values, function)(axis=axis, keepdims=keep), "int32"

    def scan(self):
        name, values, dtype = self.variable()
        axis, written = self.axis(values)
        reverse = bool(self.rng.random() < 0.4)
        turned = np.flip(values, axis) if reverse else values
        found = np.cumsum(turned, axis=axis, dtype=WIDER.get(dtype, dtype))
        found = np.flip(found, axis) if reverse else found
        return f"tl.cumsum({name}, {written}, reverse={reverse})", found, None

    def sort(self):
        name, values, dtype = self.variable()
        axis = values.ndim - 1
        n = values.shape[axis]
        if n & (n - 1):
            return None
        descending = bool(self.rng.random() < 0.5)
        found = np.sort(values, axis=axis)
        found = np.flip(found, axis) if descending else found
        return f"tl.sort({name}, descending={descending})", found, dtype

    def gather(self):
        name, values, dtype = self.variable()
        axis, written = self.axis(values)
        n = values.shape[axis]
        index = np.broadcast_to(
            np.arange(n).reshape([n if k == axis else 1 for k in range(values.ndim)]) * 5 % n, values.shape
        )
        shape = ", ".join(":" if k == axis else "None" for k in range(values.ndim))
        text = f"tl.broadcast_to((tl.arange(0, {n}) * 5 % {n})[{shape}], {values.shape})"
        return f"tl.gather({name}, {text}, {written})", np.take_along_axis(values, index, axis), dtype

    def histogram(self):
        name, values, dtype = self.variable(lambda values: values.ndim == 1 and values.size > 1)
        if values.ndim != 1 or dtype not in ("int32", "uint32"):
            return None
        bins = int(self.choose([1, 2, 3, 4, 7, 8]))
        inside = values[(values >= 0) & (values < bins)].astype(np.int64)
        found = np.bincount(inside, minlength=bins).astype(np.int32)
        return f"tl.histogram({name}, {bins})", found, "int32"

    def dot(self):
        name, values, dtype = self.variable(lambda values: values.ndim in (2, 3))
        if (
            values.ndim not in (2, 3)
            or dtype not in ("float32", "float16", "int8")
            or np.abs(values).max() > 64
        ):
            return None
        wide = "int32" if dtype == "int8" else "float32"
        exact = values.astype(wide)
        found = exact @ np.swapaxes(exact, -1, -2)
        if found.size > LARGEST:
            return None
        order = (1, 0) if values.ndim == 2 else (0, 2, 1)
        return f"tl.dot({name}, tl.permute({name}, {order}), out_dtype=tl.{wide})", found, wide

    def binary(self):
        name, x, dtype = self.variable()
        axis = int(self.rng.integers(x.ndim))
        y = np.flip(x, axis)
        other = f"tl.flip({name}, {axis})"
        kind = self.choose(["add", "where", "minimum"])
        if kind == "add":
            return f"({name} + {other})", x + y, dtype
        if kind == "where":
            return (
                f"tl.where({name} > {other}, {name}, {other} + 1)",
                np.where(x > y, x, y + y.dtype.type(1)),
                dtype,
            )
        return f"tl.minimum({name}, {other})", np.minimum(x, y), dtype

    def branch(self):
        """A tile that a loop carries."""
        name, values, dtype = self.variable()
        target = f"v{len(self.variables)}"
        self.lines += [f"{target} = {name}", "for i in range(n):", f"    {target} = {target} + {name}"]
        self.variables[target] = (values * values.dtype.type(3), dtype)

    def statement(self):
        kinds = [
            *[self.transpose, self.reshape, self.expand, self.broadcast, self.slice, self.slice, self.flip, self.join],
            *[self.split, self.reduce, self.reduce, self.scan, self.sort, self.gather, self.histogram, self.dot],
            *[self.binary, self.branch],
        ]  # fmt: skip
        with np.errstate(over="ignore"):
            made = self.choose(kinds)()
        if made is None:
            return
        text, values, dtype = made
        dtype = dtype or str(values.dtype)
        largest = 60 if dtype == "float16" else 2**16
        if is_float(dtype) and np.abs(values).max() > largest:
            return
        name = f"v{len(self.variables)}"
        # The language chooses the type to which a reduction widens; other tests check it.
        self.lines.append(f"{name} = ({text}).to(tl.{dtype})")
        self.variables[name] = (np.ascontiguousarray(values.astype(dtype)), dtype)

    def kernel(self):
        for _ in range(12):
            self.statement()
        lines = []
        for name, (values, _) in self.inputs.items():
            lines.append(
                f"{name} = tl.reshape(tl.load({name}_ptr + tl.arange(0, {values.size})), {values.shape})"
            )
        lines += self.lines
        results = {name: found for name, found in self.variables.items() if name not in self.inputs}
        for name, (values, _) in results.items():
            lines.append(f"tl.static_assert({name}.shape == {values.shape})")
            place = f"out_{name} + tl.arange(0, {values.size})"
            lines.append(f"tl.store({place}, tl.reshape({name}, ({values.size},)))")
        parameters = [*(f"{name}_ptr" for name in self.inputs), *(f"out_{name}" for name in results), "n"]
        body = "\n".join(f"    {line}" for line in lines)
        return f"@triton.jit\ndef kernel({', '.join(parameters)}):\n{body}\n", results


# `TILEWRIGHT_SEEDS=100..200` tries these.
SEEDS = range(*map(int, os.environ.get("TILEWRIGHT_SEEDS", "0..30").split("..")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_tiles_of_any_size(seed, device):
    generator = Generator(seed)
    text, results = generator.kernel()
    inputs = [to_device(values.ravel(), dtype, device) for values, dtype in generator.inputs.values()]
    outputs = {name: empty((values.size,), dtype, device) for name, (values, dtype) in results.items()}
    module(text).kernel[(1,)](*inputs, *outputs.values(), 2, num_warps=(1, 4, 2, 8)[seed % 4])
    for name, (values, dtype) in results.items():
        assert_same(to_host(outputs[name]), values.ravel().astype(dtype), (), f"{name}: {dtype} in\n{text}")
