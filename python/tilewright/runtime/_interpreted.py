"""Builds the body of interpreted kernels, locates its operations and copies GPU tensors to the host.

Python runs the kernel's own function, and the values of the language are objects. Where Python's meaning differs from
that of a kernel, ``_rewritten`` changes the code before it is compiled: an assigned number becomes a scalar of its
type, ``range`` yields such scalars, and ``and``, ``or``, ``not`` and ``assert`` follow the language for tensors. Lines
and columns stay those of the source, so that debuggers and tracebacks show it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
import types
import weakref

from tilewright import _native
from tilewright.runtime import _interpreted_values as values
from tilewright.runtime._rewriter import OVERLOADED, Rewriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType
    from typing import Any

_PACKAGE = __file__.rpartition("runtime")[0]
"""The folder of this package; errors of a kernel never point into it."""

_sources: weakref.WeakKeyDictionary[CodeType, tuple[str, int, int]] = weakref.WeakKeyDictionary()
"""For bodies without a file: the text, its first line and the columns of removed indentation."""


def body(kernel: Any) -> Callable[..., Any]:
    """Returns the function that Python runs for a kernel or a helper; rebuilds it if its source was replaced."""
    if (checks := _native.sanitizer_checks()) and checks != "bounds":
        _warn_of_missing_checks(kernel, checks)
    known: tuple[str, Callable[..., Any]] | None = kernel.__dict__.get("_interpreted_body")
    if known is not None and known[0] is kernel._src:
        return known[1]
    made = _rewritten(kernel) or kernel.fn
    if kernel._src is not None:
        _sources[made.__code__] = (kernel._src, kernel._first_line, kernel._removed_columns)
    kernel.__dict__["_interpreted_body"] = (kernel._src, made)
    return made


def replacements(kernel: Any) -> tuple[Any, Any]:
    """Returns the functions that a program has assigned in ``triton.runtime.interpreter``.

    The first wraps each operation, the second runs the programs of a grid; each is None without an assignment.
    """
    from tilewright.runtime import interpreter

    return interpreter._replacements(kernel)


def _warn_of_missing_checks(kernel: Any, checks: str) -> None:
    """Warns once per kernel that sanitizers other than bounds checks do not see interpreted kernels."""
    if "_has_warned_of_missing_checks" in kernel.__dict__:
        return
    kernel.__dict__["_has_warned_of_missing_checks"] = True
    import warnings

    from tilewright import sanitizer
    from tilewright.errors import LaunchWarning
    from tilewright.runtime._tuning_report import program_stacklevel

    others = ", ".join(check for check in checks.split(",") if check != "bounds")
    text = (
        f"kernel '{kernel.__name__}' is interpreted, and interpret mode checks only that accesses are in bounds; turn "
        f"it off for the other requested checks ({others})"
    )
    warnings.warn(text, LaunchWarning, stacklevel=program_stacklevel())
    sanitizer.leave_out_empty_summary()


def read_only(kernel: Any) -> list[int]:
    """Returns the indices of parameters that are declared as pointers to read-only memory."""

    def is_constant(annotation: str) -> bool:
        return annotation.startswith(("*k", "const ")) or annotation.rpartition(".")[2] == "const"

    return [param.num for param in kernel.params if is_constant(param.annotation)]


# -- Functions that the rewritten body calls. --


def _range(*bounds: Any) -> Any:
    if not 1 <= len(bounds) <= 3:
        return range(*bounds)
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return _native.interpret_range(start, end, bounds[2] if len(bounds) == 3 else 1)


def _decides(operator: str, value: Any) -> bool:
    """Returns whether ``value`` decides ``value and ...`` or ``value or ...``."""
    if isinstance(value, _native.tensor) and not value._is_constexpr:
        return False
    return bool(value) is (operator == "or")


def _is_true(value: Any) -> bool:
    """Returns whether a condition is true; for a tile, whether all its elements are."""
    if isinstance(value, _native.tensor) and value.shape:
        data, _, shape = value._elements()
        size = len(data)
        for extent in shape:
            size //= extent
        return all(any(data[at : at + size]) for at in range(0, len(data), size))
    return bool(value)


def _known(value: Any) -> Any:
    """Returns the content of a ``tl.constexpr``, which its name means in a kernel."""
    from tilewright import language as tl

    return value.value if isinstance(value, tl.constexpr) else value


def _value(owner: Any) -> Any:
    """Returns ``owner.value``; a ``tl.constexpr`` parameter is its own content."""
    if owner is None or isinstance(owner, (int, float, str)):
        return owner
    return owner.value


def _builtin(name: str) -> Callable[..., Any]:
    """Returns a Python function that the language also defines for tensors."""
    function = getattr(builtins, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return _native.interpret_builtin(name, function, args, kwargs)

    return call


def _isinstance(value: Any, classes: Any) -> bool:
    """Implements ``isinstance``; numbers are instances of ``tl.constexpr`` and tuples of ``tl.tuple``."""
    from tilewright import language as tl

    if isinstance(value, _native.tensor) and value._is_constexpr:
        value = value._known_number
    if isinstance(value, classes):
        return True
    wanted = classes if isinstance(classes, tuple) else (classes,)
    if value is None or isinstance(value, (int, float, str)):
        return tl.constexpr in wanted
    return isinstance(value, tuple) and tl.tuple in wanted


_SUPPORT: dict[str, Any] = {
    "__tilewright_assign__": _native.interpret_assign,
    "__tilewright_range__": _range,
    "__tilewright_stops__": _decides,
    "__tilewright_attribute__": _native.interpret_attribute,
    "__tilewright_unpacked__": values.unpacked,
    "__tilewright_constant__": _native.interpret_known,
    "__tilewright_passed__": _native.interpret_passed,
    "__tilewright_returned__": values.returned,
    "__tilewright_merged__": _native.interpret_merged,
    "__tilewright_joined__": values.joined,
    "__tilewright_chosen__": values.chosen,
    "__tilewright_splits__": values.splits,
    "__tilewright_loop__": values.loop,
    "__tilewright_index_after__": values.index_after,
    "__tilewright_is_dynamic__": values.is_dynamic,
    "__tilewright_is_run_time__": values.is_run_time,
    "__tilewright_foreseen__": values.foreseen,
    "__tilewright_truth__": bool,
    "__tilewright_unbound__": values.UNBOUND,
    "__tilewright_unknown__": values.UNKNOWN,
    "__tilewright_NameError__": NameError,
    "__tilewright_boolean__": _native.interpret_boolean,
    "__tilewright_not__": _native.interpret_not,
    "__tilewright_holds__": _is_true,
    "__tilewright_failed__": _native.interpret_failed,
    "__tilewright_known__": _known,
    "__tilewright_value__": _value,
    "__tilewright_isinstance__": _isinstance,
    **{f"__tilewright_{name}__": compare for name, compare in values.COMPARISONS.items()},
    **{f"__tilewright_{name}__": _builtin(name) for name in OVERLOADED},
}


# -- Rewriting. --


def _rewritten(kernel: Any) -> Callable[..., Any] | None:
    """Returns the function compiled from its rewritten source, or None if the kernel has no source."""
    if kernel._src is None:
        return None
    fn = kernel.fn
    module = ast.parse(kernel._src)
    definition = _definition(module, kernel._code_name)
    if definition is None:
        return None
    _move(module, kernel._first_line - 1, kernel._removed_columns)
    definition.decorator_list = []
    rewritten = (*OVERLOADED, "range", "isinstance")
    own_names = _own_names(definition) if kernel._is_replaced else set(fn.__code__.co_varnames)
    shadowed = {name for name in rewritten if name in own_names or name in fn.__globals__}
    shadowed |= set(fn.__code__.co_freevars)
    local_names = own_names | set(fn.__code__.co_freevars)
    constants = _constants(fn) - _own_names(definition)
    depth = Rewriter(shadowed, local_names, fn.__globals__, constants).rewrite(definition)
    # An outer function provides the names of enclosing scopes.
    free = [*fn.__code__.co_freevars, *_SUPPORT]
    # The name of the function itself is usually a global of its module.
    own = [] if definition.name in free else [ast.Global([definition.name])]
    outer = ast.FunctionDef(
        name="__tilewright_scope__",
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in free], kwonlyargs=[], kw_defaults=[], defaults=[]
        ),
        body=[*own, definition],
        decorator_list=[],
    )
    if sys.version_info >= (3, 12):
        outer.type_params = []
    module.body = [outer]
    _fill_locations(module)
    import __future__

    flags = fn.__code__.co_flags & __future__.annotations.compiler_flag
    with _deeper(depth):
        code = compile(module, fn.__code__.co_filename, "exec", flags, dont_inherit=True)
    found = _code_within(_code_within(code, outer.name), definition.name)
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    closure = tuple(cells.get(name) or types.CellType(_SUPPORT[name]) for name in found.co_freevars)
    # Native code that imports a module looks up `__builtins__` in the globals.
    fn.__globals__.setdefault("__builtins__", builtins)
    made = types.FunctionType(found, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    made.__kwdefaults__ = fn.__kwdefaults__
    if kernel._is_replaced:
        _take_defaults(made, kernel.signature)
    made.__qualname__ = fn.__qualname__
    made.__module__ = fn.__module__
    return made


def _own_names(definition: ast.FunctionDef) -> set[str]:
    """Returns the parameters of a function and the names that it assigns."""
    nodes = list(ast.walk(definition))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return assigned | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _constants(fn: Any) -> set[str]:
    """Returns the names around a function that hold compile-time values."""
    from tilewright import language as tl

    around = {name: fn.__globals__.get(name) for name in fn.__code__.co_names}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            around[name] = cell.cell_contents
    return {name for name, value in around.items() if isinstance(value, tl.constexpr)}


@contextlib.contextmanager
def _deeper(depth: int) -> Iterator[None]:
    """Raises the recursion limit so that Python can compile a tree of this depth, such as a chain of operators."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, min(4 * depth, _MAX_RECURSION)))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_MAX_RECURSION = 20_000
