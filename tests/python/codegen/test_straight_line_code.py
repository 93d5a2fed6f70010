"""Instructions that straight code does not need, counted in the text for a GPU, and what the kernels give."""

from __future__ import annotations

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.language.extra import libdevice

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


def count(kernel, types, opcode, capability=90):
    """How many instructions of a kernel begin with an opcode."""
    names = [parameter.name for parameter in kernel.params]
    divisible = {(place,): [["tt.divisibility", 16]] for place, name in enumerate(types) if name[0] == "*"}
    source = triton.compiler.ASTSource(kernel, dict(zip(names, types, strict=True)), {}, divisible)
    gpu = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    text = triton.compile(source, target=gpu, options={"num_warps": 4}).asm["ptx"]
    return sum(line.lstrip().startswith(opcode) for line in text.splitlines())


@triton.jit
def rows_kernel(x_ptr, out_ptr, stride, rows):
    row = tl.program_id(0).to(tl.int64) * 64 + tl.arange(0, 64)
    col = tl.arange(0, 16)
    mask = (row[:, None] < rows) & (col[None, :] < 15)
    value = tl.load(x_ptr + row[:, None] * stride + col[None, :], mask=mask, other=-7)
    tl.store(out_ptr + row[:, None] * 16 + col[None, :], value)


def test_rows_become_wide_once(device):
    """The row of an element is not negative and small: one conversion to 64 bits serves all rows of a thread."""
    x = torch.arange(100 * 24, dtype=torch.int32)
    out = torch.zeros((128, 16), dtype=torch.int32).to(device)
    rows_kernel[(2,)](x.to(device), out, 24, 100)
    expected = torch.full((128, 16), -7, dtype=torch.int32)
    expected[:100, :15] = x.reshape(100, 24)[:, :15]
    assert torch.equal(out.cpu(), expected)
    # Of the arguments, the row and the column.
    assert count(rows_kernel, ["*i32", "*i32", "i32", "i32"], "cvt.s64.s32") <= 5


