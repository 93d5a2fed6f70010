"""Launches from several threads at once."""

from __future__ import annotations

import os
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


def test_other_threads_run_while_a_kernel_runs():
    @triton.jit
    def spin(x_ptr, n):
        total = 0
        for i in range(n):
            total += i % 7
        tl.store(x_ptr, total)

    done = threading.Event()
    counted = 0

    def launch():
        spin[(1,)](np.zeros(1, np.int32), 300_000)
        done.set()

    thread = threading.Thread(target=launch)
    thread.start()
    while not done.is_set():
        counted += 1
    thread.join()
    assert counted > 1000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_launches_although_the_threads_of_its_parent_are_gone(run, script):
    path = script(
        """
        import os, sys
        import numpy as np, triton, triton.language as tl

        @triton.jit
        def fill(x_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x_ptr + offsets, offsets, mask=offsets < n)

        def check():
            x = np.zeros(1 << 22, np.int32)
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
    done = run("-m", "tilewright", "run", path)
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
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                slow.warmup(np.zeros(1, np.float32), grid=(1,))
            except KeyboardInterrupt:
                print("stopped")
            except triton.CompilationError as error:
                print(error.code)
            """
        )
    )
    assert done.out == "stopped\n", done.err
