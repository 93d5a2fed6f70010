"""A pytest plugin that runs the tests of the language against the official triton, to check what they expect.

    TRITON_INTERPRET=1 PYTHONPATH=tests/python python -m pytest -p peer tests/python/language/test_operators.py

Its interpreter is no oracle. If it disagrees (triton 3.9.0), these tests follow its GPU backend:

- bf16 numbers are computed as the integers of their bits: every test of bf16 arithmetic fails there.
- `and`, `or` and chained comparisons of tensors are Python's; unary plus does not exist.
- Floats outside of the range of an integer type become what the C library of the machine makes of them.
- -0 and +0 compare equal in minimum and maximum; fp32 logarithms are off by more than 2 ulp (numpy's).
- `xor_sum` with a negative axis, lists and integers as grids, numpy arrays as arguments, closures: not supported.
"""

import sys

import triton
import triton.language

sys.modules["tilewright"] = triton
sys.modules["tilewright.language"] = triton.language
