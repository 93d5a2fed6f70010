"""``tilewright run`` beyond the program itself: the processes that it starts, the notice, the prompt, and reports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import PATIENCE, environment_of

pytestmark = pytest.mark.skipif(
    os.environ.get("TILEWRIGHT_DEVICE", "cpu") != "cpu", reason="these programs name their device"
)

NOTICE = "tilewright: this machine has no CUDA device: what the program puts on 'cuda' is on"


def test_processes_that_a_program_starts_have_tilewright_as_their_triton(run, script):
    script(
        """
        import sys
        import triton
        assert triton.language.__name__ == "tilewright.language", triton
        print(sys.argv[1:], sys.path[0] != "", any("_subprocess" in path for path in sys.path))
        """,
        "child.py",
    )
    script("print('the one of the program')\n", "own/sitecustomize.py")
    path = script(
        """
        import os, subprocess, sys
        here = os.path.dirname(__file__)
        for command in (["child.py", "a"], ["-m", "child", "b"], ["-c", "import triton; print(triton.__version__)"]):
            print(subprocess.run([sys.executable, *command], cwd=here, capture_output=True, text=True))
        # It may start others.
        again = f"import subprocess, sys; subprocess.run([sys.executable, 'child.py', 'c'], cwd={here!r})"
        print(subprocess.run([sys.executable, "-c", again], capture_output=True, text=True))
        """
    )
    own = str(path.parent / "own")
    environment = environment_of()
    done = run("-m", "tilewright", "run", path)
    assert done.out.count("returncode=0") == 4, done.out + done.err
    assert done.out.count("stderr=''") == 4, done.out
    for letter in "abc":
        assert f"['{letter}'] True False" in done.out
    done = run(
        "-m", "tilewright", "run", path, env={"PYTHONPATH": os.pathsep.join([own, environment["PYTHONPATH"]])}
    )
    # That of the program ran in this process, in the four that it started, and in the one of those.
    assert done.out.count("the one of the program") == 6, done.out + done.err


def test_the_notice_appears_once_and_names_the_device(run, script):
    pytest.importorskip("torch")
    path = script(
        """
        import subprocess, sys, torch
        if len(sys.argv) == 1:
            for _ in range(2):
                subprocess.run([sys.executable, __file__, "child"], check=True)
        print(torch.ones(2, device="cuda").is_cuda)
        """
    )
    done = run("-m", "tilewright", "run", path)
    assert done.out == "True\n" * 3
    assert done.err.count(NOTICE) == 1
    assert f"{NOTICE} the CPU" in done.err
    done = run("-m", "tilewright", "run", "--device", "sim:sm_80", path)
    assert done.err.count(NOTICE) == 1
    assert f"{NOTICE} the GPU that sim:sm_80 simulates" in done.err


@pytest.mark.parametrize("end", ["", "\nraise SystemExit(3)", "\n1 / 0"])
def test_a_prompt_after_the_program_as_python_has_it(script, end):
    path = script(f"value = 41{end}\n")
    answers = []
    for command in ([path], ["-c", f"value = 41{end}"]):
        for before in (["-i"], ["-m", "tilewright", "run", "-i"]):
            done = subprocess.run(
                [sys.executable, *before, *map(str, command)],
                input="print(value + 1)\n",
                capture_output=True,
                text=True,
                env=environment_of(),
                timeout=PATIENCE,
            )
            answers.append((done.returncode, done.stdout, done.stderr))
    assert [(code, out) for code, out, _ in answers] == [(0, "42\n")] * 4
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]


@pytest.mark.parametrize(
    ("arguments", "has_prompt"),
    [
        ([], True),
        (["--device", "sim:sm_90"], True),
        (["--sanitize"], True),
        (["nothing.py"], True),
        (["--device", "tpu"], False),
        (["-m"], False),
        (["--divice", "cpu"], False),
    ],
)
def test_a_prompt_without_a_program(arguments, has_prompt, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "run", "-i", *arguments],
        input="import sys, triton, tilewright\nprint(__name__, sys.argv, triton.jit is tilewright.jit)\n",
        capture_output=True,
        text=True,
        env=environment_of(),
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    argv = ["nothing.py"] if "nothing.py" in arguments else [""]
    assert done.stdout == (f"__main__ {argv} True\n" if has_prompt else "")
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == has_prompt
    banner = f"Python {sys.version} on {sys.platform}\n"
    assert done.stderr.startswith(banner) == (has_prompt and argv == [""])


def test_a_report_says_which_form_of_a_kernel_and_counts_global_bytes_alone(run, script):
    path = script(
        """
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        @triton.jit
        def store(y_ptr, at, x):
            tl.store(y_ptr + at, x)

        @triton.jit
        def transpose(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            x = tl.load(x_ptr + i[:, None] * BLOCK + i[None, :])
            store(y_ptr, i[:, None] * BLOCK + i[None, :], tl.trans(x))

        for dtype, block in ((np.float32, 64), (np.float32, 32), (np.float16, 32), (np.float32, 64)):
            x = np.random.rand(block, block).astype(dtype)
            y = np.empty_like(x)
            transpose[(1,)](x, y, 3, BLOCK=block)
            assert (y == x.T).all()
        """
    )
    done = run("-m", "tilewright", "sim", "report", path)
    assert done.code == 0
    heads = [line.split(": ", 1)[0] for line in done.err.splitlines() if " of transpose(" in line]
    assert heads == ["2 launches together of transpose(x_ptr", *["1 launch of transpose(x_ptr"] * 2]
    assert "transpose(x_ptr: *fp32, y_ptr: *fp32, n: int32, BLOCK=64): 2 blocks" in done.err
    assert "transpose(x_ptr: *fp16, y_ptr: *fp16, n: int32, BLOCK=32): 1 blocks" in done.err
    assert "32768 bytes read, 32768 written" in done.err
    assert "4096 bytes read, 4096 written" in done.err


def test_the_usage_of_reports_is_their_own(run):
    done = run("-m", "tilewright", "sim", "report", "--help")
    assert done.code == 0
    assert "Usage: tilewright sim report [options] <script.py>" in done.out
    assert "tilewright run [options]" not in done.out


def test_tuned_kernels_go_to_processes_of_each_kind(run, script):
    path = script(
        """
        import copy, multiprocessing, pickle
        from concurrent.futures import ProcessPoolExecutor
        import numpy as np
        import triton, triton.language as tl

        @triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (16, 32)], key=["n"])
        @triton.heuristics({"F": lambda args: 3})
        @triton.jit
        def scale(x_ptr, y_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * F, mask=at < n)

        def work(kernel, n):
            x = np.arange(n, dtype=np.float32)
            y = np.zeros_like(x)
            kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
            assert (y == 3 * x).all()
            return n, kernel is scale, triton.language.__name__

        if __name__ == "__main__":
            config = triton.Config({"B": 1}, num_warps=2)
            assert pickle.loads(pickle.dumps(config)) == config
            assert copy.deepcopy(scale) is scale
            expected = [work(scale, n) for n in (40, 70)]
            for how in ("fork", "spawn", "forkserver"):
                with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how)) as pool:
                    assert list(pool.map(work, [scale, scale], [40, 70])) == expected, how
            print(expected)
        """
    )
    done = run("-m", "tilewright", "run", "--device", "cpu", path)
    expected = "[(40, True, 'tilewright.language'), (70, True, 'tilewright.language')]\n"
    assert (done.code, done.out) == (0, expected), done.err
