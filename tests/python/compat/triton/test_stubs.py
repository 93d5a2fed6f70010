"""The stubs: what type checkers and editors are told of the language, and of ``triton``.

That they are those which the compiler's table gives is a test of ``test_namespace.py``.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from reference_examples import PRELUDE, Example, read_examples
from test_public_names import ANSWERED, NAMES

from tilewright import _native
from tilewright.language import _builtin

LANGUAGE = ROOT / "python" / "tilewright" / "language"
STUBS = sorted([*LANGUAGE.rglob("*.pyi"), *(ROOT / "python" / "triton-stubs").rglob("*.pyi")])

# Expressions, and their types. `x`, `y` are tensors, `B` is a compile-time value, `p` is a pointer, `d` a descriptor.
EXPRESSIONS = {
    "tl.program_id(0)": "tensor",
    "tl.arange(0, B)": "tensor",
    "tl.load(p)": "tensor",
    "tl.load(p, mask=x < 3, other=0.0, cache_modifier='.ca', eviction_policy='evict_last')": "tensor",
    "tl.load(p).sum(axis=0)": "tensor",
    "tl.store(p, x, x > 0)": "None",
    "p.store(x)": "None",
    "tl.atomic_add(p, 1, sem='relaxed', scope='sys')": "tensor",
    "tl.max(x)": "tensor",
    "tl.max(x, 0)": "tensor",
    "tl.max(x, 0, True)": "tuple[tensor, tensor]",
    "tl.max(x, None, True)": "tuple[tensor, tensor]",
    "x.min(None, True)": "tuple[tensor, tensor]",
    "tl.max(x, return_indices=True)": "tuple[tensor, tensor]",
    "x.min(axis=1, return_indices=True)": "tuple[tensor, tensor]",
    "tl.argmax(x, 0)": "tensor",
    "tl.reduce(x, 0, add)": "tensor",
    "tl.reduce((x, y), 0, add)": "tuple[tensor, ...]",
    "tl.associative_scan([x, y], 0, add, reverse=True)": "tuple[tensor, ...]",
    "tl.split(x)": "tuple[tensor, tensor]",
    "tl.broadcast(x, y)": "tuple[tensor, tensor]",
    "tl.randint4x(3, x)": "tuple[tensor, tensor, tensor, tensor]",
    "tl.dot(x, y, input_precision='tf32x3', out_dtype=tl.float16)": "tensor",
    "tl.dot_scaled(x, None, 'e2m1', y, None, 'bf16')": "tensor",
    "tl.where(x > y, x, 0)": "tensor",
    "tl.reshape(x, 16, B)": "tensor",
    "tl.reshape(x, (16, B))": "tensor",
    "tl.zeros([B, 16], dtype=tl.float32)": "tensor",
    "tl.cdiv(B, 2)": "constexpr",
    "tl.cdiv(x, B)": "tensor",
    "x.cdiv(4)": "tensor",
    "tl.next_power_of_2(B)": "constexpr",
    "tl.get_int_dtype(16, True)": "dtype",
    "tl.inline_asm_elementwise('', '', [x], tl.int32, True, 1)": "tensor",
    "tl.inline_asm_elementwise('', '', [x], (tl.int32, tl.int8), True, 1)": "tuple[tensor, ...]",
    "tl.make_tensor_descriptor(p, [x, 4], [4, 1], [2, B])": "tensor_descriptor",
    "d.load([0, x])": "tensor",
    "d.store([0, 0], y)": "None",
    "d.block_shape": "tuple[int, ...]",
    "tl.math.exp(x)": "tensor",
    "tl.extra.libdevice.tanh(x)": "tensor",
    "tl.extra.cuda.smid()": "tensor",
    "tl.random.rand(3, x)": "tensor",
    "tl.core.load(p)": "tensor",
    "tl.standard.sum(x)": "tensor",
    "x + 1": "tensor",
    "1.0 / x": "tensor",
    "B * x": "tensor",
    "x @ y": "tensor",
    "-x ** 2": "tensor",
    "x == y": "tensor",
    "x[:, None] & ~y": "tensor",
    "B + 1": "constexpr",
    "B == 1": "constexpr",
    "x.T": "tensor",
    "x.shape": "tuple[int, ...]",
    "x.dtype": "dtype",
    "x.dtype.is_floating()": "bool",
    "x.to(tl.float32, fp_downcast_rounding='rtz')": "tensor",
    "tl.float32": "dtype",
    "tl.constexpr(3)": "constexpr",
    "next(iter(tl.range(0, x, num_stages=3)))": "tensor",
    "next(iter(tl.static_range(4)))": "int",
    "triton.cdiv(7, 2)": "int",
    "triton.next_power_of_2(7)": "int",
    "triton.Config({'B': 64}, num_warps=4, num_stages=2)": "Config",
    "triton.testing.do_bench(lambda: None)": "float",
    "add(x, y)": "tensor",
    "tuned": "Autotuner[[p: tensor, n: int, B: constexpr], None]",
    "tuned[(1,)]": "Launcher[[p: tensor, n: int, B: constexpr]]",
    "kernel[lambda meta: (triton.cdiv(9, meta['B']),)]": "Launcher[[p: tensor, n: int, B: constexpr]]",
    "kernel[(1,)](p, 3, 4, num_warps=4)": "CompiledKernel",
}

# Mistakes that type checkers refuse.
MISTAKES = [
    "tl.load(p, cache_modifier='.wb')",
    "tl.store(p, x, cache_modifier='.ca')",
    "tl.load(p, eviction_policy='never')",
    "tl.atomic_load(p, sem='release')",
    "tl.atomic_add(p, x, scope='world')",
    "tl.dot(x, y, input_precision='tf64')",
    "tl.make_block_ptr(p, (4,), (1,), (0,), (4,))",
    "tl.load(p).nonsense()",
    "x.to(3)",
    "tl.exp('x')",
    "triton.Config({'B': 64}, num_warp=4)",
]

HEAD = """\
import triton
import triton.language as tl
import triton.testing

