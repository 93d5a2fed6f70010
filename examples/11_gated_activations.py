"""SwiGLU and GEGLU (arXiv 2002.05202), forward and backward: y = f(a) * b, where a and b are the halves of each row.

```text
            f(a)                         f'(a)
  SwiGLU    a * s, s = 1 / (1 + e^-a)    s + a * s * (1 - s)
  GEGLU     a * Φ(a)                     Φ(a) + a * φ(a)           Φ, φ: the normal distribution and its density

  forward   x  [ a a a a | b b b b ]  ─>  y [ y y y y ]            da = dy * b * f'(a)
  backward  dx [ da  …   | db  …   ]  <─  dy, and x again          db = dy * f(a)
```

The backward pass computes f(a) again, because a few instructions take less time than storing and loading f(a).

Run it with `python examples/11_gated_activations.py`; it checks itself against torch. Shapes: x is [rows, 2 n], y
[rows, n].
"""

import math

import torch

import tilewright as triton
import tilewright.language as tl

# A kernel can use those globals of its module that are constexpr.
SQRT_HALF = tl.constexpr(math.sqrt(0.5))
DENSITY_AT_0 = tl.constexpr(1 / math.sqrt(2 * math.pi))


@triton.jit
def activation(a, KIND: tl.constexpr):
    """Returns f(a) and its derivative. If a caller uses only one of them, the compiler removes the other."""
    if KIND == "swiglu":
        s = tl.sigmoid(a)
        return a * s, s + a * s * (1 - s)
    else:
        tl.static_assert(KIND == "geglu", "the kinds are swiglu and geglu")
        phi = 0.5 * (1 + tl.erf(a * SQRT_HALF))
        return a * phi, phi + a * DENSITY_AT_0 * tl.exp(-0.5 * a * a)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Each program computes a block of a row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x_ptr + row * 2 * n + columns, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + row * 2 * n + n + columns, mask=mask, other=0.0).to(tl.float32)
    f, _ = activation(a, KIND)
    tl.store(y_ptr + row * n + columns, f * b, mask=mask)


@triton.jit
def backward_kernel(x_ptr, dy_ptr, dx_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Each program computes the two gradients of a block of a row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < n
    a = tl.load(x_ptr + row * 2 * n + columns, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + row * 2 * n + n + columns, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * n + columns, mask=mask, other=0.0).to(tl.float32)
    f, slope = activation(a, KIND)
    tl.store(dx_ptr + row * 2 * n + columns, dy * b * slope, mask=mask)
    tl.store(dx_ptr + row * 2 * n + n + columns, dy * f, mask=mask)


class Gated(torch.autograd.Function):
    """A gated activation of a contiguous x, for autograd."""

    @staticmethod
    def forward(ctx, x, kind):
        rows, n = x.shape[0], x.shape[1] // 2
        ctx.save_for_backward(x)
        ctx.kind = kind
        y = torch.empty(rows, n, dtype=x.dtype, device=x.device)
        forward_kernel[(rows, triton.cdiv(n, 256))](x, y, n, KIND=kind, BLOCK=256)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        rows, n = dy.shape
        dx = torch.empty_like(x)
        backward_kernel[(rows, triton.cdiv(n, 256))](x, dy.contiguous(), dx, n, KIND=ctx.kind, BLOCK=256)
        return dx, None


def main() -> None:
    """Compares both activations and their gradients with torch's in double precision."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    by_torch = {"swiglu": torch.nn.functional.silu, "geglu": torch.nn.functional.gelu}
    for kind, function in by_torch.items():
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
            rows, n = 13, 300
            x = (torch.randn(rows, 2 * n, device=device) * 2).to(dtype).requires_grad_()
            dy = torch.randn(rows, n, device=device).to(dtype)
            y = Gated.apply(x, kind)
            (dx,) = torch.autograd.grad(y, x, dy)
            a, b = x.double().chunk(2, 1)
            expected = function(a) * b
            (of_x,) = torch.autograd.grad(expected, x, dy.double())
            torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=tolerance)
            torch.testing.assert_close(dx, of_x, atol=tolerance, rtol=tolerance)
            differences = (y - expected).abs().max().item(), (dx - of_x).abs().max().item()
            print(f"{kind} {dtype}: largest differences: y {differences[0]:.1e}, dx {differences[1]:.1e}")


if __name__ == "__main__":
    main()
