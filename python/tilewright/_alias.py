"""``install_as_triton``: makes ``import triton`` import tilewright.

A finder on ``sys.meta_path`` finds ``triton`` and its submodules, so the files of an official package, if there is one,
are neither read nor changed. ``triton_viz`` is ``tilewright.viz``. ``triton.language`` *is* the module
``tilewright.language``; only ``triton`` itself is a separate module, because its ``__version__`` is that of the Triton
release whose API tilewright has.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

TRITON_VERSION = "3.9.0"
"""The version of Triton whose API this is."""


class _Top(ModuleType):
    """The module ``triton``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["tilewright"], name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(sys.modules["tilewright"])})


class _AliasLoader:
    """Gives a module of tilewright another name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        import importlib

        name = _own_name(spec.name)
        module = importlib.import_module(name)
        if spec.name == "triton":
            top = _Top("triton", module.__doc__)
            own = vars(module)
            top.__dict__.update(
                {key: own[key] for key in own if not key.startswith("__") or key == "__all__"}
            )
            top.__dict__.update(
                __version__=TRITON_VERSION, __file__=module.__file__, __path__=module.__path__
            )
            return top
        # The import system will overwrite the module's spec and loader with those of the alias:
        # keep the original ones.
        spec.loader_state = (module.__spec__, module.__loader__)
        return module

    def get_code(self, name: str) -> Any:
        """The code that ``python -m`` runs, if this process is another program's: that of ``tilewright run -m``."""
        import importlib.util

        own = _own_name(name)
        spec: Any = importlib.util.find_spec(own)
        return spec.loader.get_code(own)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None and spec.loader_state is not None:
            module.__spec__, module.__loader__ = spec.loader_state


def _own_name(name: str) -> str:
    """The module of tilewright that replaces a module of Triton."""
    top, dot, rest = name.partition(".")
    return ("tilewright" if top == "triton" else "tilewright.viz") + dot + rest


def _is_ours(top: str) -> bool:
    """Returns whether tilewright replaces a package.

    It replaces ``triton_viz`` unless the program's user wants the public one.
    """
    if top != "triton_viz":
        return top == "triton"
    import os

    return os.environ.get("TILEWRIGHT_PUBLIC_TRITON_VIZ", "0") in ("", "0")


class _TritonFinder:
    """Finds ``triton`` and ``triton_viz``, and all below them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("triton") or not _is_ours(fullname.partition(".")[0]):
            return None
        import importlib.util

        try:
            real = importlib.util.find_spec(_own_name(fullname))
        except ModuleNotFoundError:
            real = None
        if real is None:
            # Later finders search the folders of tilewright and find nothing. But finders of
            # editable installations search by
            # name only, and must not find a module of an official package.
            _refuse_others(fullname, path, target)
            return None
        # The loader is not derived from `importlib.abc.Loader`: importing that module would take
        # half of the time of
        # importing tilewright.
        loader: Any = _AliasLoader()
        is_package = real.submodule_search_locations is not None
        spec = ModuleSpec(fullname, loader, origin=real.origin, is_package=is_package)
        spec.has_location = real.has_location
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


def _refuse_others(fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> None:
    for finder in sys.meta_path:
        if isinstance(finder, _TritonFinder):
            continue
        find_spec = getattr(finder, "find_spec", None)
        if find_spec is not None and find_spec(fullname, path, target) is not None:
            raise ModuleNotFoundError(f"No module named {fullname!r} (tilewright has none)", name=fullname)


def is_installed() -> bool:
    """Returns whether the module ``triton`` of this program is tilewright."""
    return isinstance(sys.modules.get("triton"), _Top)


def install_as_triton() -> None:
    """Makes ``import triton`` and imports of all below it resolve to tilewright, for this process.

    With :func:`tilewright.use_cpu_as_cuda` beside it, a program does for itself what ``tilewright run`` does.

    Call it before anything imports ``triton``; a second call changes nothing. An official package may be installed
    beside tilewright and is not touched. If it is imported already, this is an ``ImportError``, since kernels of two
    systems in one program could not call each other.
    """
    loaded = sys.modules.get("triton")
    if loaded is not None and not is_installed():
        where = getattr(loaded, "__file__", None) or "unknown place"
        raise ImportError(
            f"the official triton is already imported (from {where}): call tilewright.install_as_triton() before "
            "anything imports triton (torch.compile does), or start the program with `tilewright run`"
        )
    if not any(isinstance(finder, _TritonFinder) for finder in sys.meta_path):
        from tilewright._spawn import install_in_compile_workers, pass_constants_in_interpret_mode

        finder: Any = _TritonFinder()
        sys.meta_path.insert(0, finder)
        install_in_compile_workers()
        pass_constants_in_interpret_mode()
