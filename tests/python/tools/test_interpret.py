"""Interpret mode: Python runs the body of a kernel. What Python does works in it, and the language stays the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import PATIENCE, ROOT

import tilewright
from tilewright.runtime.interpreter import InterpretedFunction, hook, interpret, interpreter_builder

torch = pytest.importorskip("torch")


@pytest.fixture(params=["compiled", "interpreted"])
def interpret_or_not(request):
    """Makes a kernel one that is compiled or interpreted: both must do the same."""
    return interpret if request.param == "interpreted" else lambda kernel: kernel


def test_values_print_like_arrays(module, capsys):
    k = module("""
        @triton.jit(interpret=True)
        def kernel(x_ptr, n, BLOCK: tl.constexpr):
            pid = tl.program_id(0)
            offs = pid * BLOCK + tl.arange(0, BLOCK)
            mask = offs < n
            x = tl.load(x_ptr + offs, mask=mask)
            print(pid, offs, mask, BLOCK)
            print(f"{x} | {x.dtype} {x.shape} {x.type} {x_ptr.dtype} {pid.shape}")
            print(x[None, :], tl.sum(x), repr(pid), f"{tl.sum(x):.2f}")
            print(type(x), type(pid), x.handle.data.dtype, x.handle.data[0], (x_ptr + offs).dtype)
    """)
    x = torch.arange(3, dtype=torch.float32)
    k.kernel[(2,)](x, 3, BLOCK=2)
    assert capsys.readouterr().out.splitlines() == [
        "[0] [0 1] [ True  True] 2",
        "[0. 1.] | fp32 (2,) <[2], fp32> pointer<fp32> ()",
        "[[0. 1.]] [1.] tensor([0], int32) 1.00",
        "<class 'triton.language.core.tensor'> <class 'triton.language.core.tensor'> float32 0.0 pointer<fp32>",
        "[1] [2 3] [ True False] 2",
        "[2. 0.] | fp32 (2,) <[2], fp32> pointer<fp32> ()",
        "[[2. 0.]] [2.] tensor([1], int32) 2.00",
        "<class 'triton.language.core.tensor'> <class 'triton.language.core.tensor'> float32 2.0 pointer<fp32>",
    ]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int8", [-128, 127]),
        ("uint64", [0, 2**64 - 1]),
        ("float16", [0.5, -65504.0]),
        ("bfloat16", [0.5, -3.0]),
        ("float64", [0.1, 1e300]),
        ("float8e5", [0.75, -57344.0]),
        ("float8e4nv", [0.0625, -448.0]),
        ("int1", [True, False]),
    ],
)
def test_elements_as_an_array(module, dtype, values):
    k = module("""
        seen = []

        @triton.jit(interpret=True)
        def kernel(DTYPE: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
            i = tl.arange(0, 2)
            # Made in 64 bits, where there are such.
            wide = tl.full([2], A, tl.float64 if isinstance(A, float) else DTYPE)
            other = tl.full([2], B, tl.float64 if isinstance(A, float) else DTYPE)
            seen.append(tl.where(i == 0, wide, other).to(DTYPE))
    """)
    k.kernel[(1,)](getattr(tilewright.language, dtype), *values)
    array = k.seen[0].handle.data
    assert array.tolist() == values


def test_any_function_of_python_works(module, capsys):
    k = module("""
        import json

        table = {}

        def note(pid, x):
            table[int(pid)] = [float(v) for v in x.handle.data]

        @triton.jit(interpret=True)
        def kernel(x_ptr, o_ptr):
            pid = tl.program_id(0)
            x = tl.load(x_ptr + pid * 2 + tl.arange(0, 2))
            note(pid, x)
            names = {"scale": 3}
            for name, value in sorted(names.items()):
                x = x * value
            try:
                json.loads("{")
            except ValueError as error:
                print(type(error).__name__)
            total = sum(range(4))
            y = [x + i for i in range(2)][1]
            with open(__file__) as f:
                assert "kernel" in f.read()
            while True:
                break
            tl.store(o_ptr + pid * 2 + tl.arange(0, 2), y + total)
    """)
    x, o = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4)
    k.kernel[(2,)](x, o)
    assert k.table == {0: [1.0, 2.0], 1: [3.0, 4.0]}
    assert o.tolist() == [10.0, 13.0, 16.0, 19.0]
    assert capsys.readouterr().out == "JSONDecodeError\n" * 2


BROAD = """
import collections

Pair = collections.namedtuple("Pair", ["lo", "hi"])
SCALE = tl.constexpr(3)


@triton.jit
def combine(a, b):
    return tl.maximum(a, b) + 0 * a


@triton.jit
def weighted(value, factor: tl.constexpr, bias=1):
    total = value * factor
    if factor > 2:
        total += bias
    return total, Pair(total - 1, total + 1)


@triton.jit
def kernel(x_ptr, y_ptr, o_ptr, n, one, half, flag, BLOCK: tl.constexpr, DTYPE: tl.constexpr, NONE):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = (offs < n) & (offs >= 0)
    x = tl.load(x_ptr + offs, mask, other=0.5)
    y = tl.load(y_ptr + offs, mask=mask, other=7)
    acc = 0
    for i in range(0, 3):
        acc += i * 2
    steps = 0
    for j in tl.range(n, 0, -4):
        steps += j % 3
    for k in tl.static_range(2):
        acc += k
    while acc < 40:
        acc = acc * 2 + one
    z, pair = weighted(x, SCALE)
    z += pair.lo * half + pair.hi
    z = tl.where(y % 2 == 0, z, -z).to(DTYPE)
    low = -7
    quotient = low // 3 + low % 3
    if flag and NONE is None:
        z = z + quotient
    if not flag or acc > 1000:
        z = z * 0
    bounded = min(max(acc, 5), 50)
    best = tl.reduce(y, 0, combine)
    running = tl.associative_scan(y, 0, combine)
    table = tl.sort(y)
    noise = tl.rand(17, offs)
    grid = tl.num_programs(0) + tl.num_programs(1)
    value = z + best + running + table + (noise > 0.5) + steps + bounded + grid + (0 < acc < 100)
    tl.atomic_add(o_ptr + n + tl.program_id(0), tl.sum(z.to(tl.float32)))
    tl.store(o_ptr + offs, value, mask=mask)
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("half", [0.5, 2])
def test_a_broad_kernel_gives_the_same_bits(module, dtype, half):
    k = module(BROAD)
    rng = np.random.default_rng(7)
    x = torch.from_numpy(rng.standard_normal(21).astype(np.float32))
    y = torch.from_numpy(rng.integers(-50, 50, 21, dtype=np.int32))
    results = []
    for kernel in (k.kernel, interpret(k.kernel)):
        # A sum for each program: those of one sum come in any order.
        o = torch.zeros(24)
        arguments = (x, y, o, 21, 1, half, True, 8, getattr(tilewright.language, dtype), None)
        kernel[(3,)](*arguments)
        results.append(o)
    assert results[0].any()
    assert results[0].numpy().tobytes() == results[1].numpy().tobytes()


def test_out_of_bounds_is_told_in_the_same_words(module, interpret_or_not):
    k = module("""
        @triton.jit
        def kernel(x_ptr, o_ptr, BLOCK: tl.constexpr):
            offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(o_ptr + offs, tl.load(x_ptr + offs))
    """)
    x, o = torch.ones(6), torch.zeros(8)
    with pytest.raises(tilewright.errors.OutOfBoundsError) as raised:
        interpret_or_not(k.kernel)[(2,)](x, o, BLOCK=4)
    (found,) = raised.value.diagnostics
    assert (found.code, found.line, found.column, found.end_column) == ("TW0201", 4, 28, 49)
    assert found.message == "load out of bounds of `x_ptr`"
    assert found.label == "reads element 6 of `x_ptr`"
    assert found.notes == (
        "`x_ptr` has the elements 0 to 5 (24 bytes); the offset in elements is 6",
        "in program (1, 0, 0), at element [2] of the tile",
    )
    # The first program has had its effect, the second none.
    assert o.tolist() == [1.0] * 4 + [0.0] * 4


@pytest.mark.parametrize(
    "line",
    [
        "a = tl.arange(0, 8) + tl.arange(0, 4)",
        "a = tl.arange(0, 8); a += tl.arange(0, 4)",
        "a = tl.load(x_ptr, msk=None)",
        "a = tl.load(x_ptr + 1.5)",
        "a = tl.arange(0, 8).foo",
        "a = tl.arange(0, 8)[0, :]",
        "a = tl.dot(tl.zeros([16, 16], tl.float32), tl.zeros([32, 16], tl.float32))",
        "a = tl.sum(tl.zeros([4, 4], tl.float32), axis=2)",
        "a = tl.zeros([4], tl.float32) << 2",
        "a = tl.arange(0, 8); b = a if a > 3 else -a",
        "a = tl.arange(0, 8).to(3)",
        "a = tl.static_assert(1 == 2, 'never')",
        "tl.store(x_ptr, helper(tl.arange(0, 8), tl.arange(0, 4)))",
        "a = -x_ptr",
    ],
)
def test_mistakes_are_told_in_the_same_words(module, line):
    k = module(f"""
        @triton.jit
        def helper(a, b):
            return a * b

        @triton.jit
        def kernel(x_ptr):
            {line}
    """)
    texts = []
    for kernel in (k.kernel, interpret(k.kernel)):
        with pytest.raises(tilewright.CompilationError) as raised:
            kernel[(1,)](torch.zeros(1))
        found = raised.value.diagnostics[0]
        texts.append(
            (found.code, found.message, found.line, found.column, found.label, found.labels, found.notes)
        )
    assert texts[0] == texts[1]


def test_an_exception_points_at_its_line_and_program(module):
    k = module("""
        @triton.jit
        def helper(pid):
            if pid == 2:
                raise ValueError(f"no {pid}")

        @triton.jit(interpret=True)
        def kernel():
            helper(tl.program_id(1))
    """)
    with pytest.raises(ValueError, match=r"no \[2\]") as raised:
        k.kernel[(2, 3)]()
    lines = [(entry.name, entry.lineno + 1) for entry in raised.traceback[1:]]
    assert lines == [("kernel", 8), ("helper", 4)]
    notes = getattr(raised.value, "__notes__", None)
    assert notes in (None, ["in program (0, 2, 0) of the interpreted kernel 'kernel'"])


def test_a_tile_is_no_condition_and_no_number(module):
    k = module("""
        @triton.jit(interpret=True)
        def kernel(HOW: tl.constexpr):
            x = tl.arange(0, 4)
            HOW(x)
    """)
    with pytest.raises(tilewright.CompilationError, match="neither true nor false"):
        k.kernel[(1,)](tilewright.language.constexpr(bool))
    for how in (int, float, range, iter):
        with pytest.raises(TypeError):
            k.kernel[(1,)](tilewright.language.constexpr(how))


def test_sources_of_exec_and_of_none(module, capsys):
    names = {"triton": tilewright, "tl": tilewright.language, "scale": 5}
    text = "".join(
        [
            "@triton.jit(interpret=True)\n",
            "def kernel(x_ptr, n):\n",
            "    for i in range(n):\n",
            "        print(i)\n",
            "    tl.store(x_ptr, tl.load(x_ptr) * scale)\n",
        ]
    )
    exec(text, names)
    code = compile(text.replace("5", "5"), "<nowhere>", "exec")
    del text
    found = dict(names)
    exec(code, found)
    assert found["kernel"]._src is None
    for kernel, lines in ((names["kernel"], "[0]\n[1]\n"), (found["kernel"], "0\n1\n")):
        x = torch.ones(1)
        kernel[(1,)](x, 2)
        assert x.item() == 5.0
        assert capsys.readouterr().out == lines


@pytest.mark.parametrize("variable", ["TRITON_INTERPRET", "TILEWRIGHT_INTERPRET"])
@pytest.mark.parametrize("when", ["before the import", "before it is made", "before it is launched"])
def test_the_environment_asks_for_it(run, script, variable, when):
    program = script(f"""
        import os
        when = {when!r}
        if when == "before the import":
            os.environ[{variable!r}] = "1"
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        if when == "before it is made":
            os.environ[{variable!r}] = "1"

        @triton.jit
        def kernel(x_ptr):
            print(tl.program_id(0), open)

        if when == "before it is launched":
            os.environ[{variable!r}] = "1"
        kernel[(2,)](np.zeros(1))
    """)
    done = run(program)
    assert (done.err, done.out) == ("", "[0] <built-in function open>\n[1] <built-in function open>\n")


def test_a_debugger_stops_in_a_kernel(script):
    import subprocess
    import sys

    from conftest import environment_of

    program = script("""
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        @triton.jit(interpret=True)
        def kernel(x_ptr):
            pid = tl.program_id(0)
            if pid == 1:
                breakpoint()
            x = tl.load(x_ptr + pid)
            tl.store(x_ptr + pid, x + 1)

        x = np.array([1.0, 2.0], np.float32)
        kernel[(2,)](x)
        print("after", x)
    """)
    commands = "p pid\nnext\np x, x + 40\nw\nx = x * 10\ncontinue\n"
    done = subprocess.run(
        [sys.executable, program],
        input=commands,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment_of(None),
    )
    assert done.returncode == 0, done.stderr
    assert "tensor([1], int32)" in done.stdout
    assert "(tensor([2.], fp32), tensor([42.], fp32))" in done.stdout
    assert re.search(r"script\.py\(11\)kernel\(\)\n-> tl\.store\(x_ptr \+ pid, x \+ 1\)", done.stdout)
    assert done.stdout.endswith("after [ 2. 21.]\n")


def test_closures_defaults_and_keyword_parameters(module, interpret_or_not):
    k = module("""
        def make(factor):
            FACTOR = tl.constexpr(factor)

            @triton.jit
            def kernel(x_ptr, n=2, *, step=1.5, BLOCK: tl.constexpr = 4):
                i = tl.arange(0, BLOCK)
                tl.store(x_ptr + i, i * FACTOR + n + step)

            return kernel
    """)
    x = torch.zeros(4)
    interpret_or_not(k.make(10))[(1,)](x)
    assert x.tolist() == [3.5, 13.5, 23.5, 33.5]
    interpret_or_not(k.make(10))[(1,)](x, 0, step=0.25, BLOCK=2)
    assert x.tolist() == [0.25, 10.25, 23.5, 33.5]


def test_tuples_descriptors_and_aggregates(module, interpret_or_not):
    k = module("""
        import collections

        Args = collections.namedtuple("Args", ["x", "n"])

        @triton.aggregate
        class Window:
            base: tl.tensor
            width: tl.constexpr

            def __init__(self, base, width):
                self.base = base
                self.width = tl.constexpr(width)

            @triton.jit
            def load(self, at):
                return tl.load(self.base + at * self.width + tl.arange(0, self.width))

            @triton.jit
            def __add__(self, other):
                return Window(self.base + other, self.width)

        @triton.jit
        def kernel(args, o_ptr, pair):
            w = Window(args.x, 4) + 1
            block = tl.make_block_ptr(args.x, (args.n,), (1,), (0,), (4,), (0,))
            block = tl.advance(block, (2,))
            d = tl.make_tensor_descriptor(args.x, [4, 4], [4, 1], [2, 4])
            tile = d.load([2, 0])
            value = w.load(1) + tl.load(block, boundary_check=(0,)) + tl.sum(tile, 0) * pair[1]
            tl.store(o_ptr + tl.arange(0, 4), value + pair[0])
    """)
    x, o = torch.arange(16, dtype=torch.float32), torch.zeros(4)
    interpret_or_not(k.kernel)[(1,)](k.Args(x, 16), o, (0.5, 2))
    expected = x[5:9] + x[2:6] + (x[8:12] + x[12:16]) * 2 + 0.5
    assert o.tolist() == expected.tolist()


def test_pointers_that_are_read_from_memory(module, interpret_or_not):
    k = module("""
        @triton.jit
        def kernel(table_ptr, o_ptr):
            pid = tl.program_id(0)
            x_ptr = tl.load(table_ptr + pid).to(tl.pointer_type(tl.float32))
            tl.store(o_ptr + pid, tl.load(x_ptr))
    """)
    values = [torch.full((1,), float(number)) for number in (3, 8)]
    table = torch.tensor([value.data_ptr() for value in values], dtype=torch.int64)
    o = torch.zeros(2)
    interpret_or_not(k.kernel)[(2,)](table, o)
    assert o.tolist() == [3.0, 8.0]


def test_memory_that_is_only_read(module, interpret_or_not):
    k = module("""
        @triton.jit
        def kernel(x_ptr: tl.const):
            p = x_ptr + 1
            tl.store(p, 1.0)
    """)
    with pytest.raises(tilewright.CompilationError) as raised:
        interpret_or_not(k.kernel)[(1,)](torch.zeros(2))
    assert "x_ptr" in str(raised.value)


def test_prints_and_assertions_of_the_language(module, capfd, interpret_or_not):
    k = module("""
        @triton.jit(debug=True)
        def kernel(x_ptr, N: tl.constexpr):
            x = tl.load(x_ptr + tl.arange(0, N))
            tl.static_print("N", N)
            tl.device_print("x", x)
            tl.device_assert(x < 3, "too large")
    """)
    made = interpret_or_not(k.kernel)
    with pytest.raises(tilewright.errors.DeviceAssertionError, match="too large"):
        made[(1,)](torch.tensor([2, 3], dtype=torch.int32), N=2)
    out = capfd.readouterr().out.splitlines()
    assert out == ["N 2", "pid (0, 0, 0) idx (0) x: 2", "pid (0, 0, 0) idx (1) x: 3"]


def test_tuning_takes_a_configuration_without_timing_it(module):
    k = module("""
        @triton.autotune([triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
        @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
        @triton.jit(interpret=True)
        def kernel(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
            assert BLOCK == 4 and EVEN
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x_ptr + i, tl.load(x_ptr + i) + 1)
    """)
    x = torch.zeros(16)
    k.kernel[lambda meta: (16 // meta["BLOCK"],)](x, 16)
    assert x.tolist() == [1.0] * 16


def test_a_hook_sees_each_operation(module):
    k = module("""
        @triton.jit(interpret=True)
        def kernel(x_ptr):
            x = tl.load(x_ptr, mask=True)
            tl.store(x_ptr, x + 2)
    """)
    seen = []
    with hook(lambda *event: seen.append((*event, interpreter_builder.grid_idx))):
        k.kernel[(2,)](torch.ones(1))
    assert [event[0] for event in seen] == ["load", "+", "store"] * 2
    name, keywords, operands, result, program, index = seen[4]
    assert (name, keywords, program, index) == ("+", [], (1, 0, 0), (1, 0, 0))
    assert (str(operands[0]), operands[1], str(result)) == ("[3.]", 2, "[5.]")
    assert seen[0][1] == ["mask"]
    k.kernel[(1,)](torch.ones(1))
    assert len(seen) == 6


def test_what_is_kept_can_be_looked_at_afterwards(module):
    k = module("""
        kept = []

        @triton.jit(interpret=True)
        def kernel(x_ptr):
            kept.append(tl.load(x_ptr + tl.arange(0, 2)))
    """)
    k.kernel[(1,)](torch.tensor([1.5, 2.5]))
    (x,) = k.kept
    assert str(x) == "[1.5 2.5]"
    with pytest.raises(tilewright.errors.LaunchStateError, match="outside of a kernel") as raised:
        _ = x + 1
    assert "TW" in str(raised.value)


def test_another_thread_may_not_look(module):
    import threading

    k = module("""
        kept = []

        @triton.jit(interpret=True)
        def kernel():
            kept.append(tl.arange(0, 2))
    """)
    errors = []

    def launch_and_look():
        k.kernel[(1,)]()

    thread = threading.Thread(target=launch_and_look)
    thread.start()
    thread.join()
    try:
        str(k.kept[0])
    except RuntimeError as error:
        errors.append(str(error))
    assert "another thread" in errors[0]
    k.kept.clear()


def test_what_is_an_interpreted_function(module):
    k = module("""
        @triton.jit
        def kernel(x_ptr):
            tl.store(x_ptr, 3.0)
    """)
    twin = interpret(k.kernel)
    assert isinstance(twin, InterpretedFunction)
    assert not isinstance(k.kernel, InterpretedFunction)
    assert isinstance(InterpretedFunction(k.kernel.fn), tilewright.JITFunction)
    x = torch.zeros(1)
    assert twin.warmup(x, grid=(1,)) is None
    twin.run(x, grid=(1,), warmup=False)
    assert x.item() == 3.0


def test_the_hook_of_the_page(script, run):
    text = (ROOT / "docs" / "interpret-mode.md").read_text()
    example = re.search(r"```python file=scale.py\n(.*?)```", text, re.DOTALL).group(1)
    hook = re.search(
        r"```python\n(from triton.runtime.interpreter import hook.*?)```", text, re.DOTALL
    ).group(1)
    done = run("-m", "tilewright", "run", script(f"{example}\n{hook}", "hook.py"))
    assert done.err == ""
    assert "(1, 0, 0) load [2. 0.]\n" in done.out


def test_slices_of_tuples_and_pointers_to_what_is_only_read(interpret_or_not, module):
    k = module("""
        @triton.jit
        def kernel(x_ptr: tl.const, o_ptr):
            tl.static_assert(x_ptr.dtype.is_const() and (x_ptr + 1).dtype.is_const())
            tl.static_assert(not o_ptr.dtype.is_const())
            numbers = (2, 3, 5, 7)
            a, b = numbers[tl.slice(1, 4, 2)]
            tl.store(o_ptr, tl.load(x_ptr) * a + b)
    """)
    out = torch.zeros(1)
    interpret_or_not(k.kernel)[(1,)](torch.ones(1), out)
    assert out.item() == 10


TENSORS = """
from tilewright.runtime.interpreter import TensorHandle

@triton.jit(interpret=True)
def kernel(o_ptr, b_ptr):
    tile = tl.tensor(TensorHandle(np.arange(4, dtype=np.float32), tl.float32), tl.block_type(tl.float32, [4]))
    square = tl.tensor(TensorHandle(np.arange(4, dtype=np.float32), tl.float32), tl.block_type(tl.float32, [2, 2]))
    one = tl.core.tensor(TensorHandle(np.array([7], dtype=np.int32), tl.int32), tl.int32)
    bits = tl.tensor(tile, tl.block_type(tl.int32, [4]))
    assert str(one.type) == "int32" and square.shape == (2, 2)
    at = tl.arange(0, 4)
    tl.store(o_ptr + at, tile * one + tl.sum(square))
    tl.store(b_ptr + at, bits)

@triton.jit(interpret=True)
def wrong(o_ptr, WHAT: tl.constexpr):
    if WHAT == 0:
        tl.tensor(TensorHandle(np.zeros(4, np.float32), tl.float32), tl.block_type(tl.float32, [8]))
    if WHAT == 1:
        tl.tensor(TensorHandle(np.zeros(4, np.float32), tl.float32), tl.block_type(tl.float64, [4]))
    if WHAT == 2:
        tl.tensor("text", tl.float32)
"""


def test_tensors_are_made_of_handles(module):
    names = module(TENSORS)
    o, b = np.zeros(4, np.float32), np.zeros(4, np.int32)
    names.kernel[(1,)](o, b)
    assert o.tolist() == [6.0, 13.0, 20.0, 27.0]
    assert b.tolist() == np.arange(4, dtype=np.float32).view(np.int32).tolist()
    for what, said in enumerate(["are not a", "are not a", "a handle with elements, not a str"]):
        with pytest.raises(tilewright.errors.LaunchError, match=said):
            names.wrong[(1,)](o, what)
    with pytest.raises(tilewright.errors.LaunchError, match="outside of a kernel"):
        tilewright.language.tensor(o, tilewright.language.float32)


def test_isinstance_knows_the_objects_of_kernels(module, interpret_or_not):
    k = module("""
        @triton.jit
        def kernel(o_ptr, n, C: tl.constexpr, T: tl.constexpr, NONE: tl.constexpr):
            v = tl.load(o_ptr)
            tl.store(o_ptr + 0, isinstance(3, tl.constexpr) and not isinstance(3, tl.tensor))
            tl.store(o_ptr + 1, isinstance(C, tl.constexpr) and not isinstance(C, tl.tuple))
            tl.store(o_ptr + 2, isinstance("a", tl.constexpr))
            tl.store(o_ptr + 3, isinstance(NONE, tl.constexpr))
            tl.store(o_ptr + 4, isinstance((v, v), tl.tuple) and not isinstance((v, v), tl.tensor))
            tl.store(o_ptr + 5, isinstance((1, 2), tl.tuple))
            tl.store(o_ptr + 6, isinstance(T, tl.tuple))
            c = 3
            found = isinstance(v, tl.tensor) and isinstance(n, tl.tensor) and isinstance(c, tl.tensor)
            tl.store(o_ptr + 7, found and isinstance(v, (tl.tuple, tl.tensor)))
            wrong = isinstance(v, tl.tuple) or isinstance(v, tl.constexpr) or isinstance(c, tl.constexpr)
            tl.store(o_ptr + 8, wrong or isinstance(n, tl.constexpr) or isinstance(tl.float32, tl.tuple))
    """)
    o = torch.full((9,), 7, dtype=torch.int32)
    interpret_or_not(k.kernel)[(1,)](o, 5, C=7, T=(1, 2), NONE=None)
    assert o.tolist() == [1] * 8 + [0]


def test_an_attribute_that_is_not_there_is_no_attribute(module):
    k = module("""
        found = []

        @triton.jit(interpret=True)
        def kernel(x_ptr, n):
            x = tl.load(x_ptr + tl.arange(0, 4))
            d = tl.make_tensor_descriptor(x_ptr, [4, 4], [4, 1], [2, 4])
            for value in (x, n, x_ptr, d):
                found.append((hasattr(value, "shape"), hasattr(value, "frobnicate"), getattr(value, "nothing", 3)))
            found.append((hasattr(x, "to"), hasattr(x[None, :], "T"), hasattr(d, "load")))
            x.frobnicate()
    """)
    with pytest.raises(AttributeError, match="has no attribute `frobnicate`") as raised:
        k.kernel[(1,)](torch.zeros(16), 4)
    assert isinstance(raised.value, tilewright.CompilationError)
    assert (raised.value.code, raised.value.diagnostics[0].line) == ("TW0015", 10)
    assert k.found == [(True, False, 3)] * 4 + [(True, True, True)]


def test_an_assertion_has_a_place_and_a_code(module):
    k = module("""
        @triton.jit(interpret=True)
        def kernel(x_ptr, n):
            x = tl.load(x_ptr + tl.arange(0, 4))
            assert x[None, :] < n, f"no {n}"
    """)
    k.kernel[(1,)](torch.arange(4), 4)
    with pytest.raises(AssertionError, match=r"TW0203.*: no \[3\]") as raised:
        k.kernel[(1,)](torch.arange(4), 3)
    (found,) = raised.value.diagnostics
    assert (found.line, found.column, found.label) == (4, 5, "does not hold")


def test_long_chains_evaluate_as_python_does(module, interpret_or_not):
    """Each operand once, and none after the one that decides."""
    count = 300
    k = module(f"""
        @triton.jit
        def kernel(o_ptr, n):
            total = n{" + 1" * count}
            some = n > 100 {"or n == 7 " * count}
            all_of = n < 100 {"and n == 7 " * count}
            tl.store(o_ptr, total)
            tl.store(o_ptr + 1, some)
            tl.store(o_ptr + 2, all_of)
    """)
    for n in (7, 8, 200):
        o = torch.zeros(3, dtype=torch.int32)
        interpret_or_not(k.kernel)[(1,)](o, n)
        assert o.tolist() == [n + count, n != 8, n == 7]