"""The recursion limit that the stack of a thread allows to Python's compiler."""


def _fill_locations(tree: ast.AST) -> None:
    """Gives nodes without a location that of their parent: ``ast.fix_missing_locations`` without recursion."""
    names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    work: list[tuple[ast.AST, tuple[int, ...]]] = [(tree, (1, 0, 1, 0))]
    while work:
        node, around = work.pop()
        if "lineno" in node._attributes:
            for name, value in zip(names, around, strict=True):
                if getattr(node, name, None) is None:
                    setattr(node, name, value)
            around = tuple(getattr(node, name) for name in names)
        work.extend((child, around) for child in ast.iter_child_nodes(node))


def _take_defaults(function: Any, signature: Any) -> None:
    """Gives a function from replaced source the default values of the kernel's parameters."""
    parameters = signature.parameters.values()
    has_default = [p for p in parameters if p.default is not p.empty]
    function.__defaults__ = tuple(p.default for p in has_default if p.kind is not p.KEYWORD_ONLY) or None
    function.__kwdefaults__ = {p.name: p.default for p in has_default if p.kind is p.KEYWORD_ONLY} or None


def _definition(module: ast.Module, name: str) -> ast.FunctionDef | None:
    found = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[0] if found else None


def _code_within(code: CodeType, name: str) -> CodeType:
    return next(
        constant
        for constant in code.co_consts
        if isinstance(constant, types.CodeType) and constant.co_name == name
    )


