"""`triton.language.extra.hip`: the queries of kernels written for AMD's GPUs. They return the properties of the
machine that runs the kernel."""

import triton
import triton.language as tl


@triton.jit
def memrealtime():
    """A clock of 100 MHz that all programs share, int64: `globaltimer`, which counts nanoseconds, divided by
    ten."""
    return tl.extra.cuda.globaltimer() // 10


@triton.jit
def num_threads():
    """The number of threads of a program, as an int; the same as `extra.cuda.num_threads`."""
    return tl.extra.cuda.num_threads()


@triton.jit
def num_warps():
    """The number of warps of a program, as an int; the same as `extra.cuda.num_warps`."""
    return tl.extra.cuda.num_warps()


@triton.jit
def smid():
    """The index of the multiprocessor that runs the program; the same as `extra.cuda.smid`."""
    return tl.extra.cuda.smid()
