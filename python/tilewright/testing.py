"""``triton.testing``: comparing tensors. Benchmarks are still to come."""

from __future__ import annotations

from typing import Any

from tilewright._missing import missing_names

__getattr__ = missing_names(
    "tilewright.testing",
    "Benchmark Mark cuda_memcheck do_bench do_bench_cudagraph get_dram_gbps get_max_simd_tflops "
    "get_max_tensorcore_tflops nvsmi perf_report set_gpu_clock",
)


def assert_close(
    x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Raises an ``AssertionError`` unless two tensors or arrays have almost the same values."""
    import numpy as np

    actual, expected = _array(x), _array(y)
    # What is exact need not be close.
    exact = expected.dtype.kind in "biu"
    atol = (0 if exact else 1e-2) if atol is None else atol
    rtol = 0 if rtol is None else rtol
    if actual.size > 1 or expected.size > 1:
        np.testing.assert_allclose(actual, expected, atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg)
    elif not np.allclose(actual, expected, atol=atol, rtol=rtol, equal_nan=True):
        raise AssertionError(f"{err_msg} {actual} is not close to {expected} (atol={atol}, rtol={rtol})")


def _array(value: Any) -> Any:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype) or "float8" in str(value.dtype):
            value = value.float()
        value = value.numpy()
    return np.asarray(value)
