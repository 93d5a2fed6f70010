"""Computes the softmax of each row of a matrix, by a kernel that reads each row once and writes it once.

The figure compares the kernel with five operations of an array library, whose operands and results are in memory:

```text
             reads            writes
m = max(x)   ████████ x                         x - m, exp and / are whole matrices that go to memory
d = x - m    ████████ x       ████████ d        and come back only because no operation knows the next
e = exp(d)   ████████ d       ████████ e
s = sum(e)   ████████ e
y = e / s    ████████ e       ████████ y

this kernel  ████████ x       ████████ y        between them the row stays in registers
```

The number of elements of a tile is a power of two; a row may have any number. Elements of the tile past the end of the
row are loaded as minus infinity. Their exponential is 0, so they change neither the largest element nor the sum.

Run it with `python examples/02_softmax.py`; it checks itself against torch. Shapes: x and y are [rows, n].
"""

import torch

import tilewright as triton
import tilewright.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n, BLOCK: tl.constexpr):
    """Each program computes one row. A stride is the number of elements from one row to the next."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * x_stride + columns, mask=mask, other=float("-inf")).to(tl.float32)
    # The exponential of a large number is infinite. After the subtraction, numbers are at most 0.
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    # A store converts elements to the element type of y, such as fp16.
    tl.store(y_ptr + row * y_stride + columns, y, mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns the softmax of each row."""
    rows, n = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, x.stride(0), y.stride(0), n, BLOCK=triton.next_power_of_2(n))
    return y


def main() -> None:
    """Compares rows of several widths and dtypes with torch."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)):
        for rows, n in ((4, 1), (7, 100), (3, 1024), (2, 1500)):
            # The elements are about 100: without the subtraction, their exponentials would be infinite.
            x = (torch.randn(rows, n, device=device) * 3 + 100).to(dtype)
            found, expected = softmax(x), torch.softmax(x, 1)
            torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
            difference = (found.float() - expected.float()).abs().max().item()
            print(f"{dtype} [{rows}, {n}]: largest difference {difference:.1e}")
    # In a part of a matrix, there are gaps between the rows; the kernel finds the rows by their stride.
    x = torch.randn(5, 200, device=device)
    torch.testing.assert_close(softmax(x[:, 30:130]), torch.softmax(x[:, 30:130], 1))


if __name__ == "__main__":
    main()
