"""Compares with torch; prints ``fine``."""

import torch

from normkit.rms import add_rms_norm_, rms_norm


def _gradients(function, *args):
    args = [arg.clone().requires_grad_() for arg in args]
    out = function(*args)
    out.backward(torch.linspace(-1, 1, out.numel(), device=out.device, dtype=out.dtype).view_as(out))
    return [out, *(arg.grad for arg in args)]


torch.manual_seed(0)
for m, n, dtype, tolerance in (
    (5, 24, torch.float32, 1e-4),
    (4, 32, torch.float32, 1e-4),
    (3, 40, torch.bfloat16, 3e-2),
):
    x, weight, bias = (torch.randn(*shape, device="cuda", dtype=dtype) for shape in ((m, n), (n,), (n,)))

    def reference(x, weight, bias=0.0):
        return torch.nn.functional.rms_norm(x, (x.shape[1],), weight, 1e-6) + bias

    for args in ((x, weight), (x, weight, bias)):
        for ours, theirs in zip(_gradients(rms_norm, *args), _gradients(reference, *args), strict=True):
            torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    residual = torch.randn_like(x)
    total = x + residual
    # The first launch runs it several times, and the residual is added to once.
    out = add_rms_norm_(x, residual, weight)
    torch.testing.assert_close(residual, total, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(out, reference(total, weight), atol=tolerance, rtol=tolerance)
print("fine")
