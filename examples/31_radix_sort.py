"""Sorts by radix: each pass sorts the keys by one digit of four bits, and keeps the order of keys with equal digits.

A pass has two kernels. The first counts the digits of each block. Sums of these counts give, for each block and digit,
the index of the first key in the sorted array. The second kernel finds, by a scan, the rank of each key among the
keys of the block with the same digit, and stores the key at the sum of index and rank.

```text
  a pass over one digit, 0 or 1 for short             block 0        block 1
  keys                                               1a 0b 1c 0d    0e 0f 1g 0h
  counts of the digits 0 and 1                       2, 2           3, 1
  where they begin: sums over digits, then blocks    0: 0   1: 5    0: 2   1: 7
  ranks among the keys of the digit in the block     0  0  1  1     0  1  0  2
  sorted by the digit                                0b 0d 0e 0f 0h 1a 1c 1g
```

Run it with `python examples/31_radix_sort.py`; it checks itself against torch. Shapes: keys are [n].
"""

import torch

import tilewright as triton
import tilewright.language as tl

BITS = 4


@triton.jit
def count_kernel(keys_ptr, counts_ptr, n_keys, shift, BLOCK: tl.constexpr, DIGITS: tl.constexpr):
    """Counts the keys of a block that have each digit."""
    pid = tl.program_id(0)
    place = pid * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys_ptr + place, mask=place < n_keys, other=0)
    digit = (key >> shift) & (DIGITS - 1)
    counts = tl.histogram(digit, DIGITS, mask=place < n_keys)
    tl.store(counts_ptr + tl.arange(0, DIGITS) * tl.num_programs(0) + pid, counts)


@triton.jit
def scatter_kernel(
    keys_ptr, sorted_ptr, starts_ptr, n_keys, shift, BLOCK: tl.constexpr, DIGITS: tl.constexpr
):
    """Stores the keys of a block at their indices in the sorted array."""
    pid = tl.program_id(0)
    place = pid * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys_ptr + place, mask=place < n_keys, other=0)
    digit = (key >> shift) & (DIGITS - 1)
    is_digit = (digit[:, None] == tl.arange(0, DIGITS)[None, :]).to(tl.int32)
    rank = tl.sum(tl.cumsum(is_digit, 0) * is_digit, 1) - 1
    start = tl.load(starts_ptr + digit * tl.num_programs(0) + pid)
    tl.store(sorted_ptr + start + rank, key, mask=place < n_keys)


def radix_sort(keys: torch.Tensor) -> torch.Tensor:
    """Returns the keys in ascending order. They are int32 and not negative."""
    block, digits, n_keys = 256, 1 << BITS, keys.numel()
    grid = (triton.cdiv(n_keys, block),)
    counts = torch.empty(digits * grid[0], dtype=torch.int32, device=keys.device)
    keys, other = keys.clone(), torch.empty_like(keys)
    for shift in range(0, 32, BITS):
        count_kernel[grid](keys, counts, n_keys, shift, BLOCK=block, DIGITS=digits)
        starts = (torch.cumsum(counts, 0) - counts).to(torch.int32)
        scatter_kernel[grid](keys, other, starts, n_keys, shift, BLOCK=block, DIGITS=digits)
        keys, other = other, keys
    return keys


def main() -> None:
    """Sorts 10,000 keys, and compares the result with torch's."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    keys = torch.randint(0, 2**31 - 1, (10_000,), dtype=torch.int32, device=device)
    found = radix_sort(keys)
    expected = torch.sort(keys).values
    print("tilewright:", found)
    print("torch:     ", expected)
    assert torch.equal(found, expected)


if __name__ == "__main__":
    main()
