"""``triton.tools.mxfp``: 4-bit floats and 8-bit scales of the microscaling formats, as torch tensors on the host."""

from __future__ import annotations

from typing import Any

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The magnitudes that the lower three bits of an e2m1 float encode; the fourth is the sign."""

_NAN_SCALE = 0xFF
_SCALE_BIAS = 127


class MXFP4Tensor:
    """A tensor of e2m1 floats, a byte each in ``data``: of floats, which are rounded, or of a size, to be filled."""

    def __init__(self, data: Any = None, size: Any = None, device: Any = None) -> None:
        if (data is None) == (size is None):
            raise ValueError("MXFP4Tensor takes either data or size")
        self.device = data.device if data is not None else device
        self.size: Any = data.shape if data is not None else size if isinstance(size, tuple) else (size,)
        self.data: Any = None if data is None else self._from_float(data)

    def random(self) -> MXFP4Tensor:
        """Fills it with any of the sixteen floats."""
        import torch

        self.data = torch.randint(0, 16, size=self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The values, as floats."""
        import torch

        values = torch.tensor([*_MAGNITUDES, *(-value for value in _MAGNITUDES)], device=self.data.device)
        return values.to(dtype)[self.data.long()]

    @staticmethod
    def _from_float(values: Any) -> Any:
        """The nearest e2m1 floats; of two that are as near the one with an even last bit. Large ones become 6."""
        import torch

        values = values.float()
        magnitudes = torch.tensor(_MAGNITUDES, device=values.device)
        middles = (magnitudes[1:] + magnitudes[:-1]) / 2
        size = values.abs().contiguous()
        codes = torch.bucketize(size, middles)
        last = len(middles) - 1
        is_between = (codes <= last) & (size == middles[codes.clamp(max=last)])
        codes = torch.where(is_between & (codes % 2 == 1), codes + 1, codes)
        return (codes + 8 * torch.signbit(values)).to(torch.uint8)

    def to_packed_tensor(self, dim: int) -> Any:
        """Two floats a byte along an axis, the first in the lower half; an odd one is followed by a zero."""
        import torch

        data = self.data.movedim(dim, -1)
        if data.shape[-1] % 2:
            data = torch.nn.functional.pad(data, (0, 1))
        return (data[..., 0::2] | (data[..., 1::2] << 4)).movedim(-1, dim).contiguous()

    def unpack_packed_tensor(self, packed_tensor: Any, dim: int, original_shape: Any) -> Any:
        """A byte for each float again."""
        import torch

        packed = packed_tensor.movedim(dim, -1)
        pairs = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)
        return pairs[..., : original_shape[dim]].movedim(-1, dim).contiguous()


class MXScaleTensor:
    """A tensor of e8m0 scales, powers of two, a byte each in ``data``: of floats, or of a size, to be filled."""

    def __init__(self, data: Any = None, size: Any = None, device: Any = None) -> None:
        if (data is None) == (size is None):
            raise ValueError("MXScaleTensor takes either data or size")
        self.device = data.device if data is not None else device
        self.size: Any = data.shape if data is not None else size if isinstance(size, tuple) else (size,)
        self.data: Any = None if data is None else self._from_float(data)

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Fills it with powers of two, between ``low`` and ``high`` where they are given."""
        import math

        import torch

        least = 0 if low is None else max(int(math.log2(low)) + _SCALE_BIAS, 0)
        most = 254 if high is None else min(max(int(math.log2(high)) + _SCALE_BIAS, 0), 254)
        if least > most:
            raise ValueError(f"there is no scale between {low} and {high}")
        self.data = torch.randint(least, most + 1, size=self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The values, as floats."""
        import torch

        values = torch.exp2(self.data.double() - _SCALE_BIAS)
        return torch.where(self.data == _NAN_SCALE, float("nan"), values).to(dtype)

    @staticmethod
    def _from_float(values: Any) -> Any:
        """The powers of two below; what is no positive number is the NaN of the format."""
        import torch

        values = values.double()
        is_number = torch.isfinite(values) & (values > 0)
        exponents = torch.frexp(torch.where(is_number, values, 1.0))[1] - 1
        data = torch.clamp(exponents + _SCALE_BIAS, 0, 254)
        return torch.where(is_number, data, _NAN_SCALE).to(torch.uint8)


def fp8e8m0_to_float32(scale: Any) -> Any:
    """Scales, a byte each, as binary32 numbers. The exponent 0 gives 0, as the bits say."""
    import torch

    return (scale.view(torch.uint8).to(torch.int32) << 23).view(torch.float32)