@triton.jit
def quotients_kernel(out_ptr, n):
    i = tl.arange(0, 256)
    place = tl.program_id(0).to(tl.int64) * 256 + i
    odd = i * 4 + 7
    near = i // 8 + odd // 16 * 5 + odd % 16 * 11 + (i - 8) // 16 * 13 + (i - 8) % 16 * 17 + (i ^ 37) // 4
    far = place // 32 + place % 32 * 3 + (place + 5) // 12 * 7
    tl.store(out_ptr + place, near + far + (n + i) // 8 + (n * 16 + i) % 16 * 3 + (n * 16 + i) // 4)


@triton.jit
def wide_quotients_kernel(out_ptr):
    i = tl.arange(0, 1024)
    wide = i.to(tl.int64) + 8589934592
    tl.store(out_ptr + i, (wide // 8).to(tl.int32))


@pytest.mark.parametrize("n", [0, 5, -3, -1000])
def test_neighbors_share_their_quotient(device, n):
    """A sum of a register with known zeros and a small constant has the register's quotient, if it is not negative."""
    out = torch.zeros(512, dtype=torch.int64).to(device)
    quotients_kernel[(2,)](out, n)
    place = np.arange(512)
    i = place % 256

    def quotient(x, y):
        return np.sign(x) * (abs(x) // y)

    def remainder(x, y):
        return x - quotient(x, y) * y

    odd = i * 4 + 7
    expected = i // 8 + odd // 16 * 5 + odd % 16 * 11 + (i ^ 37) // 4
    expected += quotient(i - 8, 16) * 13 + remainder(i - 8, 16) * 17
    expected += place // 32 + place % 32 * 3 + (place + 5) // 12 * 7
    expected += quotient(n + i, 8) + remainder(n * 16 + i, 16) * 3 + quotient(n * 16 + i, 4)
    assert np.array_equal(out.cpu().numpy(), expected)
    # A thread has two runs of four elements; no quotient is corrected for a sign.
    assert count(wide_quotients_kernel, ["*i32"], "shr.u64") == 2
    assert count(wide_quotients_kernel, ["*i32"], "shr.s64") == 0


@triton.jit
def convert_kernel(x_ptr, out_ptr):
    i = tl.arange(0, 512)
    tl.store(out_ptr + i, tl.load(x_ptr + i).to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("source", ["int32", "int64"])
@pytest.mark.parametrize("target", ["float16", "bfloat16"])
def test_integers_become_halves_by_one_instruction(device, source, target):
    """That to bf16 is of `sm_90`. Numbers are ties, what lies a little beside them, and what is too large."""
    numbers = [k % 2 * 65504 + k * k * 129 + k % 3 for k in range(256)]
    numbers += [0x7FFFFFFF - (k << k % 24) for k in range(256)]
    x = torch.tensor(numbers, dtype=torch.int64).to(getattr(torch, source))
    out = torch.zeros(512, dtype=getattr(torch, target)).to(device)
    convert_kernel[(1,)](x.to(device), out)
    # Exact in binary64, and rounded once from there to 11 or 8 bits.
    fraction, exponent = np.frexp(x.numpy().astype(np.float64))
    bits = 11 if target == "float16" else 8
    expected = torch.from_numpy(np.ldexp(np.rint(fraction * 2**bits) / 2**bits, exponent))
    expected[expected >= (65520 if target == "float16" else 2.0**128)] = np.inf
    expected[expected <= (-65520 if target == "float16" else -(2.0**128))] = -np.inf
    assert torch.equal(out.cpu().double(), expected)
    names = {"int32": "i32", "int64": "i64", "float16": "fp16", "bfloat16": "bf16"}
    types = [f"*{names[source]}", f"*{names[target]}"]
    opcode = f"cvt.rn.{names[target].replace('fp', 'f')}.s{source[3:]}"
    assert count(convert_kernel, types, opcode) == 4
    assert count(convert_kernel, types, opcode, 80) == (4 if target == "float16" else 0)


@triton.jit
def tanh_kernel(x_ptr, out_ptr):
    i = tl.arange(0, 512)
    tl.store(out_ptr + i, libdevice.tanh(tl.load(x_ptr + i)))


def test_the_hyperbolic_tangent_does_not_divide(device):
    """It takes the hardware's reciprocal, and stays within its four units in the last place."""
    x = torch.linspace(-1.5, 12, 512)
    x[:4] = torch.tensor([torch.inf, -torch.inf, torch.nan, 100.0])
    out = torch.zeros(512).to(device)
    tanh_kernel[(1,)](x.to(device), out)
    expected = np.tanh(x.numpy().astype(np.float64))
    unit = np.spacing(abs(expected).astype(np.float32))
    error = abs(out.cpu().numpy() - expected) / unit
    assert np.isnan(error[2])
    assert np.nanmax(error) <= 4
    assert count(tanh_kernel, ["*fp32", "*fp32"], "div") == 0
    assert count(tanh_kernel, ["*fp32", "*fp32"], "rcp.approx.ftz.f32") == 4


@triton.jit
def divided_rows_kernel(x_ptr, y_ptr, out_ptr):
    row, column = tl.arange(0, 32), tl.arange(0, 32)
    place = row[:, None] * 32 + column[None, :]
    tl.store(out_ptr + place, tl.load(x_ptr + place) / tl.load(y_ptr + row)[:, None])


def test_divisors_of_many_elements_have_one_reciprocal(device):
    """Of each row, of any size: within 2 ulp, or where the quotient is not normal, within an absolute error."""
    rng = np.random.default_rng(5)
    edge = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        2.0**126,
        -(2.0**127),
        3.0e38,
        2.0**-126,
        -(2.0**-140),
        1.0,
        -3.0,
    ]
    x, y = (
        (rng.standard_normal(n) * 2.0 ** rng.integers(-60, 60, n)).astype(np.float32) for n in (32 * 32, 32)
    )
    y[:12], x[:12], x[40:52] = edge, edge, edge
    wanted = x.astype(np.float64).reshape(32, 32)
    with np.errstate(all="ignore"):
        wanted = wanted / y.astype(np.float64)[:, None]
        size = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    out = torch.zeros((32, 32)).to(device)
    divided_rows_kernel[(1,)](torch.from_numpy(x).to(device), torch.from_numpy(y).to(device), out)
    got = out.cpu().numpy().astype(np.float64)
    finite = np.abs(wanted) < 2.0**127.9
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.array_equal(got[np.isinf(wanted)], wanted[np.isinf(wanted)])
    assert (np.abs(got[finite] - wanted[finite]) <= 2 * size[finite]).all()
    assert count(divided_rows_kernel, ["*fp32"] * 3, "rcp.approx") <= 8
    assert count(divided_rows_kernel, ["*fp32"] * 3, "div.") == 0


@triton.jit
def crowded_kernel(x_ptr, out_ptr, COUNT: tl.constexpr):
    i = tl.arange(0, 8192)
    tiles = ()
    for k in tl.static_range(COUNT):
        tiles = (tl.load(x_ptr + k * 8192 + i), tiles)
    total = tl.zeros((8192,), tl.float32)
    for _ in tl.static_range(COUNT):
        total = total * 0.5 + tiles[0]
        tiles = tiles[1]
    tl.store(out_ptr + i, total)


@pytest.mark.parametrize("tiles", [2, 9])
def test_what_far_exceeds_the_registers_gets_all_of_them(device, tiles):
    x = torch.rand(tiles, 8192).to(device)
    out = torch.empty(8192).to(device)
    handle = crowded_kernel[(1,)](x, out, tiles)
    expected = torch.zeros(8192).to(device)
    for row in reversed(range(tiles)):
        expected = expected * 0.5 + x[row]
    torch.testing.assert_close(out, expected)
    if "ptx" in handle.asm:
        # 64 words of each tile in a thread.
        assert (".minnctapersm 1" in handle.asm["ptx"]) == (tiles > 8)


@triton.jit
def bounded_logs_kernel(x_ptr, i_ptr, out_ptr):
    lanes = tl.arange(0, 1024)
    x, i = tl.load(x_ptr + lanes), tl.load(i_ptr + lanes)
    above = tl.maximum(x, 1e-7)
    between = tl.minimum(above, 1.0)
    tl.store(out_ptr + lanes, tl.log(above))
    tl.store(out_ptr + 1024 + lanes, tl.log(between))
    tl.store(out_ptr + 2048 + lanes, tl.log(-tl.log(between)))
    tl.store(out_ptr + 3072 + lanes, tl.log(tl.maximum(x, -2.5)))
    tl.store(out_ptr + 4096 + lanes, tl.log(tl.minimum(x, 3e38)))
    tl.store(out_ptr + 5120 + lanes, tl.log(i.to(tl.float32) * 4.6566127342e-10))
    tl.store(out_ptr + 6144 + lanes, tl.log(i.to(tl.float32) * -1e-38))
    tl.store(out_ptr + 7168 + lanes, tl.log(tl.maximum(x, 1.2e-38) * 0.5))
    tl.store(out_ptr + 8192 + lanes, tl.log2(tl.maximum(x, 2.0)))


def bounded_logs(x, i):
    """The results of the kernel, by fp64 on arguments that are rounded to fp32."""
    single = np.float32
    above = np.fmax(x, single(1e-7))
    between = np.fmin(above, single(1))
    number = i.astype(single)
    arguments = [
        above,
        between,
        -np.log(between.astype(np.float64)).astype(single),
        np.fmax(x, single(-2.5)),
        np.fmin(x, single(3e38)),
        number * single(4.6566127342e-10),
        number * single(-1e-38),
        np.fmax(x, single(1.2e-38)) * single(0.5),
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [np.log(argument.astype(np.float64)) for argument in arguments]
        return np.stack([*found, np.log2(np.fmax(x, single(2)).astype(np.float64))])


def test_logarithms_of_numbers_with_known_ranges(device):
    """Tests for subnormal numbers, zero, infinity and NaN are omitted only if the range excludes them."""
    tiny = np.float32(1e-45)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, 1.1754942e-38, 1.1754944e-38, 3.4028235e38]
    special += [1.0, -1.0, 0.99999994, 1.0000001, 0.66666667, 1e-7, 1.0000001e-7, 2.0, 1.9999999, -2.5, 0.5]
    rng = np.random.default_rng(3)
    spread = np.exp(rng.uniform(-100, 88, 1024 - len(special))) * rng.choice(
        [1, 1, 1, -1], 1024 - len(special)
    )
    x = np.concatenate([special, spread]).astype(np.float32)
    i = rng.integers(-(2**31), 2**31, 1024).astype(np.int32)
    i[:6] = [0, 1, -1, 2**31 - 1, -(2**31), 7]
    out = torch.zeros(9 * 1024).to(device)
    bounded_logs_kernel[(1,)](torch.from_numpy(x).to(device), torch.from_numpy(i).to(device), out)
    found, expected = out.cpu().numpy().reshape(9, 1024), bounded_logs(x, i)
    for row, (ours, truth) in enumerate(zip(found, expected, strict=True)):
        # The third argument is itself rounded, by at most 1 ulp.
        np.testing.assert_allclose(ours, truth, rtol=4e-7, atol=2e-7 if row == 2 else 0, err_msg=str(row))


@triton.jit
def gumbel_kernel(u_ptr, out_ptr):
    lanes = tl.arange(0, 128)
    tl.store(out_ptr + lanes, -tl.log(-tl.log(tl.clamp(tl.load(u_ptr + lanes), 1e-7, 1.0))))


def test_a_logarithm_of_a_bounded_number_has_few_comparisons():
    """Of 1e-7 to 1, no test is left; of its negated logarithm, only that for zero."""
    assert count(gumbel_kernel, ["*fp32", "*fp32"], "setp") == 1


@triton.jit
def argmax_kernel(x_ptr, value_ptr, index_ptr):
    rows, columns = tl.arange(0, 128), tl.arange(0, 16)
    x = tl.load(x_ptr + rows[:, None] * 16 + columns[None, :])
    value, index = tl.max(x, 1, return_indices=True)
    tl.store(value_ptr + rows, value)
    tl.store(index_ptr + rows, index)


def test_positions_of_one_thread_are_not_compared(device):
    """A thread knows the order of its own positions: of two equal elements, the left one is kept."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 4, (128, 16)).astype(np.float32)
    x[rng.random((128, 16)) < 0.2] = -np.inf
    x[3], x[4] = 1.0, -np.inf
    values, indices = torch.zeros(128).to(device), torch.zeros(128, dtype=torch.int32).to(device)
    argmax_kernel[(1,)](torch.from_numpy(x).to(device), values, indices)
    np.testing.assert_array_equal(indices.cpu().numpy(), x.argmax(1))
    np.testing.assert_array_equal(values.cpu().numpy(), x.max(1))
    # The layout gives a thread 4 elements of a row; 4 threads share a row.
    assert count(argmax_kernel, ["*fp32", "*fp32", "*i32"], "setp.lt.s32") <= 2 * 4
