//! Tests the frontend. It must lower every source to IR that verifies, or report diagnostics. There
//! must be no panic, and the time must be limited.

use std::time::{Duration, Instant};

use tilewright_base::Color;
use tilewright_frontend::{Argument, Constant, Failure, HostValue, Options, Request, SourceHost, lower};
use tilewright_fuzz::mutate;
use tilewright_ir::{Dtype, verify};

/// The maximum time for a text. Each of these texts takes far less time, even in a debug build on a
/// busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

const SEEDS: [&str; 4] = [MODULE, CONTROL, TILES, COMPILE_TIME];

const MODULE: &str = "\
import triton
import triton.language as tl
from triton.language.extra import libdevice
import math
N = 4
N += 2
SCALE: tl.constexpr = math.sqrt(2.0) * N
if N > 5:
    M = tl.constexpr((1, 2))
else:
    M = None
for i in range(3):
    LAST = i
try:
    from triton.language.math import rsqrt
except ImportError:
    rsqrt = None
del i
@triton.constexpr_function
def size(n, most=16):
    total = 1
    while total < n and total < most:
        total *= 2
    return [total][0]
@triton.jit(noinline=True)
def helper(x, *rest, factor: tl.constexpr = SCALE):
    return x * factor + len(rest), rest
@triton.autotune(configs=[], key=['n'])
@triton.jit
def k(x_ptr, n, B: tl.constexpr = 16):
    offsets = tl.program_id(0) * B + tl.arange(0, size(B))
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    y, rest = helper(x, *M, 1, factor=3)
    z = libdevice.tanh(y.to(tl.float32)) + rsqrt(x * 1.0)
    tl.store(x_ptr + offsets, z + rest[0], mask=offsets < n)
";

const CONTROL: &str = "\
import triton
import triton.language as tl
@triton.jit
def early(x, n):
    if n > 3:
        if x == 1:
            return n, x
        n = n - 1
    elif x is None:
        return 0, 0
    if n < 0: return x, n
    return n // 2, x % 3
@triton.jit
def k(x_ptr, n, FLAG: tl.constexpr):
    total, pair = 0, (n, 1.0)
    p = x_ptr
    if n == 7:
        if FLAG:
            return
        p += 1
        if n > 1 and not FLAG or n != 2:
            return
    for i in range(0, n, 2):
        total += i if i > 3 else -i
        pair = (pair[0] + i, pair[1] * 2.0)
        for j in tl.static_range(FLAG % 4):
            total = total + j
    while total > 10:
        total //= 2
        assert total < 100, 'message'
    a, b = early(total, n)
    tl.static_assert(FLAG == 16, f'{FLAG:>8,} {FLAG!r}')
    tl.device_assert(a <= b < 3)
    tl.store(p, a + b + pair[0])
";

const TILES: &str = "\
import triton
import triton.language as tl
@triton.jit
def combine(a, b):
    return tl.maximum(a, b) if True else a