@triton.jit
def add(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    return a + b

@triton.jit
def kernel(p: tl.tensor, n: int, B: tl.constexpr) -> None: ...

tuned = triton.autotune(configs=[triton.Config({"B": 64})], key=["n"])(kernel)

def check(x: tl.tensor, y: tl.tensor, p: tl.tensor, B: tl.constexpr, d: tl.tensor_descriptor) -> None:
"""

CONFIGURATION = """\
[mypy]
check_untyped_defs = True
[mypy-torch.*]
follow_imports = skip
ignore_missing_imports = True
"""


def cases() -> str:
    """A module with the expressions, then the mistakes: each on its line."""
    lines = [f"    reveal_type({expression})" for expression in EXPRESSIONS]
    return HEAD + "\n".join([*lines, *(f"    {mistake}" for mistake in MISTAKES)]) + "\n"


FIRST = HEAD.count("\n") + 1


def plain(text: str) -> str:
    """A type without the modules of its names, and however a checker writes the parameters of a kernel."""
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    return re.sub(r"\[\(([^()]*)\)", r"[[\1]", text).replace("], None", "], None")


@pytest.fixture(scope="module")
def mypy(tmp_path_factory) -> dict[str, dict[int, list[str]]]:
    """Returns the output of mypy for the files of these tests: most of a run is the reading of tilewright."""
    folder = tmp_path_factory.mktemp("mypy")
    files = {
        "cases": cases(),
        "names": names_of_triton()[0],
        "examples": "\n".join(typed_examples()[0]) + "\n",
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "mypy.ini").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--hide-error-context"]
    command += [f"{name}.py" for name in files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert not done.stderr, done.stderr
    said: dict[str, dict[int, list[str]]] = {name: {} for name in files}
    for name, line, text in re.findall(r"^(\w+)\.py:(\d+): (.*)$", done.stdout, re.M):
        said[name].setdefault(int(line), []).append(text)
    return said


def check(said: dict[int, list[str]], pattern: str) -> None:
    """Compares what a checker says of the cases; errors are texts that begin with `error`."""
    wrong = []
    for number, (expression, expected) in enumerate(EXPRESSIONS.items(), FIRST):
        texts = said.get(number, ["nothing"])
        found = [plain(match[1]) for match in (re.search(pattern, text) for text in texts) if match]
        if found != [expected] or len(texts) != 1:
            wrong.append(f"{expression}: {texts}, expected {expected}")
    for number, mistake in enumerate(MISTAKES, FIRST + len(EXPRESSIONS)):
        if not any(text.startswith("error") for text in said.get(number, [])):
            wrong.append(f"{mistake} is no error")
    expected_lines = range(FIRST, FIRST + len(EXPRESSIONS) + len(MISTAKES))
    wrong += [f"line {line}: {texts}" for line, texts in said.items() if line not in expected_lines]
    assert wrong == []


def test_mypy_infers_the_types(mypy):
    check(mypy["cases"], 'Revealed type is "(.*)"')


def test_pyright_infers_the_types(tmp_path):
    pytest.importorskip("basedpyright", reason="basedpyright is not installed")
    (tmp_path / "cases.py").write_text(cases())
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "python")], "include": ["cases.py"]}
    settings |= {"reportMissingModuleSource": False, "reportUnusedExpression": False}
    settings |= {"reportUnusedCoroutine": False, "reportUnusedCallResult": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    said: dict[int, list[str]] = {}
    for finding in json.loads(done.stdout)["generalDiagnostics"]:
        text = f"{finding['severity']}: {finding['message']}"
        said.setdefault(finding["range"]["start"]["line"] + 1, []).append(text)
    check(said, '(?s)Type of .* is "(.*)"')


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods of a stub."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            yield f"{path.name}: {node.name}", node


def test_no_stub_returns_any():
    """0 of them; and each function of the language and each method has one."""
    found = [function for path in STUBS for function in functions(path)]
    assert len(found) > len(_builtin.NAMES)
    assert [name for name, node in found if node.returns is None] == []
    heads = [(name, f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}") for name, node in found]
    assert [name for name, head in heads if re.search(r"\bAny\b", head)] == []


def test_every_function_says_what_it_does():
    """With its parameters, its shapes and types, and an example."""
    page = ast.parse((LANGUAGE / "core.pyi").read_text())
    docs = {node.name: ast.get_docstring(node) for node in page.body if isinstance(node, ast.FunctionDef)}
    assert sorted(name for name, doc in docs.items() if not doc or "Example::" not in doc) == []
    load = docs["load"]
    for part in ("Parameters:", "mask: ", "Shapes: ", "Types: ", "    y = tl.load(x_ptr + tl.arange(0, 4))"):
        assert part in load


def test_signatures_are_those_of_run_time():
    """The names of parameters, how they are passed, and their defaults."""
    compared = 0
    for path in LANGUAGE.rglob("*.pyi"):
        module = (
            ".".join(path.relative_to(LANGUAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        )
        own = importlib.import_module(f"tilewright.language.{module}".rstrip("."))
        for node in ast.parse(path.read_text()).body:
            value = getattr(own, node.name, None) if isinstance(node, ast.FunctionDef) else None
            if not isinstance(value, _builtin.LanguageFunction) or node.decorator_list:
                continue
            compared += 1
            node.returns = None
            node.body = [ast.Pass()]
            for argument in [*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]:
                if argument is not None:
                    argument.annotation = None
            parameters = inspect.signature(value).parameters.values()
            bare = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
            shown = str(inspect.Signature(bare)).replace("tl.", "")
            assert ast.unparse(node.args) == ast.unparse(
                ast.parse(f"lambda {shown[1:-1]}: 0").body[0].value.args
            )
    assert compared > 300


def names_of_triton() -> tuple[str, int]:
    """A module with each public name of triton on a line, and the number of lines before them."""
    modules = set()
    for name in NAMES:
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            below = Path(ROOT, "python", "tilewright", *parts[1:end])
            if below.is_dir() or below.with_suffix(".py").exists():
                modules.add(".".join(parts[:end]))
                break
    return "\n".join([*(f"import {module}" for module in sorted(modules)), *NAMES]) + "\n", len(modules)


def test_the_names_of_triton_are_in_its_stubs(mypy):
    before = names_of_triton()[1]
    unknown = {NAMES[line - before - 1] for line in mypy["names"]}
    # The package has a value of the module's name, and a module is no attribute of a module that only reads it.
    hidden = ("triton.runtime.driver.", "triton.runtime.cache.knobs.")
    assert {name for name in unknown if not name.startswith(hidden) and not ANSWERED.match(name)} == set()


def run_example(example: Example, path: Path) -> list[tuple[int, str]]:
    """The classes of what an example assigns when Python runs it, with the numbers of its lines."""
    head = ["import tilewright as triton", "import tilewright.language as tl", "SEEN = []"]
    head += ["from tilewright.language.extra import libdevice", *example.lines[: example.definitions()]]
    body = []
    for number, line in enumerate(example.lines[example.definitions() :], example.definitions()):
        body.append(line)
        if target := assigned(line):
            body.append(f"SEEN.append(({number}, ({target})))")
    lines = ["@triton.jit(interpret=True)", "def kernel(x_ptr, i_ptr):", f"    {PRELUDE}"]
    path.write_text("\n".join([*head, *lines, *(f"    {line}" for line in body)]) + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.kernel[(1,)](torch.arange(16.0), torch.zeros(16, dtype=torch.int32))
    return [(number, class_of(value)) for number, value in module.SEEN]


def assigned(line: str) -> str:
    """Returns the names that a line assigns, if it is an assignment to names."""
    target, equals, _ = line.partition(" = ")
    return target if equals and re.fullmatch(r"\w+(, \w+)*", target) else ""


def class_of(value: object) -> str:
    if isinstance(value, tuple):
        return f"tuple[{', '.join(class_of(item) for item in value)}]"
    return type(value).__name__


# A compile-time number is a tensor where a kernel assigns it.
AS_TENSOR = {"constexpr", "int", "bool", "float"}
# Their results have the types of the program: of its classes, and of an unannotated function.
OF_PROGRAM = {"aggregate_replace", "tuple", "tuple_type", "constexpr_type", "map_elementwise"}
EXAMPLES = [example for example in read_examples() if example.path not in OF_PROGRAM]


def typed_examples() -> tuple[list[str], dict[int, tuple[str, int]]]:
    """A module with the examples as functions, and which example and line each line shows the type of."""
    text = ["import triton", "import triton.language as tl", "from triton.language.extra import libdevice"]
    places = {}
    for index, example in enumerate(EXAMPLES):
        text += example.lines[: example.definitions()]
        text += [f"def example_{index}(x_ptr: tl.tensor, i_ptr: tl.tensor) -> None:", f"    {PRELUDE}"]
        for number, line in enumerate(example.lines[example.definitions() :], example.definitions()):
            text.append(f"    {line}")
            if target := assigned(line):
                text.append(f"    reveal_type(({target}))")
                places[len(text)] = (example.path, number)
    return text, places


def test_types_are_those_of_run_time(mypy, tmp_path):
    """Each example of the reference passes mypy, and what it assigns has the class that it is said to have."""
    text, places = typed_examples()
    said = mypy["examples"]
    # A name of a kernel may get a value of another type, `n: tl.constexpr = 4` among them; helpers share their names.
    errors = [
        f"{text[line - 1]}: {found}"
        for line, texts in said.items()
        for found in texts
        if line not in places and not found.endswith(("[assignment]", "[no-redef]"))
    ]
    assert errors == [], "\n".join(errors)
    types = {
        places[line]: plain(re.search('"(.*)"', texts[0])[1])
        for line, texts in said.items()
        if line in places
    }
    run = {}
    for index, example in enumerate(EXAMPLES):
        for number, name in run_example(example, tmp_path / f"example_{index}.py"):
            run[example.path, number] = name
    assert types.keys() == run.keys()
    wrong = []
    for place, name in run.items():
        shown = types[place]
        # A block pointer has a class of its own at run time.
        is_block_pointer = name == "tensor_descriptor" and place[0] in ("make_block_ptr", "advance")
        if name != shown and not (name == "tensor" and shown in AS_TENSOR) and not is_block_pointer:
            wrong.append(f"{place}: {shown}, at run time {name}")
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("package", ["triton", "tilewright"])
def test_editors_complete_the_methods(package):
    jedi = pytest.importorskip("jedi", reason="jedi is not installed")
    head = f"import {package}.language as tl\n"
    project = jedi.Project(ROOT / "python", added_sys_path=[str(ROOT / "python")])
    code = f"{head}def f(p):\n    x = tl.load(p)\n    x."
    names = {found.name for found in jedi.Script(code, project=project).complete(4, 6)}
    methods = {
        path.removeprefix("tensor.") for path, (_, _, is_method) in _builtin.NAMES.items() if is_method
    }
    assert methods | {"to", "shape", "dtype", "T"} <= names
    code = f"{head}tl."
    names = {found.name for found in jedi.Script(code, project=project).complete(2, 3)}
    assert {path for path in _builtin.NAMES if "." not in path and path[0] != "_"} <= names
    code = f"{head}tl.load("
    (signature,) = jedi.Script(code, project=project).get_signatures(2, 8)
    assert [parameter.name for parameter in signature.params][:3] == ["pointer", "mask", "other"]
    assert "Reads memory" in signature.docstring()


def test_modes_are_what_the_compiler_takes():
    """The table of modes has the values of each rule."""
    modes = dict(_native.language_types()[2])
    assert modes["_LoadCache"] == ["", ".ca", ".cg", ".cs", ".cv"]
    assert all(len({*values}) == len(values) > 1 for values in modes.values())
