"""``tilewright explain``: the page of a kernel, the decisions with their reasons, and the mistakes of users."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import PATIENCE, ROOT

ADD = "examples/01_vector_add.py::add_kernel"
ADD_SIGNATURE = "*fp32:16,*fp32:16,*fp32:16,i32:16,1024"
MATMUL = "examples/03_matmul.py::matmul_kernel"
MATMUL_SIGNATURE = "*fp16:16,*fp16:16,*fp16:16,i32:16,i32:16,i32:16,i32:16,1,i32:16,1,i32:16,1,64,64,32,8"


def tilewright(*arguments, **environment):
    """Runs the command in the root of the repository."""
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def page_of(path):
    """The content of a page, as data."""
    text = path.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def matmul(tmp_path_factory):
    """The page of a matrix product on Ampere."""
    path = tmp_path_factory.mktemp("page") / "matmul.html"
    made = tilewright("explain", MATMUL, "-s", MATMUL_SIGNATURE, "--target", "sm_80", "-o", str(path))
    assert made.returncode == 0, made.stderr
    assert made.stdout == f"{path}\n"
    return page_of(path)


def source_line(data, part):
    """The number of the line of the source with a text in it."""
    source = data["source"]
    (number,) = (at for at, line in enumerate(source["lines"]) if part in line)
    return number + source["firstLine"]


def test_lines_of_stages_lead_to_the_source(matmul):
    stages = {stage["name"]: stage for stage in matmul["stages"]}
    assert list(stages)[:4] == ["ir", "opt", "gpu", "ptx"]
    dot, loop = source_line(matmul, "tl.dot("), source_line(matmul, "for first in")
    for name, text, line in (
        ("ir", " = dot ", dot),
        ("opt", " = dot ", dot),
        ("gpu", " = mma_sync ", dot),
        ("ptx", "mma.sync", dot),
        ("ir", "for_loop", loop),
        ("opt", "for_loop", loop),
        ("gpu", "for_loop", loop),
    ):
        stage = stages[name]
        links = {link for row, link in zip(stage["lines"], stage["links"], strict=True) if text in row}
        assert links == {line}, name
    # The source is the kernel with its decorators, and nothing else.
    assert matmul["source"]["lines"][0].startswith("@triton.autotune")
    assert matmul["source"]["lines"][-1].strip().startswith("tl.store(c_ptrs")


def test_layouts_hold_every_element(matmul):
    def span(bases):
        found = {0}
        for base in bases:
            found |= {element ^ base for element in found}
        return found

    assert len(matmul["layouts"]) > 5
    for layout in matmul["layouts"]:
        size = 1
        for extent in layout["shape"]:
            size *= extent
        inputs = ("register", "lane", "warp", "block", "offset")
        assert span([base for name in inputs for base in layout[name]]) == set(range(size)), layout["id"]


PRODUCT = """
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))
"""


def test_tiles_that_are_loaded_by_matrices(tmp_path):
    """A result, stored as threads hold it and loaded as memory wants it, is no operand: its rows are of its buffer."""
    (tmp_path / "product.py").write_text(PRODUCT)
    page = tmp_path / "product.html"
    kernel, signature = f"{tmp_path / 'product.py'}::product", "*fp16:16,*fp16:16,*fp16:16,64"
    made = tilewright("explain", kernel, "-s", signature, "--target", "sm_90", "-o", str(page))
    assert made.returncode == 0, made.stderr
    matrices = [access for access in page_of(page)["accesses"] if access["kind"] == "ldmatrix"]
    assert matrices
    for access in matrices:
        # 64x64 numbers of 16 bits: an instruction loads 512 bytes; eight rows of 16 bytes are served at once.
        assert (access["bits"], access["width"], access["instructions"]) == (16, 8, 16)
        assert (access["wavefronts"], access["least"]) == (64, 64)


def test_decisions_have_reasons(matmul):
    remarks = {(remark["pass"], remark["line"]): remark for remark in matmul["remarks"]}
    product = remarks["mma_selection", source_line(matmul, "tl.dot(")]
    assert product["decision"].startswith("mma.sync m16n8k16")
    assert product["reason"] == "the target has no wgmma"
    loop = remarks["pipelining", source_line(matmul, "for first in")]
    assert (loop["kind"], loop["decision"]) == ("done", "loop in 3 stages")
    load = remarks["coalescing", source_line(matmul, "a = tl.load(")]
    assert load["decision"] == "16 bytes an access: 8 elements along axis 1"
    # Layouts stand by their numbers.
    layouts = [remark["decision"] for remark in matmul["remarks"] if remark["pass"] == "layout"]
    assert layouts
    assert all(re.fullmatch(r"L\d+", decision) for decision in layouts)


def test_what_is_missed_says_why():
    why = tilewright("explain", ADD, "-s", "*fp32:16,*fp32:16,*fp32:16,i32,1024", "--why")
    assert why.returncode == 0, why.stderr
    assert "4 bytes an access: 1 element along axis 0" in why.stdout
    assert "because the mask may change after 1 element" in why.stdout
    aligned = tilewright("explain", ADD, "-s", ADD_SIGNATURE, "--why").stdout
    assert "16 bytes an access: 4 elements along axis 0" in aligned
    assert "the mask may change" not in aligned


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        (
            "sm_90",
            ["--tensor-maps"],
            [
                "wgmma m64n64k16",
                "a box of tensor map T0",
                "filled by tensor copies",
                "dots run into the next iteration",
            ],
        ),
        ("sm_90", [], ["the launcher makes no tensor maps (`--tensor-maps` requests them)"]),
        ("sm_80", ["--option", "num_stages=1"], ["not pipelined", "num_stages is 1"]),
        ("sm_75", [], ["the target has no cp.async", "the target has no wgmma"]),
        ("sm_90", ["--option", "num_warps=2"], ["num_warps must be a multiple of 4"]),
    ],
)
def test_decisions_follow_target_and_options(target, options, expected):
    made = tilewright("explain", MATMUL, "-s", MATMUL_SIGNATURE, "--target", target, "--why", *options)
    assert made.returncode == 0, made.stderr
    for text in expected:
        assert text in made.stdout


def test_machine_code_is_linked_where_its_tools_are(tmp_path):
    from shutil import which

    import tilewright.knobs as knobs

    try:
        ptxas = os.environ.get("TILEWRIGHT_PTXAS") or which("ptxas") or knobs.nvidia.ptxas.path
    except Exception:
        pytest.skip("there is no ptxas")
    path = tmp_path / "add.html"
    made = tilewright("explain", ADD, "-s", ADD_SIGNATURE, "-o", str(path), TILEWRIGHT_PTXAS=str(ptxas))
    assert made.returncode == 0, made.stderr
    data = page_of(path)
    facts = dict(data["facts"])
    assert int(facts["registers of a thread"]) > 0
    if "SASS" in facts:
        pytest.skip("there is no disassembler")
    (sass,) = (stage for stage in data["stages"] if stage["name"] == "sass")
    store = {link for line, link in zip(sass["lines"], sass["links"], strict=True) if "STG.E" in line}
    assert store == {source_line(data, "tl.store(")}


@pytest.mark.skipif(os.name == "nt", reason="the programs are scripts of a shell")
def test_a_disassembler_beside_the_assembler_comes_before_that_of_a_package(tmp_path):
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        release = "echo 'Cuda compilation tools, release 12.9, V12.9.86'"
        path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {release}; exit; fi\n{text}\n')
        path.chmod(0o755)

    def instructions():
        path = tmp_path / "add.html"
        tools = {
            "TILEWRIGHT_PTXAS": str(tmp_path / "beside"),
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
        }
        made = tilewright(
            "explain", ADD, "-s", ADD_SIGNATURE, "-o", str(path), PATH="", CUDA_HOME="", **tools
        )
        assert made.returncode == 0, made.stderr
        (sass,) = (stage for stage in page_of(path)["stages"] if stage["name"] == "sass")
        return sass["lines"]

    if os.path.exists("/usr/local/cuda/bin/nvdisasm"):
        pytest.skip("there is a toolkit in /usr/local/cuda")
    folders = [tmp_path / "packages", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    # The file after `-o` is the sixth argument.
    write(tmp_path / "beside" / "ptxas", 'echo cubin > "$6"')
    package = folders[0] / "triton"
    write(package / "backends" / "nvidia" / "bin" / "nvdisasm", "echo '/*0000*/ EXIT ;'")
    (package / "__init__.py").touch()
    assert instructions() == ["/*0000*/ EXIT ;"]
    write(tmp_path / "beside" / "nvdisasm", "echo '/*0000*/ NOP ;'")
    assert instructions() == ["/*0000*/ NOP ;"]


def test_without_an_assembler_the_page_says_so(tmp_path):
    path = tmp_path / "add.html"
    made = tilewright(
        "explain", ADD, "-s", ADD_SIGNATURE, "-o", str(path), PATH="", TILEWRIGHT_PTXAS="", CUDA_HOME=""
    )
    assert made.returncode == 0, made.stderr
    if "machine code" not in (facts := dict(page_of(path)["facts"])):
        pytest.skip("there is a toolkit in /usr/local/cuda, or a package with ptxas")
    assert "there is no ptxas" in facts["machine code"]


def test_a_page_is_one_file_and_escapes_the_source(tmp_path):
    kernel = tmp_path / "k.py"
    kernel.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(x):\n"
        "    # </script><script>alert(1)</script> & <!--\n    tl.store(x, 1.0)\n"
    )
    path = tmp_path / "page.html"
    made = tilewright("explain", f"{kernel}::k", "-s", "*fp32", "-o", str(path))
    assert made.returncode == 0, made.stderr
    text = path.read_text()
    assert text.count("</script>") == 2
    assert "alert(1)</script>" not in text
    assert not re.search(r'(src|href)="http', text)
    assert any("</script><script>alert(1)" in line for line in page_of(path)["source"]["lines"])


def test_mistakes(tmp_path):
    kernel = tmp_path / "k.py"
    kernel.write_bytes(b"# \xff\n")
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    for arguments, code, expected in (
        (["examples/01_vector_add.py::ad_kernel"], 1, "did you mean 'add_kernel'?"),
        (["nowhere/k.py::k"], 1, "nowhere/k.py"),
        ([ADD], 1, "--signature"),
        ([ADD, "-s", "*fp32,what"], 1, "describe each argument"),
        ([f"{kernel}::k"], 1, "UTF-8"),
        ([f"{empty}"], 1, "no kernel"),
        ([ADD, "--target", "sm_12"], 2, "sm_12"),
        (["add_kernel"], 2, "k.py::add_kernel"),
        ([ADD, "-s", ADD_SIGNATURE, "-o", str(tmp_path / "no" / "x.html")], 1, "cannot write"),
        ([ADD, "-s", ADD_SIGNATURE, "--option", "num_worps=4"], 1, "num_worps"),
    ):
        made = tilewright("explain", *arguments)
        assert made.returncode == code, (arguments, made.stderr)
        assert expected in made.stderr, (arguments, made.stderr)
        assert "Traceback" not in made.stderr
        assert "panicked" not in made.stderr


def test_a_processor_is_explained_too(tmp_path):
    path = tmp_path / "cpu.html"
    made = tilewright("explain", ADD, "-s", ADD_SIGNATURE, "--target", "cpu", "-o", str(path))
    assert made.returncode == 0, made.stderr
    assert [stage["name"] for stage in page_of(path)["stages"]] == ["ir", "opt", "cpu", "asm"]


def line_of(text, file="examples/01_vector_add.py"):
    """The number of the line of a file that has the text."""
    lines = (ROOT / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def has_machine_code():
    made = tilewright("compile", ADD, "-s", ADD_SIGNATURE, "--emit", "asm")
    assert made.returncode == 0, made.stderr
    return not made.stdout.startswith("add_kernel has no machine code")


@pytest.fixture
def machine_code():
    if not has_machine_code():
        pytest.skip("there is no machine code for this processor")


def test_machine_code_has_the_lines_of_its_source(tmp_path, machine_code):
    load, store = (line_of(text) for text in ("x = tl.load", "tl.store"))
    made = tilewright("compile", ADD, "-s", ADD_SIGNATURE, "--emit", "asm")
    first, *lines = made.stdout.splitlines()
    assert first.startswith("machine code of add_kernel for ")
    assert lines[1].startswith("nest 0: ")
    assert lines[2].endswith(f"-{store} of examples/01_vector_add.py")
    assert f"; 01_vector_add.py:{load}: x = tl.load(x_ptr + offsets, mask=mask)" in made.stdout
    assert lines[-1].split()[1].startswith("ret")

    path = tmp_path / "cpu.html"
    made = tilewright("explain", ADD, "-s", ADD_SIGNATURE, "--target", "cpu", "-o", str(path))
    assert made.returncode == 0, made.stderr
    (stage,) = (stage for stage in page_of(path)["stages"] if stage["name"] == "asm")
    assert stage["lines"] == [first, *lines]
    for line, link in zip(stage["lines"], stage["links"], strict=True):
        if ": tl.store(output_ptr" in line:
            assert link == store
    assert {load, load + 1, store} <= set(stage["links"])


def test_the_reasons_of_the_executor(machine_code):
    why = tilewright("explain", ADD, "-s", ADD_SIGNATURE, "--target", "cpu", "--why")
    first, last = line_of("pid = tl.program_id"), line_of("tl.store")
    assert "[nests] done: program_id(0) + " in why.stdout
    assert f": one nest of machine code, lines {first}-{last} of examples/01_vector_add.py\n" in why.stdout
    assert "missed" not in why.stdout

    why = tilewright("explain", MATMUL, "-s", MATMUL_SIGNATURE, "--target", "cpu", "--why")
    file, _, _ = MATMUL.partition("::")
    load = line_of("a = tl.load(a_ptrs", file)
    parts = why.stdout.split("\n\n")
    (part,) = (part for part in parts if part.startswith(f"{file}:{load}: a = tl.load"))
    assert "[nests] missed: load of fp16[64, 32]: run by the executor\n" in part
    assert "because its addresses are a tile that a loop or a branch carries" in part
    assert "the executor has machine code of its own for dots" in why.stdout


def test_dump_to_a_folder(tmp_path):
    folder = tmp_path / "stages"
    made = tilewright(
        "compile",
        ADD,
        "-s",
        ADD_SIGNATURE,
        "--target",
        "sm_90",
        "-o",
        str(tmp_path / "out"),
        TILEWRIGHT_DUMP=str(folder),
    )
    assert made.returncode == 0, made.stderr
    written = sorted(path.suffix for path in folder.iterdir())
    assert written == [".ast", ".gpu", ".ir", ".opt", ".ptx"]


def test_the_page_shows_what_the_command_prints():
    text = (ROOT / "docs" / "explain.md").read_text()
    sessions = re.findall(r"```console\n\$ tilewright (.*?)\n…\n(.*?)```", text, re.DOTALL)
    assert len(sessions) == 2
    for command, shown in sessions:
        made = tilewright(*shlex.split(command.replace("\\\n", " ")))
        assert made.returncode == 0, made.stderr
        for part in shown.strip("…\n").split("\n…\n"):
            assert f"\n{part}\n" in made.stdout, made.stdout
