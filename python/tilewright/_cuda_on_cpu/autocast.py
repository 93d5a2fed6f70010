"""``torch.autocast("cuda")``, while ``cuda`` is the processor.

Autocast of the CPU is switched on with the dtype that the program requested: it casts matrix multiplications and
convolutions, inside composed functions as well. Its other lists differ from those of CUDA: so calls on CUDA's lists
get the casts here, and results that only the CPU computes in float32 are cast back. Results have CUDA's dtypes.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The lists of `ATen/autocast_mode.h` for CUDA, by the names of the functions in Python.
_FLOAT32 = _names(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ __rpow__ softplus "
    "layer_norm native_layer_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss "
    "cosine_embedding_loss nll_loss cross_entropy hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss "
    "mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss "
    "binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp interpolate upsample upsample_nearest "
    "upsample_bilinear prod softmax log_softmax softmin cumprod cumsum vector_norm matrix_norm linalg_vector_norm "
    "linalg_matrix_norm sum norm"
)
# Functions that CUDA computes in the lower precision and the CPU's list lacks.
_LOWER = _names(
    "addmv addr mv chain_matmul multi_dot linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell lstm gru "
    "rnn_tanh rnn_relu"
)
_WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sample tensordot scatter_add")
# Functions that only the CPU's list computes in float32.
_ONLY_ON_CPU = _names(
    "avg_pool3d grid_sample polar quantile nanquantile stft trace view_as_complex cholesky cholesky_inverse "
    "cholesky_solve inverse lu_solve orgqr ormqr pinverse max_unpool2d max_unpool3d adaptive_avg_pool3d "
    "reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d mse_loss ctc_loss "
    "multilabel_margin_loss fft_fft fft_ifft geqrf _lu_with_info qr svd triangular_solve fractional_max_pool2d "
    "fractional_max_pool3d adaptive_max_pool3d multi_margin_loss linalg_qr"
)
_BANNED = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


class Autocast:
    """The number of entered regions, in all threads, and the casts of one call."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.depth = 0
        self.lock = threading.Lock()
        self.lower_types = (torch.float16, torch.bfloat16)
        self.types = (*self.lower_types, torch.float32)

    def call(self, mark: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function as CUDA's autocast does, if this thread is in a region."""
        torch = self.torch
        if not torch.is_autocast_enabled("cuda"):
            return func(*args, **kwargs)
        if not mark.any((*args, *kwargs.values())):
            return self._without(func, args, kwargs)
        name = getattr(func, "__name__", "")
        if name == "binary_cross_entropy":
            raise RuntimeError(_BANNED)
        dtype = None
        if kwargs.get("out") is None and kwargs.get("dtype") is None:
            if name in _FLOAT32:
                dtype = torch.float32
            elif name in _LOWER:
                dtype = torch.get_autocast_dtype("cuda")
            elif name in _WIDEST:
                dtype = self._widest(mark, (*args, *kwargs.values()))
        if dtype is not None:
            args = self._cast(mark, args, dtype)
            kwargs = {key: self._cast(mark, value, dtype) for key, value in kwargs.items()}
        if dtype is torch.float32:
            return self._without(func, args, kwargs)
        if name in _ONLY_ON_CPU:
            # The CPU may not implement the function in the lower precision: convert its float32
            # result.
            kinds = [value.dtype for value in (*args, *kwargs.values()) if self._is_cast(mark, value)]
            return self._in_type(func(*args, **kwargs), kinds[0] if kinds else torch.float32)
        return func(*args, **kwargs)

    @contextmanager
    def left(self) -> Iterator[None]:
        """Leaves all regions: within a kernel, nothing is cast."""
        if not self.depth:
            yield
            return
        torch = self.torch
        before = [torch.is_autocast_enabled(kind) for kind in ("cuda", "cpu")]
        for kind in ("cuda", "cpu"):
            torch.set_autocast_enabled(kind, False)
        try:
            yield
        finally:
            for kind, enabled in zip(("cuda", "cpu"), before, strict=True):
                torch.set_autocast_enabled(kind, enabled)

    def _without(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        torch = self.torch
        before = torch.is_autocast_enabled("cpu")
        torch.set_autocast_enabled("cpu", False)
        try:
            return func(*args, **kwargs)
        finally:
            torch.set_autocast_enabled("cpu", before)

    def _is_cast(self, mark: Any, value: Any) -> bool:
        return isinstance(value, self.torch.Tensor) and value.dtype in self.types and mark.has(value)

    def _in_type(self, result: Any, dtype: Any) -> Any:
        """The result, in the type that CUDA computes it in."""
        if isinstance(result, self.torch.Tensor):
            return result.to(dtype) if result.dtype is self.torch.float32 else result
        if type(result) in (tuple, list):
            return type(result)(self._in_type(item, dtype) for item in result)
        return result

    def _widest(self, mark: Any, values: Any) -> Any:
        """Float32, if two types occur and one is float32."""
        kinds = {value.dtype for value in values if self._is_cast(mark, value)}
        return self.torch.float32 if len(kinds) > 1 else None

    def _cast(self, mark: Any, value: Any, dtype: Any) -> Any:
        if self._is_cast(mark, value):
            return mark.set(value.to(dtype), True) if value.dtype is not dtype else value
        if type(value) in (tuple, list):
            return type(value)(self._cast(mark, item, dtype) for item in value)
        return value


def install(torch: Any) -> Autocast:
    """Makes regions of ``cuda`` regions of the CPU as well."""
    state = Autocast(torch)
    if not hasattr(torch, "get_autocast_dtype"):
        # Before torch 2.4 there is no such function: `Autocast` reports that it is disabled.
        return state
    _allow(torch)
    autocast = torch.amp.autocast_mode.autocast
    real_enter, real_exit = autocast.__enter__, autocast.__exit__

    @functools.wraps(real_enter)
    def enter(self: Any) -> Any:
        result = real_enter(self)
        if self.device == "cuda":
            from tilewright._cuda_on_cpu.announcement import announce

            announce()
            self._tilewright_cpu = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            torch.set_autocast_dtype("cpu", self.fast_dtype)
            torch.set_autocast_enabled("cpu", self._enabled)
            with state.lock:
                state.depth += 1
        return result

    @functools.wraps(real_exit)
    def leave(self: Any, *error: Any) -> Any:
        if self.device == "cuda":
            enabled, dtype = self._tilewright_cpu
            torch.set_autocast_dtype("cpu", dtype)
            torch.set_autocast_enabled("cpu", enabled)
            with state.lock:
                state.depth -= 1
        return real_exit(self, *error)

    autocast.__enter__, autocast.__exit__ = enter, leave
    return state


def _allow(torch: Any) -> None:
    """Lets torch make regions and scalers of ``cuda``."""
    common = torch.cuda.amp.common
    common.amp_definitely_not_available = torch.cuda.amp.amp_definitely_not_available = lambda: False
