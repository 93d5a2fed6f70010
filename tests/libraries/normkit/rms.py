"""Root mean square normalization, forward and backward."""

import torch
import triton
import triton.language as tl


def _configs():
    return [triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 2) for warps in (1, 4)]


@triton.autotune(
    configs=_configs(), key=["N", "HAS_BIAS"], restore_value=["residual_ptr"], rep=1, cache_results=True
)
@triton.heuristics(
    {
        "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
        "HAS_RESIDUAL": lambda args: args["residual_ptr"] is not None,
        "BLOCK_N": lambda args: triton.next_power_of_2(args["N"]),
        "EVEN_N": lambda args: args["N"] == args["BLOCK_N"],
    }
)
@triton.jit
def _forward(
    x_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    scale_ptr,
    stride,
    M,
    N,
    eps,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EVEN_N: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_N)
    inside = columns < N
    for row in range(tl.program_id(0) * ROWS, min((tl.program_id(0) + 1) * ROWS, M)):
        if EVEN_N:
            x = tl.load(x_ptr + row * stride + columns).to(tl.float32)
        else:
            x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
        if HAS_RESIDUAL:
            # The sum is written back, as what the next layer adds to.
            x += tl.load(residual_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
            tl.store(residual_ptr + row * stride + columns, x, mask=inside)
        scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
        y = x * scale * tl.load(weight_ptr + columns, mask=inside).to(tl.float32)
        if HAS_BIAS:
            y += tl.load(bias_ptr + columns, mask=inside).to(tl.float32)
        tl.store(scale_ptr + row, scale)
        tl.store(out_ptr + row * stride + columns, y, mask=inside)


@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (1, 2)], key=["N"], rep=1)
@triton.jit
def _backward(
    grad_ptr,
    x_ptr,
    weight_ptr,
    scale_ptr,
    dx_ptr,
    dw_ptr,
    stride,
    N,
    rows_of_a_program,
    M,
    BLOCK_N: tl.constexpr,
):
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK_N)
    inside = columns < N
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK_N,), dtype=tl.float32)
    first = program * rows_of_a_program
    for row in range(first, min(first + rows_of_a_program, M)):
        grad = tl.load(grad_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scale_ptr + row)
        normal = x * scale
        wg = weight * grad
        dx = scale * (wg - normal * tl.sum(normal * wg, axis=0) / N)
        dw += grad * normal
        tl.store(dx_ptr + row * stride + columns, dx, mask=inside)
    tl.store(dw_ptr + program * stride + columns, dw, mask=inside)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        x = x.contiguous()
        m, n = x.shape
        out, scale = torch.empty_like(x), torch.empty(m, device=x.device, dtype=torch.float32)
        _forward[lambda meta: (triton.cdiv(m, meta["ROWS"]),)](
            x, None, weight, bias, out, scale, x.stride(0), m, n, eps
        )
        ctx.save_for_backward(x, weight, scale)
        ctx.has_bias = bias is not None
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, scale = ctx.saved_tensors
        grad = grad.contiguous()
        m, n = x.shape
        programs = min(m, 3)
        dx, dw = torch.empty_like(x), torch.zeros(programs, n, device=x.device, dtype=torch.float32)
        block = triton.next_power_of_2(n)
        _backward[(programs,)](
            grad, x, weight, scale, dx, dw, x.stride(0), n, triton.cdiv(m, programs), m, BLOCK_N=block
        )
        db = grad.sum(0) if ctx.has_bias else None
        return dx, dw.sum(0).to(weight.dtype), db, None


def rms_norm(x, weight, bias=None, eps=1e-6):
    """Normalizes rows, with gradients."""
    return _RMSNorm.apply(x, weight, bias, eps)


def add_rms_norm_(x, residual, weight, eps=1e-6):
    """Adds ``x`` to the residual in place, and normalizes the sum."""
    m, n = x.shape
    out, scale = torch.empty_like(x), torch.empty(m, device=x.device, dtype=torch.float32)
    _forward[lambda meta: (triton.cdiv(m, meta["ROWS"]),)](
        x, residual, weight, None, out, scale, x.stride(0), m, n, eps
    )
    return out
