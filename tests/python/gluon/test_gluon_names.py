"""The names of Gluon against the official package: each is here, or in the table of the missing names.

`compat/triton/gluon_names.txt` has the names by module, and `gluon_members.txt` those of classes. A name that becomes
available leaves `gluon_missing.txt`, and a parameter `MISSING_PARAMETERS`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys

import pytest
from reference_pages import GLUON, read_names

from tilewright import _native
from tilewright.experimental.gluon import language as gl
from tilewright.language._builtin import LanguageFunction

NAMES, MEMBERS, MISSING = map(read_names, ("gluon_names.txt", "gluon_members.txt", "gluon_missing.txt"))

MISSING_PARAMETERS = {
    "load": {"cache_policy"},
    "store": {"cache_policy"},
    "async_copy.async_load": {"cache_policy"},
}
"""The parameters of the official functions that the functions here lack."""

OFFICIAL = """
import importlib, inspect, json, sys
modules, classes = json.load(sys.stdin)
differences, members, parameters = {}, {}, {}
for path, listed in modules.items():
    module = importlib.import_module(path)
    public = {name for name in getattr(module, "__all__", ()) if not name.startswith("_")}
    wrong = public - {*listed} | {name for name in listed if not hasattr(module, name)}
    if wrong:
        differences[path] = sorted(wrong)
    for name in listed:
        value = getattr(module, name, None)
        if callable(value) and not inspect.isclass(value):
            found = [*inspect.signature(getattr(value, "fn", value)).parameters.values()]
            is_open = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in found)
            public = [each for each in found if not each.name.startswith("_")]
            own = [[each.name for each in public if (each.kind == each.KEYWORD_ONLY) == is_keyword]
                   for is_keyword in (False, True)]
            parameters[f"{path}.{name}"] = None if is_open else own
for path in classes:
    module, _, name = path.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    listed = {*dir(value), *getattr(value, "__dataclass_fields__", ())}
    members[path] = sorted(name for name in listed if not name.startswith("_"))
print(json.dumps([differences, members, parameters]))
"""


@pytest.fixture(scope="module")
def official():
    """The names that differ from the list, the members of the classes, and the parameters of the functions."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", OFFICIAL],
        input=json.dumps([NAMES, list(MEMBERS)]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("the official triton is not installed")
    return json.loads(done.stdout)


def find(path):
    """The module or class here that has this path in the official package."""
    path = path.replace("triton", "tilewright", 1)
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def is_missing(value):
    """Returns whether a name is only a placeholder."""
    return isinstance(value, _native.Missing) or type(value).__name__ == "_AbsentType"


def here(path):
    """The names of a module or class that work here."""
    name = path.rpartition(".")[2]
    if name in ("shared_memory_descriptor", "tensor_descriptor"):
        # Values of kernels, whose members the reference lists.
        return {example.path.rpartition(".")[2] for example in GLUON if f"{name}." in example.path}
    found = find(path)
    fields = {*getattr(found, "__dataclass_fields__", ())}
    return fields | {name for name in dir(found) if not is_missing(inspect.getattr_static(found, name))}


def test_each_name_is_here_or_in_the_table():
    missing = {}
    for path, names in (NAMES | MEMBERS).items():
        if left := [name for name in names if name not in here(path)]:
            missing[path] = left
    assert missing == MISSING


def test_missing_names_say_so():
    """On the host, a call raises TW0117; the members are methods of values that exist only in kernels."""
    for path, names in MISSING.items():
        for name in names if path in NAMES else ():
            with pytest.raises(NotImplementedError, match=rf"TW0117.*\b{name} is not available"):
                getattr(find(path), name)()


def test_the_lists_are_those_of_the_official_package(official):
    differences, members, _ = official
    assert differences == {}
    assert {path: sorted(listed) for path, listed in MEMBERS.items()} == members


def test_parameters_are_those_of_the_official_package(official):
    """In the official order; those that only tilewright has come after them."""
    wrong, compared = [], 0
    for path, parameters in official[2].items():
        module, _, name = path.rpartition(".")
        value = getattr(find(module), name)
        if (
            parameters is None
            or not isinstance(value, LanguageFunction)
            or "gluon." not in value._tilewright_path
        ):
            continue
        compared += 1
        key = value._tilewright_path.removeprefix("gluon.")
        own = [*inspect.signature(value).parameters]
        positional, keywords = parameters
        missing = MISSING_PARAMETERS.get(key, set())
        expected = [each for each in positional if each not in missing]
        if own[: len(expected)] != expected or not {*keywords} - missing <= {*own}:
            wrong.append((path, parameters, own))
        if missing & {*own}:
            wrong.append((path, "no longer missing", missing & {*own}))
    assert compared > 30
    assert wrong == []


def test_functions_are_picklable_and_say_where_they_are():
    import copy
    import pickle

    for value in (gl.arange, gl.nvidia.hopper.tma.async_load, gl.nvidia.ampere.mma_v2):
        assert pickle.loads(pickle.dumps(value)) is value
        assert copy.deepcopy(value) is value
    assert (
        gl.nvidia.hopper.tma.async_load.__module__ == "triton.experimental.gluon.language.nvidia.hopper.tma"
    )
    assert gl.arange.__module__ == "triton.experimental.gluon.language"
    assert repr(gl.arange) == "<function triton.experimental.gluon.language.arange>"
    assert gl.load.__doc__.startswith("load(pointer, mask=None")