@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr):
    rows = tl.arange(0, B)[:, None]
    cols = tl.arange(0, 2 * B)[None, :]
    shape: tl.constexpr = (B, 2 * B)
    x = tl.load(x_ptr + rows * 2 * B + cols, mask=(rows < n) & (cols < n))
    acc = tl.zeros((B, B), dtype=tl.float32)
    for i in tl.range(0, 2, num_stages=2):
        y = tl.broadcast_to(tl.load(y_ptr + cols), shape)
        acc += tl.dot(x.to(tl.float16), y.T.to(tl.float16))
    m = tl.max(acc, axis=1)
    e = tl.exp(acc - m[:, None])
    r = tl.reduce(e, 0, combine) + tl.sum(e, 1) + tl.argmin(e, 0)
    w = tl.where(r > 0, r, -r).to(tl.int32) << 2 ^ 1 | ~0
    s = tl.reshape(w, (2, B // 2)).trans().cast(tl.float32, bitcast=True)
    tl.store(y_ptr + tl.arange(0, B), tl.sigmoid(r) + tl.rand(n, tl.arange(0, B)))
    tl.store(x_ptr + tl.arange(0, B), tl.ravel(s) if B > 2 else tl.cdiv(n, 3))
";

const COMPILE_TIME: &str = "\
import triton
import triton.language as tl
@triton.constexpr_function
def table(n):
    values = [i ** 2 % 7 for i in range(n) if i != 3]
    if len(values) > 3:
        return tuple(values) * 2 + (1.5, 'x', None, [True])
    return values[::-1]
@triton.constexpr_function
def text(x, y=(1, 2)):
    return f'{x:08.3f} {y!r:<20} {len(y)=} {min(y):+#x} {divmod(-7, 2)}' + 'é' * 3
@triton.jit
def k(x_ptr, B: tl.constexpr):
    t: tl.constexpr = table(B)
    s: tl.constexpr = text(1e16 // 0.1)
    tl.static_assert(len(s) > 3 and x_ptr.dtype != tl.int32, f'{s}-{t}')
    for i, item in enumerate(zip(t, reversed(t))):
        if isinstance(item[0], int) and item[0] in (1, 2, 4):
            tl.store(x_ptr + i, item[0] << 1 if i % 2 else abs(-item[0]))
    u = (max(1, 2), 1 << 40, -7 // 2, 2.5 % -1.0, not 0, 1 < 2 < 3, t[-1], (lambda: 1))
    [a, *b] = [1, 2]
    (c := 4)
    tl.store(x_ptr, sum((1, 2, c)) + getattr(tl, 'int32').primitive_bitwidth + triton.next_power_of_2(B))
";

const DICTIONARY: &[&str] = &[
    "0",
    "1",
    "-1",
    "16",
    "1.5",
    "60000",
    "99999999999",
    "None",
    "True",
    "x",
    "n",
    "B",
    "x_ptr",
    "tl",
    "tl.int32",
    "tl.float16",
    "'s'",
    "f'{n}'",
    "()",
    "[]",
    "(1, 2)",
    "[1] * 60000",
    "+",
    "-",
    "*",
    "**",
    "//",
    "%",
    "<<",
    "==",
    "<",
    "is",
    "in",
    "and",
    "not",
    "if",
    "else",
    "for",
    "while",
    "return",
    "return x",
    "break",
    "pass",
    "lambda",
    "def",
    "yield",
    "global n",
    "del n",
    "\n",
    "\n    ",
    "\n        ",
    ":",
    ",",
    ".",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "=",
    ":=",
    "+=",
    "tl.constexpr",
    "tl.static_range(60000)",
    "range(n)",
    "tl.arange(0, 16)",
    "\0",
    "é",
    "\\",
    "@triton.jit\n",
    "k(x_ptr, n)",
    "len",
    "list",
    "str",
    "tl.store",
    "tl.load",
    "axis=0",
    "[::-1]",
    "...",
];

#[test]
fn lowering_never_panics_and_gives_valid_ir_in_time() {
    tilewright_fuzz::fuzz!(20000, |bytes: &[u8]| {
        let [seed, types, bytes @ ..] = bytes else { return };
        let text = mutate(SEEDS[usize::from(*seed) % SEEDS.len()], DICTIONARY, bytes);
        let start = Instant::now();
        lower_all(&text, *types);
        assert!(start.elapsed() < PATIENCE, "{:?}\n{text}", start.elapsed());
    });
}

#[test]
fn seeds_lower() {
    // Only the kernel can be lowered. The helper functions return a value, but a kernel must not
    // return one.
    for seed in [CONTROL, TILES] {
        assert_eq!(lower_all(seed, 0), 1, "{seed}");
    }
    let plain = COMPILE_TIME.replace(", (lambda: 1))", ")").replace("    [a, *b] = [1, 2]\n", "");
    assert_eq!(lower_all(&plain, 0), 1, "{plain}");
}

/// Lowers every kernel of a text, and renders the diagnostics. Returns the number of lowered
/// kernels.
fn lower_all(text: &str, types: u8) -> usize {
    let mut host = match SourceHost::new("k.py", text) {
        Ok(host) => host,
        Err(failure) => {
            render(&failure);
            return 0;
        }
    };
    let pointee = [Dtype::F32, Dtype::I32, Dtype::F16, Dtype::I1][usize::from(types % 4)];
    let scalar = [Dtype::I32, Dtype::I64, Dtype::F32, Dtype::U8][usize::from(types / 4 % 4)];
    let options =
        Options { debug: types & 16 != 0, allow_plain_globals: types & 32 != 0, ..Options::default() };
    let kernels: Vec<String> = host.kernels().into_iter().map(String::from).collect();
    let mut lowered = 0;
    for name in kernels {
        let Some(kernel) = host.function(&name) else { continue };
        let argument = |(name, is_constexpr): (&str, bool)| {
            if is_constexpr {
                Argument::Constexpr(HostValue::Constant(Constant::Int(16)))
            } else if name.contains("ptr") {
                Argument::Pointer { pointee, is_const: types & 64 != 0, divisibility: 16 }
            } else {
                Argument::Scalar { dtype: scalar, divisibility: 1 }
            }
        };
        let arguments = host.parameters(kernel).into_iter().map(argument).collect();
        match lower(&Request { kernel, arguments, options }, &mut host) {
            Ok(module) => {
                if let Err(error) = verify(&module) {
                    panic!("{error}\n{text}\n{}", tilewright_ir::print(&module, false));
                }
                lowered += 1;
            }
            Err(failure) => render(&failure),
        }
    }
    lowered
}

fn render(failure: &Failure) {
    assert!(!failure.diagnostics.is_empty(), "a failure says why");
    for diagnostic in &failure.diagnostics {
        drop(diagnostic.render(&failure.sources, Color::Never));
    }
}