def _move(tree: ast.AST, lines: int, columns: int) -> None:
    """Shifts the locations of a tree by the position of its text in the file."""
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno += lines
            node.col_offset += columns  # type: ignore[attr-defined]
        if getattr(node, "end_lineno", None) is not None:
            node.end_lineno += lines  # type: ignore[attr-defined]
            node.end_col_offset += columns  # type: ignore[attr-defined]


# -- Locations. --


def sites(launched: CodeType | None = None) -> list[tuple[Any, ...]]:
    """Returns the locations of the current operation and of its callers up to the kernel, innermost first.

    A location is the name and text of a source, its first line and removed columns, its start and its end.
    """
    found: list[tuple[Any, ...]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is _around_code():
            # The frames up to here belong to the program's function around the operation: drop
            # them.
            found.clear()
        if not code.co_filename.startswith(_PACKAGE):
            site = _site(frame)
            if site is not None:
                found.append(site)
        if code is launched:
            break
        frame = frame.f_back
    return found if launched is not None else found[:1]


def _around_code() -> CodeType | None:
    module = sys.modules.get("tilewright.runtime._interpreter_builder")
    return None if module is None else module.around.__code__


def _site(frame: FrameType) -> tuple[Any, ...] | None:
    import linecache

    from tilewright.runtime.jit import shown_name

    code = frame.f_code
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    text, first_line, columns = "".join(lines), 1, 0
    if not lines:
        known = _sources.get(code)
        if known is None:
            return None
        text, first_line, columns = known
        lines = text.splitlines(keepends=True)
    line, end_line, start, end = _position(frame)
    line, end_line = line - first_line, end_line - first_line
    if not 0 <= line <= end_line < len(lines):
        return None
    if start is None or end is None:
        whole = lines[line]
        start = len(whole.encode()) - len(whole.lstrip().encode())
        end = len(lines[end_line].rstrip().encode())
    else:
        start, end = start - columns, end - columns
    name = shown_name(code.co_filename)
    return (name, text, first_line, columns, (line, max(start, 0)), (end_line, max(end, 0)))


def _position(frame: FrameType) -> tuple[int, int, int | None, int | None]:
    """Returns the lines and columns of the current operation of a frame; Python 3.10 knows only the line."""
    code = frame.f_code
    if hasattr(code, "co_positions"):
        positions: Iterator[Any] = code.co_positions()
        for number, (line, end_line, start, end) in enumerate(positions):
            if number == frame.f_lasti // 2 and line is not None:
                return line, line if end_line is None else end_line, start, end
    return frame.f_lineno, frame.f_lineno, None, None


# -- Tensors of a GPU. --


class on_host:
    """Arguments with GPU tensors replaced by copies in main memory, which are written back afterwards."""

    def __init__(self, objects: list[Any]) -> None:
        self._storages: dict[int, tuple[Any, Any]] = {}
        self.objects = [self._copied(value) for value in objects]

    def _copied(self, value: Any) -> Any:
        from tilewright.runtime.jit import TensorWrapper
        from tilewright.tools.tensor_descriptor import TensorDescriptor

        if isinstance(value, TensorWrapper):
            return TensorWrapper(self._copied(value.base), value.dtype)
        if isinstance(value, TensorDescriptor):
            import copy

            made = copy.copy(value)
            made.base = self._copied(value.base)
            return made
        if isinstance(value, tuple):
            items = [self._copied(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, list):
            return [self._copied(item) for item in value]
        if not getattr(value, "is_cuda", False) or not hasattr(value, "untyped_storage"):
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in self._storages:
            self._storages[storage.data_ptr()] = (storage, storage.cpu())
        _, copied = self._storages[storage.data_ptr()]
        import torch

        made = torch.empty(0, dtype=value.dtype)
        return made.set_(copied, value.storage_offset(), value.size(), value.stride())

    def write_back(self) -> None:
        """Copies the results of the kernel back to the GPU."""
        for original, copied in self._storages.values():
            original.copy_(copied)
