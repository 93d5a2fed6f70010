"""`triton.language.extra.hip`: what kernels written for AMD's GPUs ask of the machine, answered by the machine that runs
them."""

import triton
import triton.language as tl


@triton.jit
def memrealtime():
    """A clock of 100 MHz that all programs share, int64. It has another name on GPUs of AMD; here it is `globaltimer`,
    which counts nanoseconds, in steps of ten."""
    return tl.extra.cuda.globaltimer() // 10


@triton.jit
def num_threads():
    """How many threads a program has, as an int; the same as `extra.cuda.num_threads`."""
    return tl.extra.cuda.num_threads()


@triton.jit
def num_warps():
    """How many warps a program has, as an int; the same as `extra.cuda.num_warps`."""
    return tl.extra.cuda.num_warps()


@triton.jit
def smid():
    """The number of the multiprocessor that runs the program; the same as `extra.cuda.smid`."""
    return tl.extra.cuda.smid()
