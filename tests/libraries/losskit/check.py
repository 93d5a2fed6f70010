"""Compares with torch; prints ``fine``."""

import torch

from losskit import cross_entropy
from losskit.common import settings

torch.manual_seed(0)
for rows, n, cap in ((5, 40, 0), (9, 64, 30), (3, 7, 2)):
    logits = torch.randn(rows, n, device="cuda") * 3
    target = torch.randint(0, n, (rows,), device="cuda")
    target[1] = -100
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    loss = cross_entropy(ours, target, cap)
    capped = cap * torch.tanh(theirs / cap) if cap else theirs
    expected = torch.nn.functional.cross_entropy(capped, target)
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
    (loss * 3).backward()
    (expected * 3).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4)
try:
    settings(100_000)
except RuntimeError:
    print("fine")
