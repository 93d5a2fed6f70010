"""``x @ w.T``, with a bias and an activation, forward and backward."""

import torch
import triton
import triton.language as tl

from matkit.tuner import first_good

seen_blocks = []


def _note(args):
    seen_blocks.append(args["BLOCK_M"])


def _small_enough(configs, named_args, **kwargs):
    return [config for config in configs if config.kwargs["BLOCK_M"] <= 2 * max(named_args["M"], 16)]


def _model(M, N, K, BLOCK_M, BLOCK_N, num_warps, **_):
    return triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N) * (BLOCK_M * BLOCK_N + 1000)


@triton.jit
def _leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_stages=s, num_warps=4, pre_hook=_note)
        for m, n, s in ((16, 16, 2), (32, 16, 3), (16, 32, 2), (256, 256, 3))
    ],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": _small_enough, "perf_model": _model, "top_k": 2},
    rep=1,
)
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def _matmul(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    pid_m, pid_n = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 2)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b = b_ptr + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = rows[:, None] < M
        right = columns[None, :] < N
        if not EVEN_K:
            left = left & (depth[None, :] + k * BLOCK_K < K)
            right = right & (depth[:, None] + k * BLOCK_K < K)
        sums += tl.dot(
            tl.load(a, mask=left, other=0.0), tl.load(b, mask=right, other=0.0), input_precision="ieee"
        )
        a += BLOCK_K * stride_ak
        b += BLOCK_K * stride_bk
    if bias_ptr is not None:
        sums += tl.load(bias_ptr + columns, mask=columns < N, other=0.0)[None, :]
    if ACTIVATION == "leaky_relu":
        sums = _leaky_relu(sums)
    c = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    tl.store(c, sums, mask=(rows[:, None] < M) & (columns[None, :] < N))


@first_good([triton.Config({"BLOCK": block}, num_warps=1) for block in (64, 128, 256)], key=["n"], rep=1)
@triton.jit
def _slope(y_ptr, grad_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    grad = tl.load(grad_ptr + places, mask=inside)
    tl.store(
        out_ptr + places, tl.where(tl.load(y_ptr + places, mask=inside) >= 0, grad, 0.01 * grad), mask=inside
    )


def _product(a, b, bias=None, activation=""):
    (m, k), (_, n) = a.shape, b.shape
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    _matmul[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]))](
        a,
        b,
        bias,
        c,
        m,
        n,
        k,
        *a.stride(),
        *b.stride(),
        c.stride(0),
        BLOCK_K=16,
        ACTIVATION=activation,
    )
    return c


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, activation):
        y = _product(x, weight.T, bias, activation)
        ctx.save_for_backward(x, weight, y)
        ctx.activation = activation
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, y = ctx.saved_tensors
        grad = grad.contiguous()
        if ctx.activation:
            slope = torch.empty_like(grad)
            _slope[lambda meta: (triton.cdiv(grad.numel(), meta["BLOCK"]),)](y, grad, slope, grad.numel())
            grad = slope
        return _product(grad, weight), _product(grad.T, x), grad.sum(0), None


def linear(x, weight, bias, activation=""):
    """A layer, with gradients."""
    return _Linear.apply(x, weight, bias, activation)
