"""Computes running sums in one pass over memory. Each program reads the results of the programs before it.

This is the algorithm *decoupled look-back*:

```text
state of a block    0: nothing yet    1: its own sum is known    2: its prefix is known: the sum of all blocks up to it

block   0   1   2   3   4   5
state   2   2   1   1   0   …       block 4 adds the sums of 3 and 2 and the prefix of 1, and is done
```

A program publishes a number: it stores the number and then exchanges the state with `sem="release"`. A program that
reads this state with `sem="acquire"` sees the number. Each program takes the next block by a ticket, so it only waits
for programs that have begun.

Run it with `python examples/30_single_pass_scan.py`; it checks itself against torch. Shapes: x is [n].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def scan(x_ptr, out_ptr, ticket_ptr, states_ptr, sums_ptr, prefixes_ptr, n, BLOCK: tl.constexpr):
    """Computes the running sums of one block in each program of the grid."""
    block = tl.atomic_add(ticket_ptr, 1, sem="relaxed")
    i = tl.arange(0, BLOCK)
    mask = block * BLOCK + i < n
    x = tl.load(x_ptr + block * BLOCK + i, mask=mask, other=0)
    total = tl.sum(x, 0)
    tl.store(sums_ptr + block, total)
    tl.atomic_xchg(states_ptr + block, 1, sem="release")
    before = total * 0
    other = block - 1
    while other >= 0:
        state = tl.atomic_add(states_ptr + other, 0, sem="acquire")
        if state == 2:
            before += tl.load(prefixes_ptr + other)
            other = -1
        elif state == 1:
            before += tl.load(sums_ptr + other)
            other -= 1
    tl.store(prefixes_ptr + block, before + total)
    tl.atomic_xchg(states_ptr + block, 2, sem="release")
    # Within the block, each running sum has its own element and the earlier ones.
    inside = tl.sum(tl.where(i[None, :] <= i[:, None], x[None, :], 0), 1)
    tl.store(out_ptr + block * BLOCK + i, before + inside, mask=mask)


def running_sums(x, block=64):
    """Returns the running sums of integers."""
    programs = triton.cdiv(x.numel(), block)
    out = torch.empty_like(x)
    ticket = torch.zeros(1, dtype=torch.int32, device=x.device)
    states = torch.zeros(programs, dtype=torch.int32, device=x.device)
    sums, prefixes = (torch.empty(programs, dtype=x.dtype, device=x.device) for _ in range(2))
    scan[(programs,)](x, out, ticket, states, sums, prefixes, x.numel(), BLOCK=block)
    return out


def main() -> None:
    """Compares running sums with torch's."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for n in (1, 64, 1000, 3000):
        x = torch.randint(-100, 100, (n,), dtype=torch.int32, device=device)
        found, expected = running_sums(x), x.cumsum(0).to(torch.int32)
        assert torch.equal(found, expected)
        print(f"{n} numbers: the last running sum is {found[-1].item()}, as torch's")


if __name__ == "__main__":
    main()
