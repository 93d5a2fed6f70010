"""Adds two vectors. The program needs only tilewright and numpy: no torch, no GPU.

```text
  program     0              1              2         …       96
  x        ├──────────────┼──────────────┼──────────────┼ … ┼──────────╌╌╌╌┤
  y        ├──────────────┼──────────────┼──────────────┼ … ┼──────────╌╌╌╌┤    the last block is not full: the mask
  output   ├──────────────┼──────────────┼──────────────┼ … ┼──────────╌╌╌╌┤    leaves out what is past the end
             1024 elements                                    128
```

Run it with `make demo`, or `python examples/01_vector_add.py`.
"""

import numpy as np

import tilewright as triton
import tilewright.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    """Each program adds one block of BLOCK_SIZE elements."""
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


def main() -> None:
    """Adds two vectors of 98,432 random numbers on the CPU, and compares the sums with numpy's."""
    generator = np.random.default_rng(0)
    n_elements = 98_432
    x = generator.random(n_elements, dtype=np.float32)
    y = generator.random(n_elements, dtype=np.float32)
    output = np.empty_like(x)

    add_kernel[lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)](
        x, y, output, n_elements, BLOCK_SIZE=1024
    )

    print("tilewright:", output)
    print("numpy:     ", x + y)
    print("largest difference:", np.abs(output - (x + y)).max())


if __name__ == "__main__":
    main()
