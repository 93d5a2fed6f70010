"""``triton.language.extra.hip.utils``: queries of the compute unit."""

from tilewright.language.extra import hip

_FUNCTIONS = {name: getattr(hip, name) for name in ("memrealtime", "num_threads", "num_warps", "smid")}
globals().update(_FUNCTIONS)

__all__ = list(_FUNCTIONS)
