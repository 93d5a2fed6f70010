"""Makes ``import triton`` import tilewright: :func:`begin` and ``install_as_triton``.

Each way to use tilewright as Triton calls these functions: ``tilewright run``, the pytest plugin, an activated
environment, the variable ``TILEWRIGHT_AS_TRITON`` and the program itself.

A finder on ``sys.meta_path`` finds ``triton`` and its submodules, so the files of an official package, if there is one,
are neither read nor changed. ``triton_viz`` is ``tilewright.viz``. ``triton.language`` *is* the module
``tilewright.language``; only ``triton`` itself is a separate module, because its ``__version__`` is that of the Triton
release whose API tilewright has.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from _tilewright_startup import PARTS, TRITON_VERSION, Watch, unwatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


class _Top(ModuleType):
    """The module ``triton``."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules["tilewright"], name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(sys.modules["tilewright"])})


class AliasLoader:
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
        # The import system will overwrite the module's spec and loader with those of the alias.
        # Keep the original ones.
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


_PUBLIC_VIZ = "TILEWRIGHT_PUBLIC_TRITON_VIZ"


class _TritonFinder:
    """Finds ``triton``, and all below it; ``triton_viz`` as well if tilewright replaces it."""

    def __init__(self) -> None:
        self.replaces_viz = False
        self.expects_public_viz = False

    def _is_ours(self, top: str) -> bool:
        return top == "triton" or (top == "triton_viz" and self.replaces_viz)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "triton_viz" and self.expects_public_viz and next(_others(fullname), None) is None:
            raise ModuleNotFoundError(
                f"No module named 'triton_viz': {_PUBLIC_VIZ} is set, so it is the public package, which is not "
                "installed",
                name=fullname,
            )
        if not fullname.startswith("triton") or not self._is_ours(fullname.partition(".")[0]):
            return None
        import importlib.util

        try:
            real = importlib.util.find_spec(_own_name(fullname))
        except ModuleNotFoundError:
            real = None
        if real is None:
            # Other later finders search the folders of tilewright and find nothing. But finders of
            # editable installations search only by name; they must not find a module of an official
            # package.
            _refuse_others(fullname, path, target)
            return None
        # The loader is not derived from `importlib.abc.Loader`, because importing `importlib.abc` would
        # take half of the time of importing tilewright.
        loader: Any = AliasLoader()
        is_package = real.submodule_search_locations is not None
        spec = ModuleSpec(fullname, loader, origin=real.origin, is_package=is_package)
        spec.has_location = real.has_location
        spec.submodule_search_locations = real.submodule_search_locations
        return spec


def _others(
    fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
) -> Iterator[ModuleSpec]:
    """Returns the specs of the modules of this name that finders other than tilewright's find."""
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        if find_spec is None or isinstance(finder, (_TritonFinder, Watch)):
            continue
        if (spec := find_spec(fullname, path, target)) is not None:
            yield spec


def _refuse_others(fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> None:
    for _ in _others(fullname, path, target):
        raise ModuleNotFoundError(f"No module named {fullname!r} (tilewright has none)", name=fullname)


def find_official() -> ModuleSpec | None:
    """Returns the package ``triton`` that this process would import without tilewright."""
    return next(_others("triton"), None)


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
    _install(replaces_viz=True)


def begin(parts: tuple[str, ...] = PARTS) -> None:
    """Makes tilewright the Triton of this process, in the given parts.

    Raises ``TritonError`` if ``TILEWRIGHT_DEVICE`` names no device, and ``ImportError`` if another Triton is imported.
    """
    from tilewright import _environment, _native

    active = _native.device()
    _install(replaces_viz="viz" in parts)
    # The simulator works on the memory of the processor.
    if "cuda" in parts and not active.startswith("cuda"):
        from tilewright._cuda_on_cpu import announcement, use_cpu_as_cuda

        announcement.once_for_children()
        use_cpu_as_cuda()
        _native.allow_padded_reads(not _environment.is_on("TILEWRIGHT_STRICT"))
    unwatch()


def _install(replaces_viz: bool) -> None:
    loaded = sys.modules.get("triton")
    if loaded is not None and not is_installed():
        where = getattr(loaded, "__file__", None) or "unknown place"
        raise ImportError(
            f"the official triton is already imported (from {where}): call tilewright.install_as_triton() before "
            "anything imports triton (torch.compile does), or start the program with `tilewright run`"
        )
    finder = next((finder for finder in sys.meta_path if isinstance(finder, _TritonFinder)), None)
    if finder is None:
        from tilewright._spawn import install_in_compile_workers, pass_constants_in_interpret_mode

        finder = _TritonFinder()
        first: Any = finder
        sys.meta_path.insert(0, first)
        install_in_compile_workers()
        pass_constants_in_interpret_mode()
    from tilewright import _environment

    # The program's user may want the public package.
    if not _environment.is_on(_PUBLIC_VIZ):
        finder.replaces_viz |= replaces_viz
    elif replaces_viz:
        finder.expects_public_viz = True
