"""Top-k gating, the first step of a mixture of experts: chooses K experts for each token, and their weights.

`tl.topk` returns only values, not indices. So each logit and its expert are packed into one 64-bit integer. The high
half is the logit, as an integer in the order of floats. The low half is the expert, counted from the last one, so that
the first of several experts with equal logits wins.

```text
  logit    -1.5          0.25         -0.0           the bits of a float, as an integer, ascend with it if it is
  bits     0xBFC00000    0x3E800000   0x80000000     positive, and descend if it is negative: there all bits but the
  order    0xC03FFFFF    0x3E800000   0xFFFFFFFF     sign are inverted
           -1069547521   1048576000   -1             as signed integers, in the order of the logits

  key      63 ──────── order ──────── 32 │ 31 ── EXPERTS - 1 - expert ── 0
```

Run it with `python examples/32_top_k_gating.py`; it checks itself against torch. Shapes: logits are [tokens,
experts], the weights and the experts are [tokens, K].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def gate_kernel(
    logits_ptr,
    weights_ptr,
    experts_ptr,
    n_tokens,
    TOKENS: tl.constexpr,
    EXPERTS: tl.constexpr,
    K: tl.constexpr,
):
    """Each program gates a block of tokens."""
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    experts = tl.arange(0, EXPERTS)
    mask = tokens[:, None] < n_tokens
    logits = tl.load(logits_ptr + tokens[:, None] * EXPERTS + experts[None, :], mask=mask, other=0.0)
    bits = logits.to(tl.int32, bitcast=True)
    order = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    best = tl.topk((order << 32) | (EXPERTS - 1 - experts[None, :]).to(tl.int64), K)
    order = (best >> 32).to(tl.int32)
    value = (order ^ ((order >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    expert = EXPERTS - 1 - (best & 0x7FFFFFFF).to(tl.int32)
    out = tokens[:, None] * K + tl.arange(0, K)[None, :]
    tl.store(weights_ptr + out, tl.softmax(value, dim=1, keep_dims=True), mask=mask)
    tl.store(experts_ptr + out, expert, mask=mask)


def gate(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the weights and the experts of each token."""
    tokens, experts = logits.shape
    weights = torch.empty(tokens, k, dtype=torch.float32, device=logits.device)
    chosen = torch.empty(tokens, k, dtype=torch.int32, device=logits.device)
    gate_kernel[(triton.cdiv(tokens, 16),)](logits, weights, chosen, tokens, TOKENS=16, EXPERTS=experts, K=k)
    return weights, chosen


def main() -> None:
    """Chooses among 64 experts for 1,000 tokens, and compares the result with torch's."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    logits = torch.randn(1_000, 64, device=device)
    weights, experts = gate(logits, 8)
    values, expected = torch.topk(logits, 8)
    print("experts of the first token:", experts[0].tolist())
    print("torch:                     ", expected[0].tolist())
    print("same experts:", torch.equal(experts.long(), expected))
    torch.testing.assert_close(experts.long(), expected)
    torch.testing.assert_close(weights, torch.softmax(values, 1))


if __name__ == "__main__":
    main()
