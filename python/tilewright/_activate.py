"""``tilewright activate``, ``deactivate`` and ``status``: what ``import triton`` means in an environment of Python.

The environment is that of the interpreter that runs the command. ``activate`` writes the files of the distribution
``triton`` into its ``site-packages``, as pip would install them: see :mod:`_tilewright_startup.distribution`. If an
official triton is installed, its files and its metadata stay as they are, and only the ``.pth`` file is written.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from typing import NoReturn

from _tilewright_startup import PARTS, TRITON_VERSION, VARIABLE, parse_parts, waiting_parts
from _tilewright_startup.distribution import PTH, files, pth_text, version_for
from tilewright._arguments import Parser
from tilewright._output import print_result

ACTIVE, NOT_ACTIVE = 0, 1
"""Exit codes of ``status``."""


class _NotChangedError(Exception):
    """The environment cannot be changed: TW0118."""

    def __init__(self, what: str, note: str, hint: str) -> None:
        super().__init__(f"error[TW0118]: {what}\n  = note: {note}\n  = help: {hint}")


def activate(arguments: list[str]) -> int:
    """Makes ``import triton`` import tilewright in each Python process of this environment."""
    parser = Parser(
        "tilewright activate", [""], "Make `import triton` import tilewright in this Python environment"
    )
    parser.add_option("--viz", action="store_true", help="`import triton_viz` as well: the visualizer")
    parser.add_option(
        "--cuda",
        action="store_true",
        help="where torch finds no GPU, its device 'cuda' is the CPU, as in `run`",
    )
    parser.add_option(
        "--system", action="store_true", help="change an environment that the operating system manages"
    )
    given = parser.parse(arguments)
    parts = tuple(part for part in PARTS if part == "triton" or getattr(given, part))
    try:
        _check_managed(given.system)
        written = _write(parts)
    except _NotChangedError as error:
        print(error, file=sys.stderr)
        return 1
    imports = "`import triton` and `import triton_viz` import" if given.viz else "`import triton` imports"
    print(f"{imports} tilewright in {sys.prefix}")
    if given.cuda:
        print("where torch finds no GPU, its device 'cuda' is the CPU")
    for path in written:
        print(f"  wrote {path}")
    from tilewright._alias import find_official

    if (other := find_official()) is not None:
        print(f"  hidden, not changed: {_describe(other)}")
    print("  undo: tilewright deactivate")
    return 0


def deactivate(arguments: list[str]) -> int:
    """Removes the files that ``activate`` has written, or pip from the distribution ``triton`` of tilewright."""
    Parser("tilewright deactivate", [""], "Undo `tilewright activate`").parse(arguments)
    try:
        removed = _remove()
    except _NotChangedError as error:
        print(error, file=sys.stderr)
        return 1
    for path in removed:
        print(f"removed {path}")
    if not removed:
        print(f"tilewright is not activated in {sys.prefix}")
    return 0


def status(arguments: list[str]) -> int:
    """Prints the meaning of ``import triton`` in this process, which is the same in each process of the environment."""
    description = "Print what `import triton` imports; exits with 0 if it is tilewright, else with 1"
    Parser("tilewright status", [""], description).parse(arguments)
    import tilewright
    from tilewright._alias import find_official

    # `_find("triton")` ends the waiting for `triton`, so the parts are read first.
    try:
        parts = waiting_parts()
    except ValueError:
        # The import of tilewright has printed it.
        return NOT_ACTIVE
    spec = _find("triton")
    ours = _is_tilewright(spec)
    other = find_official()
    if ours:
        meaning = f"tilewright {tilewright.__version__}, with the API of Triton {TRITON_VERSION}"
    elif spec is not None:
        meaning = "the official triton"
    else:
        meaning = "nothing: no module of this name"
    pth = os.path.join(_site_packages(), PTH)
    rows = {
        "import triton": meaning,
        "file": spec.origin if spec is not None else "none",
        "import triton_viz": "tilewright.viz" if _is_tilewright(viz := _find("triton_viz")) else _origin(viz),
        "cuda without a GPU": "the CPU" if "cuda" in parts else "none",
        "metadata": _metadata(),
        "official": f"{_describe(other)}{', hidden' if ours else ''}"
        if other is not None
        else "not installed",
        "environment": sys.prefix,
        "activated by": pth if os.path.exists(pth) else "no file",
        VARIABLE: _variable(has_effect=bool(parts) or ours),
    }
    if not ours:
        is_off = os.environ.get(VARIABLE) is not None and os.path.exists(pth)
        rows["to change it"] = (
            f"unset {VARIABLE}" if is_off else "tilewright activate, or tilewright run script.py"
        )
    print_result("".join(f"{name + ':':22}{value}\n" for name, value in rows.items()))
    return ACTIVE if ours else NOT_ACTIVE


def _variable(has_effect: bool) -> str:
    """Returns the value of the variable ``TILEWRIGHT_AS_TRITON``, and the reason if it has no effect."""
    value = os.environ.get(VARIABLE)
    if value is None:
        return "not set"
    if has_effect or not parse_parts(value):
        return value
    # A file in another folder of the path, such as that of a checkout, is not read when Python starts.
    missing = os.path.join(_site_packages(), "tilewright_startup.pth")
    return f"{value}, without effect: there is no {missing}, which would read it"


def _site_packages() -> str:
    import sysconfig

    return sysconfig.get_path("purelib")


def _check_managed(is_allowed: bool) -> None:
    """Refuses what pip refuses: a Python whose packages the operating system manages (PEP 668)."""
    import sysconfig

    mark = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    if not is_allowed and sys.prefix == sys.base_prefix and os.path.exists(mark):
        raise _NotChangedError(
            f"the operating system manages the packages of {sys.executable}",
            f"`activate` would write {os.path.join(_site_packages(), PTH)}",
            "run the command in a virtual environment (python -m venv), or add --system",
        )


def _write(parts: tuple[str, ...]) -> list[str]:
    """Writes the distribution; returns the paths of its ``.pth`` file and of its metadata."""
    import tilewright
    from tilewright._files import write_file

    _remove()
    site_packages = _site_packages()
    # The file also makes a tilewright importable that is not in this folder, such as a checkout.
    folder = os.path.dirname(os.path.dirname(os.path.abspath(tilewright.__file__)))
    text = pth_text(parts, "" if os.path.realpath(folder) == os.path.realpath(site_packages) else folder)
    content = {PTH: text}
    if _official_metadata() is None:
        content = files(version_for(tilewright.__version__), text, _requirement(), installer="tilewright")
    # The `.pth` file is the last one: an error before it leaves `import triton` as it was.
    for name, data in reversed(content.items()):
        path = os.path.join(site_packages, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_file(path, data)
        except OSError as error:
            _refuse(site_packages, error)
    return [
        os.path.join(site_packages, name) for name in dict.fromkeys(name.split("/")[0] for name in content)
    ]


def _requirement() -> str:
    """Returns the requirement of the distribution; none if tilewright is imported from a folder without metadata."""
    try:
        distribution("tilewright")
    except PackageNotFoundError:
        return ""
    return "tilewright"


def _remove() -> list[str]:
    """Removes the distribution, even if it is incomplete; returns the removed paths."""
    import shutil

    site_packages = _site_packages()
    found = [os.path.join(site_packages, PTH)]
    try:
        names = os.listdir(site_packages)
    except OSError:
        names = []
    prefix = f"triton-{version_for('')}"
    found += [os.path.join(site_packages, name) for name in names if name.startswith(prefix)]
    removed = []
    for path in filter(os.path.lexists, found):
        try:
            if path.endswith(".dist-info"):
                shutil.rmtree(path)
            else:
                os.remove(path)
        except OSError as error:
            _refuse(path, error)
        removed.append(path)
    return removed


def _refuse(path: str, error: OSError) -> NoReturn:
    raise _NotChangedError(
        f"cannot change {path}: {error.strerror}",
        f"this is the environment of {sys.executable}",
        f"run the command as the owner of the folder, or in a virtual environment; for one process, set {VARIABLE}=1",
    ) from None


def _official_metadata() -> Distribution | None:
    """Returns the metadata of a distribution ``triton`` that is not tilewright's, if there is one."""
    found = (one for one in distributions(name="triton") if "+tilewright" not in one.version)
    return next(found, None)


def _metadata() -> str:
    """Returns the distribution that ``importlib.metadata`` and pip find under the name ``triton``."""
    found = next(iter(distributions(name="triton")), None)
    return f"triton {found.version}" if found is not None else "no distribution triton"


def _find(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec

    return find_spec(name)


def _origin(spec: ModuleSpec | None) -> str:
    return str(spec.origin) if spec is not None else "nothing"


def _is_tilewright(spec: ModuleSpec | None) -> bool:
    from tilewright._alias import AliasLoader

    return spec is not None and isinstance(spec.loader, AliasLoader)


def _describe(spec: ModuleSpec) -> str:
    found = _official_metadata()
    version = f"{found.version} " if found is not None else ""
    return f"triton {version}in {os.path.dirname(str(spec.origin))}"
