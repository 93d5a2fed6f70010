"""``triton.testing``: timing of functions, benchmark reports, comparison of tensors, and the limits of a GPU."""

from __future__ import annotations

from typing import Any

from tilewright import runtime as runtime
from tilewright._benchmark import cuda_graph_without_gc, do_bench, do_bench_cudagraph
from tilewright._benchmark import quantile as _quantile_of
from tilewright._benchmark import summary as _summarize_statistics
from tilewright._device_limits import (
    get_dram_gbps,
    get_max_simd_tflops,
    get_max_tensorcore_tflops,
    nvsmi,
    set_gpu_clock,
)
from tilewright._perf_report import Benchmark, Mark, perf_report
from tilewright._replaced_names import replaced_names

__all__ = [
    "Benchmark",
    "Mark",
    "_summarize_statistics",
    "allclose",
    "assert_almost_equal",
    "assert_close",
    "cuda_graph_without_gc",
    "do_bench",
    "do_bench_cudagraph",
    "do_bench_cudagraph_proton",
    "do_bench_proton",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
    "set_gpu_clock",
]

do_bench_proton, do_bench_cudagraph_proton = do_bench, do_bench_cudagraph
"""These take the same times: a profile is not needed for them."""

__getattr__ = replaced_names(
    "tilewright.testing",
    "cublas cuda_memcheck",
    instead="torch.matmul is cuBLAS; every access is checked on the CPU and the simulator "
    "(TILEWRIGHT_DEVICE=sim:sm_90), and compute-sanitizer checks a program on a GPU",
)


def _quantile(a: Any, q: Any) -> list[float]:
    """Returns quantiles of numbers, by linear interpolation between two numbers."""
    return [_quantile_of(a, fraction) for fraction in q]


def assert_close(
    x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Raises an ``AssertionError`` unless two tensors or arrays have almost the same values."""
    import numpy as np

    actual, expected = _array(x), _array(y)
    # Booleans and integers are compared exactly.
    exact = expected.dtype.kind in "biu"
    atol = (0 if exact else 1e-2) if atol is None else _tolerance(atol, expected.dtype)
    rtol = 0 if rtol is None else _tolerance(rtol, expected.dtype)
    if actual.size > 1 or expected.size > 1:
        np.testing.assert_allclose(actual, expected, atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg)
    elif not np.allclose(actual, expected, atol=atol, rtol=rtol, equal_nan=True):
        raise AssertionError(f"{err_msg} {actual} is not close to {expected} (atol={atol}, rtol={rtol})")


def assert_almost_equal(x: Any, y: Any, decimal: int = 2, err_msg: str = "") -> None:
    """Raises an ``AssertionError`` unless values agree to these decimals; ``assert_close`` of release 2.0."""
    import numpy as np

    np.testing.assert_array_almost_equal(_array(x), _array(y), decimal=decimal, err_msg=err_msg)


def allclose(x: Any, y: Any, tol: float = 1e-2) -> bool:
    """Returns whether two tensors or arrays have almost the same values, as in release 2.0."""
    import numpy as np

    return bool(np.allclose(_array(x), _array(y), atol=tol, rtol=0, equal_nan=True))


def _tolerance(tolerance: Any, dtype: Any) -> float:
    """Returns the value of a tolerance, which may be a function of the dtype."""
    return float(tolerance(dtype) if callable(tolerance) else tolerance)


def _array(value: Any) -> Any:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype) or "float8" in str(value.dtype):
            value = value.float()
        value = value.numpy()
    return np.asarray(value)
