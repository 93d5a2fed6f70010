"""Cross entropy that leaves the gradient where the logits were."""

import torch
import triton
import triton.language as tl

from losskit.common import device_of, programs, settings, softcap, with_margin

IGNORED = -100


def _kernel(
    logits_ptr,
    target_ptr,
    loss_ptr,
    stride,
    rows,
    n,
    scale,
    IGNORE: tl.constexpr,
    CAP: tl.constexpr,
    DO_SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tl.static_assert(with_margin(BLOCK) > BLOCK)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        target = tl.load(target_ptr + row)
        base = logits_ptr + row.to(tl.int64) * stride
        raw = tl.load(base + columns, mask=inside, other=float("-inf")).to(tl.float32)
        logits = raw
        if DO_SOFTCAP:
            logits = tl.where(inside, softcap(raw, CAP), float("-inf"))
        high = tl.max(logits, axis=0)
        powers = tl.exp(logits - high)
        total = tl.sum(powers, axis=0)
        hit = tl.sum(tl.where(columns == target, logits, 0.0), axis=0)
        loss = tl.where(target == IGNORE, 0.0, tl.log(total) + high - hit)
        tl.store(loss_ptr + row, loss * scale)
        grad = powers / total - tl.where(columns == target, 1.0, 0.0)
        if DO_SOFTCAP:
            part = logits / CAP
            grad = tl.where(inside, grad * (1.0 - part * part), 0.0)
        tl.store(base + columns, tl.where(target == IGNORE, 0.0, grad * scale), mask=inside)


# As some libraries do it: one function, decorated where it is used.
cross_entropy_kernel = triton.heuristics({"DO_SOFTCAP": lambda args: bool(args["CAP"])})(
    triton.jit(_kernel, do_not_specialize=["rows", "scale"])
)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, cap):
        rows, n = logits.shape
        block, warps = settings(n)
        count = int((target != IGNORED).sum())
        gradient = logits.detach().clone()
        loss = torch.empty(rows, device=logits.device, dtype=torch.float32)
        cross_entropy_kernel[(min(rows, programs(device_of(logits))),)](
            gradient,
            target,
            loss,
            gradient.stride(0),
            rows,
            n,
            1.0 / max(count, 1),
            IGNORE=IGNORED,
            CAP=cap,
            BLOCK=block,
            num_warps=warps,
        )
        ctx.save_for_backward(gradient)
        return loss.sum()

    @staticmethod
    def backward(ctx, grad):
        (gradient,) = ctx.saved_tensors
        return gradient * grad, None, None


def cross_entropy(logits, target, cap=0):
    """The mean over the rows that count, with a gradient."""
    return _CrossEntropy.apply(logits, target, cap)
