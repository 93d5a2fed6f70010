"""Options of a command that are after its program: each command that runs a program warns of them once."""

from __future__ import annotations

from typing import Any

import pytest

COMMANDS = {
    "run": [
        "--report",
        "--report=x",
        "--sanitize",
        "--locked",
        "--strict",
        "--portable",
        "-i",
    ],
    "sim report": ["--report", "--device cpu"],
    "profile": [
        "--device cpu",
        "--json x",
        "--flame x.svg",
        "--lines 3",
        "--gpu H200",
        "--locked",
        "--report=x",
    ],
    "lock": ["--device cpu", "-o x", "--output=x", "--target cpu"],
    "tuning export": ["--device cpu", "--source"],
}
NEEDED = {"tuning export": ["-o", "tuned.json"]}
CASES = [(command, option) for command, options in COMMANDS.items() for option in options]
PROGRAM = "import sys\nprint(sys.argv[1:])\n"


def start(command: str) -> list[str]:
    """Returns the words of a command before its program."""
    return [*command.split(), *NEEDED.get(command, [])]


@pytest.mark.parametrize(("command", "option"), CASES)
def test_an_option_after_the_program_is_warned_of(run: Any, script: Any, command: str, option: str) -> None:
    path = script(PROGRAM)
    done = run("-m", "tilewright", *start(command), path.name, "a", *option.split(), cwd=path.parent)
    # The program gets its arguments as Python passes them.
    assert done.out.startswith(run(path, "a", *option.split()).out)
    assert done.err.startswith(
        f"warning: the program gets '{option}', which is also an option of `tilewright {command}`\n"
        f"help: options of `tilewright {command}` come before the program: "
        f"`tilewright {command} {option} script.py …`; write -- before the program if the program takes the option\n"
    )
    assert done.err.count("warning: the program gets") == 1
    assert not (path.parent / "x").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_and_code_are_warned_of_once(run: Any, script: Any, command: str) -> None:
    folder = script(PROGRAM, "tool.py").parent
    option = COMMANDS[command][0]
    for program in ("-m tool", "-c pass"):
        words = [*start(command), *program.split(), *option.split()]
        done = run("-m", "tilewright", *words, cwd=folder)
        named = program if program.startswith("-m") else "-c"
        assert done.err.count("warning: the program gets") == 1
        assert f"`tilewright {command} {option} {named} …`\n" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_of_the_program_is_not_warned_of(run: Any, script: Any, command: str) -> None:
    path = script(PROGRAM)
    option = COMMANDS[command][0].split()
    for words in (["--", path, *option], [path, "--", *option], [path, "--help", "--other"]):
        done = run("-m", "tilewright", *start(command), *words)
        assert "warning: the program gets" not in done.err


def test_programs_often_have_an_option_device(run: Any, script: Any) -> None:
    path = script(PROGRAM)
    done = run("-m", "tilewright", "run", path, "--device", "cpu")
    assert (done.code, done.err) == (0, run(path).err)


def test_the_prompt_after_the_program_does_not_repeat_the_warning(run: Any, script: Any) -> None:
    path = script(PROGRAM)
    done = run("-m", "tilewright", "run", "-i", path, "--report")
    assert done.out == "['--report']\n"
    assert done.err.count("warning: the program gets '--report'") == 1
