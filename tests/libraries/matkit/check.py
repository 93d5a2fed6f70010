"""Compares with torch; prints ``fine``."""

import torch

from matkit.linear import _matmul, _slope, linear, seen_blocks


def _gradients(function, *args):
    args = [arg.clone().requires_grad_() for arg in args]
    out = function(*args)
    out.backward(torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out))
    return [out, *(arg.grad for arg in args)]


torch.manual_seed(0)
for m, n, k in ((20, 24, 16), (33, 17, 21)):
    args = [torch.randn(*shape, device="cuda") for shape in ((m, k), (n, k), (n,))]
    for activation in ("", "leaky_relu"):

        def reference(x, weight, bias, activation=activation):
            y = torch.nn.functional.linear(x, weight, bias)
            return torch.nn.functional.leaky_relu(y) if activation else y

        def own(x, weight, bias, activation=activation):
            return linear(x, weight, bias, activation)

        for ours, theirs in zip(_gradients(own, *args), _gradients(reference, *args), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
assert 256 not in seen_blocks
assert {16, 32} >= set(seen_blocks)
assert len(_matmul.configs_timings) == 2
assert _slope.measured == 4
print("fine")
