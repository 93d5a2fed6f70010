"""``tilewright run``: programs see what they would see under ``python script.py`` and ``python -m module``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import PATIENCE, environment_of

ENVIRONMENT = """
import sys, os
print(sys.argv)
print(sys.path[0] == os.path.realpath(os.path.dirname(__file__)), os.path.isabs(__file__), os.path.basename(__file__))
print(__name__, __package__, __spec__, __doc__, __builtins__.__name__, __annotations__, __cached__)
print(type(__loader__).__name__, sys.modules["__main__"].__dict__ is globals())
from beside import VALUE
print(VALUE)
"""


def test_a_script_sees_what_it_sees_under_python(run, script):
    path = script(ENVIRONMENT)
    script("VALUE = 5\n", "beside.py")
    direct = run(path, "a", "--device", "b")
    ours = run("-m", "tilewright", "run", path, "a", "--device", "b")
    assert direct.code == 0
    assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)
    # The same from its folder, by a relative path.
    direct = run("script.py", cwd=path.parent)
    ours = run("-m", "tilewright", "run", "script.py", cwd=path.parent)
    assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)


def test_a_module_sees_what_it_sees_under_python(run, script):
    text = """
    import sys, os
    print(sys.argv[1:], os.path.isabs(sys.argv[0]), os.path.basename(sys.argv[0]), sys.path[0] == os.getcwd())
    print(__name__, __package__, __spec__.name, __doc__)
    from .beside import VALUE
    print(VALUE)
    1 / VALUE
    """
    path = script(text, "package/tool.py")
    script("VALUE = 0\n", "package/beside.py")
    script("", "package/__init__.py")
    for module in ("package.tool", "package.nothing", "nothing"):
        direct = run("-m", module, "-x", cwd=path.parents[1])
        ours = run("-m", "tilewright", "run", "-m", module, "-x", cwd=path.parents[1])
        assert direct.code == 1
        assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    return 1 / 0\n\ndef g():\n    f()\n\ng()\n",
        "x = (\n",
        "import nothing_of_this_name\n",
        "raise SystemExit\n",
        "raise SystemExit(7)\n",
        "raise SystemExit('a message')\n",
        "import sys; sys.exit(3)\n",
        "raise KeyboardInterrupt\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('second') from e\n",
        "try:\n    1 / 0\nfinally:\n    undefined\n",
        "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', kind, error, trace.tb_lineno)\n1 / 0\n",
        "import atexit\natexit.register(print, 'at exit')\nraise ValueError\n",
        "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start()\nt.join()\n",
        "import warnings\nwarnings.warn('careful')\n",
        "raise ExceptionGroup('both', [ValueError(1), TypeError(2)])\n"
        if sys.version_info >= (3, 11)
        else "raise ValueError(1)\n",
        "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()\n",
    ],
)
def test_programs_end_as_under_python(run, script, text):
    path = script(text)
    direct = run(path)
    ours = run("-m", "tilewright", "run", path)
    assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)


def test_folders_with_a_main(run, script):
    path = script("import sys\nprint('main', len(sys.argv))\n", "folder/__main__.py")
    ours = run("-m", "tilewright", "run", path.parent, "x")
    assert (ours.code, ours.out) == (0, "main 2\n")


def test_folders_without_a_main_and_packages(run, script, tmp_path):
    script("", "nothing/readme.txt")
    script(
        "import sys\nprint(__name__, __package__, sys.argv, __spec__.name)\nfrom . import x\n",
        "package/__main__.py",
    )
    for path in ("nothing", ".", "package", "package/"):
        direct = run(path, "a", cwd=tmp_path)
        ours = run("-m", "tilewright", "run", path, "a", cwd=tmp_path)
        assert direct.code == 1
        assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)


@pytest.mark.parametrize(
    "source",
    [
        b"x = '\xff'\n",
        b"\n\n\nx = '\xe9'\n",
        b"x=1\0\n",
        b"# coding: latin-1\nprint(ascii('\xe9'))\n",
        b"\xef\xbb\xbfx\n",
    ],
)
def test_sources_that_are_not_utf_8(run, tmp_path, source):
    path = tmp_path / "script.py"
    path.write_bytes(source)
    direct, ours = run(path), run("-m", "tilewright", "run", path)
    assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)


@pytest.mark.parametrize(
    "code", ["import sys\nprint(sys.argv, sys.path[0] == '', sorted(globals()))\n1 / 0\n", "x = (\n"]
)
def test_code_from_the_command_line_and_from_standard_input(run, code):
    direct, ours = run("-c", code, "a"), run("-m", "tilewright", "run", "-c", code, "a")
    assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)
    direct, ours = (
        subprocess.run(
            [sys.executable, *start, "-", "a"],
            input=code,
            capture_output=True,
            text=True,
            env=environment_of(),
        )
        for start in ([], ["-m", "tilewright", "run"])
    )
    assert (ours.returncode, ours.stdout, ours.stderr) == (direct.returncode, direct.stdout, direct.stderr)


def test_kernels_in_code_without_a_file(run):
    code = (
        "import numpy as np, triton, triton.language as tl\n"
        "@triton.jit\ndef five(x_ptr):\n    tl.store(x_ptr, 5)\n"
        "x = np.zeros(1, np.int32)\nfive[(1,)](x)\nprint(x)\n"
    )
    assert run("-m", "tilewright", "run", "-c", code).out == "[5]\n"
    command = [sys.executable, "-m", "tilewright", "run", "-"]
    done = subprocess.run(command, input=code, capture_output=True, text=True, env=environment_of())
    assert (done.stdout, done.stderr) == ("[5]\n", "")


def test_one_frame_of_run_is_below_the_program(run, script):
    path = script("import inspect\nprint(sum(f.filename.endswith('_run.py') for f in inspect.stack()))\n")
    assert run("-m", "tilewright", "run", path).out == "1\n"


def test_a_missing_script(run, tmp_path):
    path = tmp_path / "nothing.py"
    direct, ours = run(path), run("-m", "tilewright", "run", path)
    assert (ours.code, ours.out, ours.err) == (direct.code, direct.out, direct.err)


def test_usage(run):
    shown = run("-m", "tilewright", "run", "--help")
    usage = shown.out
    assert (shown.code, shown.err) == (0, "")
    assert usage.startswith("Usage: tilewright run [options] <script.py> [argument]...\n")
    for option in (
        "-i",
        "--strict",
        "--device <device>",
        "--sanitize [=<checks>]",
        "--report [=<file>]",
        "-h, --help",
    ):
        assert f"\n  {option} " in usage
    for arguments, message in [
        ([], "no program to run"),
        (["-m"], "no module to run"),
        (["-c"], "no code to run"),
        (["--device"], "argument --device: expected one argument"),
        (["--strict=1", "x.py"], "argument --strict: ignored explicit argument '1'"),
        (["--divice", "cpu", "x.py"], "unknown option '--divice'; did you mean `--device`?"),
        (["--sanitze=race", "x.py"], "unknown option '--sanitze=race'; did you mean `--sanitize`?"),
        (["--fourteen", "x.py"], "unknown option '--fourteen'"),
    ]:
        wrong = run("-m", "tilewright", "run", *arguments)
        help_line = "help: `tilewright run --help` lists the options\n"
        assert (wrong.code, wrong.err) == (2, f"error: {message}\n{help_line}")


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("--sanitize race script.py", "--sanitize=race"),
        ("--sanitize race,init", "--sanitize=race,init"),
        ("--sanitize rcae -m pytest", "--sanitize=rcae"),
        ("--strict --report out.txt script.py", "--report=out.txt"),
        ("--report there.txt script.py", "--report=there.txt"),
        ("--locked there.lock script.py", "--locked=there.lock"),
        ("--locked there.lock", "--locked=there.lock"),
        ("--locked serve.tar", "--locked=serve.tar"),
        ("--locked serve.lock -m pytest", "--locked=serve.lock"),
        ("--sanitize script.py race", None),
        ("--sanitize other.py script.py", None),
        ("--sanitize -- race", None),
    ],
)
def test_a_value_without_an_equals_sign(run, script, given, written):
    folder = script("print('ran')\n").parent
    script("print('ran')\n", "other.py")
    for name in ("there.txt", "there.lock"):
        script("{}\n", name)
    if written is None:
        script("print('ran')\n", "race/__main__.py")
    done = run("-m", "tilewright", "run", *given.split(), cwd=folder)
    if written is None:
        assert (done.code, done.out) == (0, "ran\n"), done.err
        return
    option = written.partition("=")[0]
    message = f"error: a value of {option} follows '=' without a space: {written}\n"
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)


@pytest.mark.parametrize(
    ("given", "kind", "program"),
    [
        ("--report x.py --report", "", "x.py --report"),
        ("--device=cpu --sanitize=race x.py -c --devic -i", "", "x.py -c --devic -i"),
        ("--sanitize -m pytest -x -- --sanitize", "-m", "pytest -x -- --sanitize"),
        ("-mpytest -- -m", "-m", "pytest -- -m"),
        ("-c --strict --strict", "-c", "--strict --strict"),
        ("--strict -- --report -x", "", "--report -x"),
        ("- --", "", "- --"),
    ],
)
def test_what_follows_the_program_is_its_own(given, kind, program):
    from tilewright._run import run_parser

    parsed = run_parser().parse(given.split())
    assert (parsed.kind, parsed.program) == (kind, program.split())
    own = given.split()[: len(given.split()) - len(program.split())]
    assert parsed.report == ("" if "--report" in own else None)
    assert parsed.sanitize == ("" if "--sanitize" in own else "race" if "--sanitize=race" in own else None)
    assert parsed.strict == ("--strict" in own)


def test_a_device_that_is_not_there(run, script):
    path = script("print('ran')\n")
    # No machine has this many GPUs.
    refused = run("-m", "tilewright", "run", "--device", "cuda:4321", path)
    assert (refused.code, refused.out) == (1, "")
    lines = refused.err.splitlines()
    assert lines[0] == "error[TW0109]: device 'cuda:4321' is not available"
    assert lines[2].startswith(" = note: there is no ")
    assert lines[3:] == [" = help: use device 'cpu', or a simulated GPU such as 'sim:sm_90'"]
    in_environment = run("-m", "tilewright", "run", path, env={"TILEWRIGHT_DEVICE": "tpu"})
    assert (in_environment.code, in_environment.out) == (1, "")
    assert in_environment.err.startswith("error[TW0109]: there is no device called 'tpu'\n")
    # A byte that is no UTF-8.
    no_text = run("-m", "tilewright", "run", path, env={"TILEWRIGHT_DEVICE": "sim\udcff"})
    assert (no_text.code, no_text.out) == (1, "")
    assert no_text.err.startswith("error[TW0109]: there is no device called 'sim\\xff'\n")
    assert run("-m", "tilewright", "run", "--device=cpu", path).out == "ran\n"


def test_a_report_that_cannot_be_written_is_refused_before_the_program_runs(run, script, tmp_path):
    path = script("import os\nprint('ran')\nos.chdir('/')\n")
    for target, reason in [("nothing/x", "No such file or directory"), (".", "Is a directory")]:
        refused = run("-m", "tilewright", "run", f"--report={target}", path, cwd=tmp_path)
        message = f"error: cannot write the report to {os.path.abspath(tmp_path / target)}: {reason}\n"
        assert (refused.code, refused.out, refused.err) == (2, "", message)
    # It is where the program was started, wherever that goes.
    assert run("-m", "tilewright", "run", "--report=report", path, cwd=tmp_path).out == "ran\n"
    assert (tmp_path / "report").read_text() == "no kernel was launched on the simulator\n"
    # An error that only occurs at the end is one line as well.
    (tmp_path / "folder").mkdir()
    remover = script("import shutil\nshutil.rmtree('folder')\n")
    done = run("-m", "tilewright", "run", "--report=folder/report", remover, cwd=tmp_path)
    message = f"tilewright: cannot write the report to {tmp_path / 'folder' / 'report'}: No such file or directory\n"
    assert (done.out, done.err) == ("", message)


def test_a_gpu_that_is_not_there_is_what_a_launch_says(run, script):
    """Not that the tensor should be moved there."""
    program = """
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        @triton.jit
        def zero(x_ptr):
            tl.store(x_ptr, 0)

        zero[(1,)](np.zeros(1, np.float32))
    """
    environment = {"TILEWRIGHT_DEVICE": "cuda", "TILEWRIGHT_LIBCUDA": "/nothing/libcuda.so"}
    done = run(script(program), env=environment)
    assert done.code == 1
    assert "error[TW0109]: device 'cuda:0' is not available" in done.err
    assert "/nothing/libcuda.so" in done.err


def test_other_commands_are_those_of_the_native_command_line(run):
    explained = run("-m", "tilewright", "explain", "TW0104")
    assert explained.code == 0
    assert explained.out.startswith("# TW0104: kernel called without a grid\n") or "TW0104" in explained.out
    assert run("-m", "tilewright", "--version").out.startswith("tilewright ")


KERNEL_ERROR = """
import numpy as np
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, nothing)

