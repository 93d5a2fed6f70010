"""Computes the attention of one new token to keys and values in pages, as in PagedAttention (arXiv 2309.06180).

```text
  sequence   its pages (block table)          memory of all sequences: pages of PAGE steps, in any order

  0          [ 4 │ 1 │ 5 ] 37 steps            page  0    1    2    3    4    5    6
  1          [ 2 ]          9 steps                 free  0.1  1.0 free  0.0  0.2  free

  a sequence in SPLITS parts, a program each                     another kernel combines the parts
  part 0: pages 0, 1  ─>  m0, l0, o0 ─┐
  part 1: page  2     ─>  m1, l1, o1 ─┴─>  weights e^(lse - max)  ─>  o = sum(weight * part) / sum(weight)
```

For one new token, each head has a single row of queries. One program for each sequence would be too little work for a
GPU, so several programs divide the steps of a sequence, as in "Flash-Decoding". The query heads that share a key head
are the rows of one tile, so that a program reads the keys once for all of these heads.

Run it with `python examples/41_paged_decode_attention.py`; it checks itself against torch. Shapes: queries are
[sequences, heads, width], the caches are [pages, PAGE, key heads, width], the table is [sequences, maximum
number of pages], lengths are [sequences].
"""

import math

import torch

import tilewright as triton
import tilewright.language as tl

LOG2_E = tl.constexpr(1 / math.log(2))


@triton.jit
def part_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, parts_ptr, lse_ptr, most_pages, heads, scale,
    GROUP: tl.constexpr, ROWS: tl.constexpr, PAGE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Computes in each program one part of one sequence, for one key head and the GROUP query heads that share it."""
    part, key_head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits, key_heads = tl.num_programs(0), tl.num_programs(1)
    # `tl.dot` needs at least 16 rows. The rows after the heads of the group are unused.
    row = tl.arange(0, ROWS)
    head = sequence * heads + key_head * GROUP + row
    columns = tl.arange(0, WIDTH)[None, :]
    q = tl.load(q_ptr + head[:, None] * WIDTH + columns, mask=row[:, None] < GROUP, other=0.0)

    length = tl.load(lengths_ptr + sequence)
    pages_of_part = tl.cdiv(tl.cdiv(length, PAGE), splits)
    start = part * pages_of_part
    end = tl.minimum(start + pages_of_part, tl.cdiv(length, PAGE))
    o = tl.zeros([ROWS, WIDTH], tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    for number in range(start, end):
        page = tl.load(table_ptr + sequence * most_pages + number).to(tl.int64)
        step = tl.arange(0, PAGE)
        place = ((page * PAGE + step[:, None]) * key_heads + key_head) * WIDTH + columns
        # The last page may be only partly used. The rest of it may contain any bits, also NaN.
        is_there = number * PAGE + step < length
        k = tl.load(k_ptr + place, mask=is_there[:, None], other=0.0)
        v = tl.load(v_ptr + place, mask=is_there[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
        s = tl.where(is_there[None, :], s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - larger[:, None])
        shrink = tl.exp2(m - larger)
        l = l * shrink + tl.sum(p, 1)
        o = tl.dot(p.to(v.dtype), v, o * shrink[:, None], input_precision="ieee")
        m = larger
    # A part without pages has l = 0 and m = -inf, so that its weight will be 0.
    l = tl.where(l > 0, l, 1.0)
    o = o / l[:, None]
    out = head * splits + part
    tl.store(parts_ptr + out[:, None] * WIDTH + columns, o, mask=row[:, None] < GROUP)
    tl.store(lse_ptr + out, m + tl.log2(l), mask=row < GROUP)


@triton.jit
def combine_kernel(parts_ptr, lse_ptr, o_ptr, splits, SPLITS: tl.constexpr, WIDTH: tl.constexpr):
    """Combines in each program the parts of one head of one sequence."""
    head = tl.program_id(0)
    part = tl.arange(0, SPLITS)
    columns = tl.arange(0, WIDTH)
    lse = tl.load(lse_ptr + head * splits + part, mask=part < splits, other=float("-inf"))
    weight = tl.exp2(lse - tl.max(lse, 0))
    places = (head * splits + part[:, None]) * WIDTH + columns[None, :]
    parts = tl.load(parts_ptr + places, mask=part[:, None] < splits, other=0.0)
    o = tl.sum(parts * weight[:, None], 0) / tl.sum(weight, 0)
    tl.store(o_ptr + head * WIDTH + columns, o)


def decode(q, k_cache, v_cache, table, lengths, splits):
    """Returns the outputs, in the shape of q."""
    sequences, heads, width = q.shape
    _, page, key_heads, _ = k_cache.shape
    parts = torch.empty(sequences, heads, splits, width, device=q.device)
    lse = torch.empty(sequences, heads, splits, device=q.device)
    o = torch.empty_like(q)
    group = heads // key_heads
    part_kernel[(splits, key_heads, sequences)](
        q, k_cache, v_cache, table, lengths, parts, lse, table.shape[1], heads, width**-0.5,
        GROUP=group, ROWS=max(16, triton.next_power_of_2(group)), PAGE=page, WIDTH=width,
    )  # fmt: skip
    combine_kernel[(sequences * heads,)](
        parts, lse, o, splits, SPLITS=triton.next_power_of_2(splits), WIDTH=width
    )
    return o


def fill_pages(dense, lengths, page):
    """Returns caches with the keys and values of all sequences in random pages, and the table of these pages."""
    counts = [triton.cdiv(length, page) for length in lengths]
    free = torch.randperm(sum(counts) + 3).tolist()
    caches = [
        torch.full((len(free), page, *x.shape[2:]), float("nan"), dtype=x.dtype, device=x.device)
        for x in dense
    ]
    table = torch.full((len(lengths), max(counts)), -1, dtype=torch.int32)
    for sequence, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        for number in range(count):
            table[sequence, number] = where = free.pop()
            steps = slice(number * page, min(length, (number + 1) * page))
            for cache, x in zip(caches, dense, strict=True):
                cache[where, : steps.stop - steps.start] = x[sequence, steps]
    return *caches, table.to(dense[0].device)


def main() -> None:
    """Compares sequences of four lengths with torch, for 8 query heads and 2 key heads."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lengths, heads, key_heads, width = [37, 1, 100, 16], 8, 2, 32
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        q = torch.randn(len(lengths), heads, width, device=device).to(dtype)
        k, v = (
            torch.randn(len(lengths), max(lengths), key_heads, width, device=device).to(dtype)
            for _ in range(2)
        )
        k_cache, v_cache, table = fill_pages((k, v), lengths, page=16)
        on_device = torch.tensor(lengths, dtype=torch.int32, device=device)
        expected = [
            torch.nn.functional.scaled_dot_product_attention(
                q[i, :, None].double(),
                k[i, :length].transpose(0, 1).repeat_interleave(heads // key_heads, 0).double(),
                v[i, :length].transpose(0, 1).repeat_interleave(heads // key_heads, 0).double(),
            )[:, 0]
            for i, length in enumerate(lengths)
        ]
        for splits in (1, 3, 8):
            found = decode(q, k_cache, v_cache, table, on_device, splits)
            torch.testing.assert_close(found.double(), torch.stack(expected), atol=tolerance, rtol=tolerance)
            difference = (found - torch.stack(expected)).abs().max().item()
            print(f"{dtype} in {splits} parts: largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
