"""``triton.experimental.gluon``: kernels that choose their layouts themselves, for NVIDIA GPUs and the simulator.

All names exist, because programs import Gluon beside the kernels that they launch. Those that this version lacks raise
``NotAvailableError`` (TW0117) when a kernel or the host calls them.
"""

from __future__ import annotations

import sys

from tilewright.experimental.gluon import _host, _layouts
from tilewright.experimental.gluon._modules import add_modules
from tilewright.experimental.gluon._runtime import GluonASTSource, GluonJITFunction, jit
from tilewright.language._aggregate import aggregate
from tilewright.language.core import must_use_result
from tilewright.runtime.jit import constexpr_function

__all__ = [
    "GluonASTSource",
    "GluonJITFunction",
    "aggregate",
    "amd",
    "constexpr_function",
    "jit",
    "language",
    "must_use_result",
    "nvidia",
]

add_modules(__name__, _host.MODULES, {"_host": vars(_host), "_layouts": vars(_layouts)})
amd = sys.modules[f"{__name__}.amd"]
nvidia = sys.modules[f"{__name__}.nvidia"]

from tilewright.experimental.gluon import language  # noqa: E402