def launch():
    kernel[(1,)](np.zeros(1))

launch()
"""


def test_a_traceback_of_a_kernel_has_only_the_programs_frames(run, script):
    path = script(KERNEL_ERROR)
    ours = run("-m", "tilewright", "run", path)
    head, _, text = ours.err.partition("tilewright.errors.CompilationError: ")
    direct = run(
        script(KERNEL_ERROR.replace("kernel[(1,)](np.zeros(1))", "raise ValueError         "), "other.py")
    )
    assert ours.code == 1
    lines = [line for line in head.splitlines() if "^" not in line and "kernel[" not in line]
    expected = [line for line in direct.err.splitlines()[:-1] if "^" not in line and "raise" not in line]
    assert lines == [line.replace("other.py", "script.py") for line in expected]
    assert text.startswith("error[TW0001]: 'nothing' is not defined\n")


LONG_LOOP = """
import numpy as np, sys
import triton
import triton.language as tl

@triton.jit
def spin(x_ptr, n):
    total = 0
    for i in range(n):
        total += i % 7
    tl.store(x_ptr, total)

x = np.zeros(1, np.int32)
spin[(2,)](x, 10)
print("ready", flush=True)
spin[(2,)](x, 2**31 - 1)
print("not reached")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_ctrl_c_stops_a_running_kernel(script):
    command = [sys.executable, "-m", "tilewright", "run", str(script(LONG_LOOP))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment_of()
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        try:
            out, err = program.communicate(timeout=PATIENCE)
        finally:
            program.kill()
    assert program.returncode == -signal.SIGINT
    assert out == ""
    assert err.splitlines()[0] == "Traceback (most recent call last):"
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert "tilewright/" not in err


@pytest.mark.skipif(os.name != "posix", reason="signals as POSIX has them")
def test_a_signal_handler_may_raise_anything_and_the_kernel_goes_on_without(script, run):
    text = LONG_LOOP.replace(
        'print("ready", flush=True)',
        """
import signal

class Stop(Exception):
    pass

seen = []

def handler(number, frame):
    seen.append(number)
    if len(seen) == 2:
        raise Stop
    # Each asks for the next: on a busy machine those of an interval timer may come while the program prints.
    signal.setitimer(signal.ITIMER_REAL, 0.2)

signal.signal(signal.SIGALRM, handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    spin[(1,)](x, 2**31 - 1)
except Stop:
    print("stopped", len(seen))
    sys.exit()
""",
    )
    done = run("-m", "tilewright", "run", script(text))
    assert (done.code, done.out) == (0, "stopped 2\n")
