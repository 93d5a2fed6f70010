"""Computes linear attention with a decay, in chunks: o[t] = q[t] @ S[t] with S[t] = exp(g[t]) S[t - 1] + k[t]^T v[t].

Within a chunk, the decays between steps are differences of a cumulative sum of g, so the chunk is computed by products
of matrices. Only the state S is carried from chunk to chunk.

```text
  chunk        0               1               2
  S      0 ─────────> S ─────────────> S ─────────────>      S' = exp(total) S + (late k)ᵀ v
               │               │               │
  o        inside          inside          inside            inside: (q kᵀ * decays, its lower triangle) v
                           + q S           + q S             before: (exp(decay) q) S
```

Run it with `python examples/42_chunked_linear_attention.py`; it checks itself against the recurrence in torch.
Shapes: q and k are [heads, steps, keys], v is [heads, steps, values], g is [heads, steps].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, g_ptr, o_ptr, n_steps, CHUNK: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr
):
    """Each program computes one head."""
    head = tl.program_id(0) * n_steps
    t = tl.arange(0, CHUNK)
    keys = tl.arange(0, KEYS)
    values = tl.arange(0, VALUES)
    state = tl.zeros([KEYS, VALUES], tl.float32)
    for start in range(0, n_steps, CHUNK):
        steps = head + start + t
        q = tl.load(q_ptr + steps[:, None] * KEYS + keys[None, :])
        k = tl.load(k_ptr + steps[:, None] * KEYS + keys[None, :])
        v = tl.load(v_ptr + steps[:, None] * VALUES + values[None, :])
        g = tl.load(g_ptr + steps)
        decay = tl.cumsum(g, 0)
        total = tl.sum(g, 0)
        between = tl.where(t[:, None] >= t[None, :], tl.exp(decay[:, None] - decay[None, :]), 0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * between
        o = tl.dot(q * tl.exp(decay)[:, None], state, input_precision="ieee")
        o = tl.dot(scores, v, o, input_precision="ieee")
        tl.store(o_ptr + steps[:, None] * VALUES + values[None, :], o)
        late = k * tl.exp(total - decay)[:, None]
        state = tl.dot(tl.trans(late), v, state * tl.exp(total), input_precision="ieee")


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Returns the outputs. q and k are [heads, steps, keys], v is [heads, steps, values], g is [heads, steps]."""
    heads, steps, keys = q.shape
    o = torch.empty_like(v)
    attention_kernel[(heads,)](q, k, v, g, o, steps, CHUNK=32, KEYS=keys, VALUES=v.shape[2])
    return o


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Computes the recurrence step by step, in double precision."""
    q, k, v, g = (x.double() for x in (q, k, v, g))
    state = torch.zeros(q.shape[0], q.shape[2], v.shape[2], dtype=torch.float64, device=q.device)
    outputs = []
    for t in range(q.shape[1]):
        state = state * torch.exp(g[:, t, None, None]) + k[:, t, :, None] * v[:, t, None, :]
        outputs.append(torch.einsum("hk,hkv->hv", q[:, t], state))
    return torch.stack(outputs, 1).float()


def main() -> None:
    """Compares four heads of 256 steps with the recurrence."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(4, 256, width, device=device) for width in (32, 32, 64))
    g = -torch.rand(4, 256, device=device) * 0.2
    found, expected = attention(q, k, v, g), reference(q, k, v, g)
    print("largest difference:", (found - expected).abs().max().item(), "of", expected.abs().max().item())
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
