"""Each `tilewright` command of the README runs, on the program that the README shows."""

import re
import shlex

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text()


def fences() -> list[tuple[str, str]]:
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """The shell lines that begin with `tilewright`, with the variables set before them."""
    found, variables = [], {}
    for language, text in fences():
        for line in text.replace("\\\n", " ").splitlines() if language == "" else []:
            if assignment := re.fullmatch(r"([A-Z])='(.*)'", line):
                variables[assignment[1]] = assignment[2]
            elif line.startswith("tilewright "):
                for name, value in variables.items():
                    line = line.replace(f"${name}", value)
                found.append(line)
    return found


def program() -> str:
    return next(text for info, text in fences() if info.startswith("python kernel="))


def test_the_readme_has_commands():
    assert len(commands()) >= 10


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_runs(command, run, tmp_path):
    (tmp_path / "kernels.py").write_text(program())
    (tmp_path / "script.py").write_text(program().replace("tilewright", "triton"))
    (tmp_path / "test_one.py").write_text(
        "import triton\ndef test_one():\n    assert triton.cdiv(5, 2) == 3\n"
    )
    words = shlex.split(command, comments=True)
    result = run("-m", *words, cwd=tmp_path)
    assert result.code == 0, result.out + result.err
    assert result.out or result.err or "run" in words


def test_the_shown_fault_is_what_the_program_prints(run, tmp_path):
    (shown,) = (text for info, text in fences() if info == "text run=without-mask")
    path = tmp_path / "kernels.py"
    path.write_text(program().replace(", mask=mask)", ")"))
    done = run(path, cwd=tmp_path)
    assert done.code == 1
    # The dots are for the folder of the file.
    assert done.err.endswith(f"\n{shown.replace('…/kernels.py', str(path))}"), done.err


def test_figures_are_those_of_their_pages():
    """Each number in the table of figures is in the table of the page that its row links."""
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| \[.*\]\((docs/performance/.*)\) \|$", README, re.M
    )
    assert len(rows) >= 5
    for name, *figures, page in rows:
        tables = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
        numbers = [number for figure in figures for number in re.findall(r"\d[\d.]*", figure)]
        assert any(all(number in line for number in numbers) for line in tables), name


def test_the_page_of_the_first_kernel_has_the_same_program():
    assert f"```python file=kernels.py\n{program()}```\n" in (ROOT / "docs" / "first-kernel.md").read_text()
