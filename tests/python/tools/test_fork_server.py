"""A fork of the test tools runs a program as a process of its own does."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

PROGRAM = """
import atexit, os, sys, threading
print(__name__, sys.modules["__main__"] is sys.modules[__name__], globals().get("__file__"))
print(sys.argv, sys.path, os.getcwd(), os.environ["GIVEN"], sys.stdin.read(), sys.stdout.encoding)
atexit.register(print, "at the end")
threading.Timer(0.1, print, ["of a thread"]).start()

def end(kind):
    if kind == "fails":
        raise ValueError("wrong")
    if kind == "exits":
        sys.exit(3)
    if kind == "says why":
        sys.exit("a reason")
    if kind == "is killed":
        os.kill(os.getpid(), 9)

end(sys.argv[1])
"""


@pytest.mark.parametrize("kind", ["returns", "fails", "exits", "says why", "is killed"])
@pytest.mark.parametrize("start", ["file", "module", "text"])
def test_a_fork_is_as_a_process_of_its_own(start, kind, run, run_forked, script, tmp_path):
    path = script(PROGRAM, "a_program.py")
    command = {"file": [path], "module": ["-m", "a_program"], "text": ["-c", PROGRAM]}[start]
    process, fork = (
        each(*command, kind, "more", env={"GIVEN": "value"}, cwd=tmp_path) for each in (run, run_forked)
    )
    assert (fork.code, fork.out, fork.err) == (process.code, process.out, process.err)
    assert process.code == {"returns": 0, "fails": 1, "exits": 3, "says why": 1, "is killed": -9}[kind]
    assert ("wrong" in fork.err) == (kind == "fails")
