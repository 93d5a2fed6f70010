"""Kernels only for `gpu/sanitized.py`: programs that wait for each other, and two with planted mistakes."""

import triton
import triton.language as tl


@triton.jit
def hand_over(flag_ptr, data_ptr, o_ptr, n):
    """Each program waits for the one before, and adds 1 to what that one has left; the last gives the result."""
    program = tl.program_id(0)
    i = tl.arange(0, 128)
    total = tl.zeros([128], tl.int32)
    if program > 0:
        while tl.atomic_add(flag_ptr + program - 1, 0, sem="acquire") == 0:
            pass
        total = tl.load(data_ptr + (program - 1) * 128 + i)
    tl.store(data_ptr + program * 128 + i, total + 1)
    tl.atomic_xchg(flag_ptr + program, 1, sem="release")
    while tl.atomic_cas(flag_ptr + n, 0, 1) == 1:
        pass
    tl.store(o_ptr + i, tl.maximum(tl.load(o_ptr + i, volatile=True), total + 1))
    tl.atomic_xchg(flag_ptr + n, 0)


@triton.jit
def overruns(o_ptr):
    """Stores 1024 elements where there are 1000."""
    tl.store(o_ptr + tl.arange(0, 1024), tl.arange(0, 1024))


@triton.jit
def races(o_ptr):
    """Each thread reads what one of another warp stores to shared memory, with no barrier between."""
    i = tl.arange(0, 128)
    got = tl.inline_asm_elementwise(
        """
        {
        .shared .align 4 .b32 words[128];
        .reg .u32 %place, %base;
        mov.u32 %base, words;
        shl.b32 %place, $1, 2;
        add.u32 %place, %place, %base;
        st.shared.u32 [%place], $1;
        xor.b32 %place, $1, 64;
        shl.b32 %place, %place, 2;
        add.u32 %place, %place, %base;
        ld.shared.u32 $0, [%place];
        }
        """,
        "=r,r",
        [i],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(o_ptr + i, got)
