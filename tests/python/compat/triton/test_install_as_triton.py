"""``install_as_triton``: who ``triton`` is, with and without another package of that name."""

from __future__ import annotations

import pytest
from conftest import environment_of

PROGRAM = """
import importlib, importlib.util, sys
import tilewright
tilewright.install_as_triton()
tilewright.install_as_triton()
import triton
import triton.language as tl
from triton.runtime import driver
from triton.language.extra import libdevice
from triton.language.semantic import num_programs
from triton.compiler.errors import CompilationError
import triton.runtime.jit, triton.backends.compiler, triton.testing, triton.knobs, triton.tools.tensor_descriptor

assert triton is sys.modules["triton"] and triton is not tilewright
assert triton.__name__ == "triton" and triton.__version__ == "3.9.0" and tilewright.__version__ != "3.9.0"
assert triton.language is tl is tilewright.language and tl.__name__ == "tilewright.language"
assert tl.__spec__.name == "tilewright.language"
assert triton.jit is tilewright.jit and triton.runtime.jit.JITFunction is triton.JITFunction
assert triton.runtime.driver is driver and driver.active.get_current_target().backend == "cpu"
assert CompilationError is triton.CompilationError
assert importlib.util.find_spec("triton").origin == tilewright.__file__
assert repr(triton).startswith("<module 'triton' from ")
assert set(tilewright.__all__) <= set(dir(triton))
assert importlib.util.find_spec("triton.ops") is None
assert importlib.util.find_spec("triton.nothing") is None
assert importlib.util.find_spec("triton.language.nothing") is None
try:
    import triton.nothing
except ModuleNotFoundError as error:
    assert error.name == "triton.nothing", error.name
else:
    raise AssertionError
try:
    triton.nothing
except AttributeError:
    pass
else:
    raise AssertionError
try:
    triton.testing.cublas()
except NotImplementedError as error:
    assert str(error).startswith("error[TW0117]: triton.testing.cublas is not available in this version of tilewright")
assert str(eval(repr(tl.float32))) == "fp32"
assert "fake" not in sys.modules
print("fine")
"""


@pytest.fixture
def official(script):
    """A package that calls itself triton, with a distribution."""
    path = script(
        "import fake\nraise RuntimeError('the other one was imported')\n", "site/triton/__init__.py"
    )
    script("raise RuntimeError\n", "site/triton/language/__init__.py")
    script("raise RuntimeError\n", "site/triton/nothing.py")
    script("Metadata-Version: 2.1\nName: triton\nVersion: 3.9.0\n", "site/triton-3.9.0.dist-info/METADATA")
    return path.parents[1]


def test_without_an_official_package(run, script):
    done = run("-S", script(PROGRAM))
    assert (done.code, done.out, done.err) == (0, "fine\n", "")


def test_beside_an_official_package(run, script, official):
    from conftest import environment_of

    before = {path: path.read_bytes() for path in official.rglob("*") if path.is_file()}
    path = f"{official}:{environment_of()['PYTHONPATH']}"
    done = run(script(PROGRAM), env={"PYTHONPATH": path})
    assert (done.code, done.out, done.err) == (0, "fine\n", "")
    assert before == {path: path.read_bytes() for path in official.rglob("*") if path.is_file()}


def test_beside_an_editable_official_package(run, script):
    """Finders of editable installations only go by the name."""
    path = script(
        """
        import importlib, sys
        from importlib.machinery import ModuleSpec
        class Editable:
            @staticmethod
            def find_spec(fullname, path=None, target=None):
                if fullname == "triton.ops":
                    return ModuleSpec(fullname, None)
        sys.meta_path.insert(0, Editable)
        import tilewright
        tilewright.install_as_triton()
        import triton
        try:
            import triton.ops
        except ModuleNotFoundError as error:
            print(error)
        """
    )
    assert run(path).out == "No module named 'triton.ops' (tilewright has none)\n"


def test_after_an_official_package_was_imported(run, script):
    path = script(
        """
        import sys, types
        sys.modules["triton"] = types.ModuleType("triton")
        sys.modules["triton"].__file__ = "/elsewhere/triton/__init__.py"
        import tilewright
        try:
            tilewright.install_as_triton()
        except ImportError as error:
            print(error)
        """
    )
    assert run(path).out == (
        "the official triton is already imported (from /elsewhere/triton/__init__.py): call "
        "tilewright.install_as_triton() before anything imports triton (torch.compile does), or start the program with "
        "`tilewright run`\n"
    )


def test_importing_tilewright_imports_little(run, script):
    path = script(
        """
        import sys
        before = set(sys.modules)
        import tilewright
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(sorted(new & {"numpy", "torch", "inspect", "dataclasses", "asyncio", "ast", "tokenize", "triton",
            "typing", "re", "contextlib", "pathlib", "tempfile", "urllib"}))
        """
    )
    # Without site: an environment may load anything before the program.
    assert run("-S", path).out == "[]\n"


def test_torch_finds_tilewright_and_compiles_for_the_cpu(run, script):
    pytest.importorskip("torch")
    path = script(
        """
        import torch
        from torch.utils._triton import has_triton, has_triton_package
        print(has_triton_package(), has_triton())
        print(torch.compile(lambda x: x * 2 + 1, backend="eager")(torch.ones(3)).tolist())
        import torch._inductor.runtime.triton_compat as compat
        print(compat.HAS_TRITON, compat.triton.__version__, compat.builtins_use_semantic_kwarg)
        """
    )
    done = run("-m", "tilewright", "run", path)
    assert done.err == ""
    assert done.out == "True True\n[3.0, 3.0, 3.0]\nTrue 3.9.0 False\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_multiprocessing_have_it_too(run, script, method):
    path = script(
        f"""
        import multiprocessing
        import triton

        def name(number):
            return triton.jit.__module__, number

        if __name__ == "__main__":
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                print(pool.map(name, [1]))
        """
    )
    done = run("-m", "tilewright", "run", path)
    assert done.out == "[('tilewright.runtime.jit', 1)]\n", done.err


def test_a_public_visualizer_that_is_not_installed_is_named_with_its_variable(run, script):
    command = ("-m", "tilewright", "run", "-c", "import triton_viz; print(triton_viz.__name__)")
    done = run(*command, env={"TILEWRIGHT_PUBLIC_TRITON_VIZ": "1"})
    assert done.err.splitlines()[-1].startswith(
        "ModuleNotFoundError: No module named 'triton_viz': TILEWRIGHT_PUBLIC_TRITON_VIZ is set, so it is the public "
    )
    path = script("", "site/triton_viz/__init__.py").parents[1]
    env = {"TILEWRIGHT_PUBLIC_TRITON_VIZ": "1", "PYTHONPATH": f"{path}:{environment_of()['PYTHONPATH']}"}
    assert run(*command, env=env).out == "triton_viz\n"
    for text in ("0", "off"):
        assert run(*command, env={"TILEWRIGHT_PUBLIC_TRITON_VIZ": text}).out == "tilewright.viz\n"
