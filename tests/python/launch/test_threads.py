"""Launches from several threads at once."""

from __future__ import annotations

import os
import sys
import threading

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl


@triton.jit
def scale(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


def in_threads(count, work):
    failures = []
    start = threading.Barrier(count)

    def run(number):
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_concurrent_launches_of_one_kernel():
    scale.clear_cache()
    x = np.arange(1000, dtype=np.float32)
    handles = set()

    def work(number):
        for round in range(20):
            y = np.zeros_like(x)
            handles.add(scale[(8,)](x, y, float(number), 1000, BLOCK=128))
            np.testing.assert_array_equal(y, x * number, err_msg=f"{number} {round}")

    in_threads(6, work)
    # Of all those that wanted it at the same time, one compiled it.
    assert len(handles) == 1


def test_concurrent_compilations_of_several_forms():
    x = np.arange(64, dtype=np.float32)

    def work(number):
        y = np.zeros_like(x)
        block = 1 << (number % 7)
        scale[lambda meta: triton.cdiv(64, meta["BLOCK"])](x, y, 3.0, 64, BLOCK=block)
        np.testing.assert_array_equal(y, x * 3)

    in_threads(14, work)


def configurations():
    return [triton.Config({"BLOCK": block}) for block in (16, 32, 64)]


@triton.jit
def times(x, F: tl.constexpr):
    return x * F


@triton.jit
def multiply(x_ptr, y_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, times(tl.load(x_ptr + offsets, mask=mask), F), mask=mask)


@triton.autotune(configs=configurations(), key=["n"], reset_to_zero=["y_ptr"])
@triton.heuristics({"F": lambda args: 7})
@triton.jit
def accumulate(x_ptr, y_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.atomic_add(y_ptr + offsets, times(tl.load(x_ptr + offsets, mask=mask), F), mask=mask)


def test_threads_launch_compile_and_tune_the_same_kernels_in_any_order():
    tuned = triton.autotune(configs=configurations(), key=["n"])(multiply)
    computed = triton.heuristics({"BLOCK": lambda args: 32})(multiply)
    multiply.clear_cache()

    def work(number):
        random = np.random.default_rng(number)
        for _ in range(20):
            n, factor, way = random.choice([1, 16, 33, 100]), int(random.integers(1, 6)), random.integers(6)
            x = np.arange(n, dtype=random.choice([np.float32, np.int32, np.float64]))
            y = np.zeros_like(x)

            def grid(meta, n=n):
                return (triton.cdiv(n, meta["BLOCK"]),)

            if way == 0:
                multiply[grid](x, y, n, factor, BLOCK=int(random.choice([16, 32, 64])))
            elif way == 1:
                tuned[grid](x, y, n, factor)
            elif way == 2:
                computed[grid](x, y, n, F=factor)
            elif way == 3:
                factor = 7
                accumulate[grid](x, y, n)
            elif way == 4:
                kernel = multiply.warmup(x, y, n, factor, 32, grid=(1,))
                kernel[(triton.cdiv(n, 32), 1, 1)](x, y, n, factor, 32)
            else:
                # Launches of other threads are not disturbed.
                multiply.clear_cache()
                multiply[grid](x, y, n, F=factor, BLOCK=128)
            np.testing.assert_array_equal(y, x * factor, err_msg=f"{number} {way}")

    before = sys.getswitchinterval()
    # Threads take turns in the middle of what they do.
    sys.setswitchinterval(1e-5)
    try:
        in_threads(12, work)
    finally:
        sys.setswitchinterval(before)


def test_other_threads_run_while_a_kernel_runs(run, script):
    """The kernel ends when another thread says so: in a process of its own, as one that waits in vain does not stop."""
    program = script(
        """
        import threading
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        @triton.jit
        def wait(flags):
            tl.atomic_xchg(flags, 1)
            while tl.atomic_add(flags + 1, 0) == 0:
                pass
            tl.store(flags + 2, 3)

        flags = np.zeros(3, np.int32)
        thread = threading.Thread(target=lambda: wait[(1,)](flags))
        thread.start()
        while not flags[0]:
            pass
        assert flags[2] == 0
        flags[1] = 1
        thread.join()
        print(flags)
        """
    )
    done = run(program)
    assert done.out == "[1 1 3]\n", done.err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize(("where", "count"), [("cpu", 1 << 22), ("sim:sm_90", 1 << 12)])
def test_a_forked_child_launches_although_the_threads_of_its_parent_are_gone(run, script, where, count):
    path = script(
        """
        import os, sys
        import numpy as np, triton, triton.language as tl

        @triton.jit
        def fill(x_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x_ptr + offsets, offsets, mask=offsets < n)

        def check():
            x = np.zeros(int(sys.argv[1]), np.int32)
            fill[(triton.cdiv(len(x), 1024),)](x, len(x), BLOCK=1024)
            assert (x == np.arange(len(x))).all()

        check()
        child = os.fork()
        check()
        if child == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    done = run("-m", "tilewright", "run", "--device", where, path, count)
    assert (done.code, done.out) == (0, "7\n")


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_ctrl_c_ends_a_compilation(run, script):
    done = run(
        script(
            """
            import signal
            import numpy as np
            import tilewright as triton
            import tilewright.language as tl

            @triton.jit
            def slow(x_ptr):
                x = tl.load(x_ptr)
                for i in tl.static_range(1000):
                    for j in tl.static_range(1000):
                        n: tl.constexpr = i * j
                tl.store(x_ptr, x)

            signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                # Wherever the signal comes, it is in here.
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                slow.warmup(np.zeros(1, np.float32), grid=(1,))
            except KeyboardInterrupt:
                print("stopped")
            except triton.CompilationError as error:
                print(error.code)
            """
        )
    )
    assert done.out == "stopped\n", done.err
