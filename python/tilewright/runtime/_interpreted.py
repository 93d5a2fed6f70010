"""The body of an interpreted kernel: the function that Python runs, where it stands, and tensors of a GPU on the host.

Python runs the kernel's own function, and the language's values are objects. A few things mean something else to
Python than in a kernel, and are written another way before the function is compiled (``_rewritten``): a number that is
assigned becomes a scalar of its type, ``range`` counts in such scalars, and ``and``, ``or``, ``not`` and ``assert`` are
those of the language for tensors. Lines and columns stay those of the source, so that a debugger and a traceback show
it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import sys
import types
import weakref

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType
    from typing import Any

_PACKAGE = __file__.rpartition("runtime")[0]
"""Where our own functions lie, which no error of a kernel points at."""

_sources: weakref.WeakKeyDictionary[CodeType, tuple[str, int, int]] = weakref.WeakKeyDictionary()
"""The text of a body, its first line and the columns of indentation that were removed, for what is in no file."""


def body(kernel: Any) -> Callable[..., Any]:
    """The function that Python runs for a kernel or a helper; made anew if its source has been replaced."""
    if (checks := _native.sanitizer_checks()) and checks != "bounds":
        _say_what_is_not_checked(kernel, checks)
    known: tuple[str, Callable[..., Any]] | None = kernel.__dict__.get("_interpreted_body")
    if known is not None and known[0] is kernel._src:
        return known[1]
    made = _rewritten(kernel) or kernel.fn
    if kernel._src is not None:
        _sources[made.__code__] = (kernel._src, kernel._first_line, kernel._removed_columns)
    kernel.__dict__["_interpreted_body"] = (kernel._src, made)
    return made


def replaced(kernel: Any) -> tuple[Any, Any]:
    """What a program has put in the place of our own in ``triton.runtime.interpreter``: something around each
    operation, and something that runs the programs of a grid.
    """
    from tilewright.runtime import interpreter

    return interpreter._replaced(kernel)


def _say_what_is_not_checked(kernel: Any, checks: str) -> None:
    """Warns, once a kernel, that a sanitizer finds nothing in what Python runs."""
    if "_is_said_to_be_unchecked" in kernel.__dict__:
        return
    kernel.__dict__["_is_said_to_be_unchecked"] = True
    import warnings

    from tilewright.errors import LaunchWarning

    others = ", ".join(check for check in checks.split(",") if check != "bounds")
    text = (
        f"kernel '{kernel.__name__}' is interpreted, where accesses out of bounds are all that is checked; what the "
        f"sanitizer is to look for ({others}) it finds without interpret mode"
    )
    warnings.warn(text, LaunchWarning, stacklevel=2)


def read_only(kernel: Any) -> list[int]:
    """The parameters that are declared as pointers to memory that is only read."""

    def is_constant(annotation: str) -> bool:
        return annotation.startswith(("*k", "const ")) or annotation.rpartition(".")[2] == "const"

    return [param.num for param in kernel.params if is_constant(param.annotation)]


# -- What the body calls besides what it says. --


def _range(*bounds: Any) -> Any:
    if not 1 <= len(bounds) <= 3:
        return range(*bounds)
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return _native.interpret_range(start, end, bounds[2] if len(bounds) == 3 else 1)


def _stops(operator: str, value: Any) -> bool:
    """Whether ``value`` alone is what ``value and ...`` or ``value or ...`` is."""
    if isinstance(value, _native.tensor) and not value._is_constexpr:
        return False
    return bool(value) is (operator == "or")


def _holds(value: Any) -> bool:
    """Whether a condition holds; of a tile, everywhere."""
    if isinstance(value, _native.tensor) and value.shape:
        data, _, shape = value._elements()
        size = len(data)
        for extent in shape:
            size //= extent
        return all(any(data[at : at + size]) for at in range(0, len(data), size))
    return bool(value)


def _known(value: Any) -> Any:
    """The content of a compile-time value: its name means the content in a kernel."""
    from tilewright import language as tl

    return value.value if isinstance(value, tl.constexpr) else value


def _value(owner: Any) -> Any:
    """``owner.value``: a ``tl.constexpr`` parameter is what it holds."""
    if owner is None or isinstance(owner, (int, float, str)):
        return owner
    return owner.value


def _comparable(value: Any) -> Any:
    """An operand of a comparison: to the language, a list is a tuple."""
    if type(value) is list:
        return tuple(_comparable(item) for item in value)
    if type(value) is tuple and any(type(item) in (list, tuple) for item in value):
        return tuple(_comparable(item) for item in value)
    return value


@functools.cache
def _tensor_attributes() -> frozenset[str]:
    """An attribute that tensors have, and so numbers of a kernel."""
    return frozenset(name for name in dir(_native.tensor) if not name.startswith("_"))


def _builtin(name: str) -> Callable[..., Any]:
    """A function of Python that the language has for tensors."""
    function = getattr(builtins, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if name in _NUMBERS and isinstance(args[0] if args else None, _native.tensor) and not args[0].shape:
            return function(*args, **kwargs)
        return _native.interpret_builtin(name, function, args, kwargs)

    return call


def _isinstance(value: Any, classes: Any) -> bool:
    """``isinstance`` of what stands for a kernel's own: numbers for ``tl.constexpr``, tuples for ``tl.tuple``."""
    from tilewright import language as tl

    if isinstance(value, _native.tensor) and value._is_constexpr:
        value = value._known_number
    if isinstance(value, classes):
        return True
    wanted = classes if isinstance(classes, tuple) else (classes,)
    if value is None or isinstance(value, (int, float, str)):
        return tl.constexpr in wanted
    return isinstance(value, tuple) and tl.tuple in wanted


_NUMBERS = ("float", "int", "bool")
"""What makes a number of Python's of a scalar, and a tile of another type of a tile."""

_OVERLOADED = ("max", "min", "sum", "round", "pow", "divmod", *_NUMBERS)

_SUPPORT: dict[str, Any] = {
    "__tilewright_assign__": _native.interpret_assign,
    "__tilewright_range__": _range,
    "__tilewright_stops__": _stops,
    "__tilewright_attribute__": _native.interpret_attribute,
    "__tilewright_comparable__": _comparable,
    "__tilewright_boolean__": _native.interpret_boolean,
    "__tilewright_not__": _native.interpret_not,
    "__tilewright_holds__": _holds,
    "__tilewright_failed__": _native.interpret_failed,
    "__tilewright_known__": _known,
    "__tilewright_value__": _value,
    "__tilewright_isinstance__": _isinstance,
    **{f"__tilewright_{name}__": _builtin(name) for name in _OVERLOADED},
}


# -- Rewriting. --


def _rewritten(kernel: Any) -> Callable[..., Any] | None:
    """The function, compiled from its rewritten source; nothing if it has none."""
    if kernel._src is None:
        return None
    fn = kernel.fn
    module = ast.parse(kernel._src)
    definition = _definition(module, kernel._code_name)
    if definition is None:
        return None
    _move(module, kernel._first_line - 1, kernel._removed_columns)
    definition.decorator_list = []
    rewritten = (*_OVERLOADED, "range", "isinstance")
    own_names = _own_names(definition) if kernel._is_replaced else set(fn.__code__.co_varnames)
    shadowed = {name for name in rewritten if name in own_names or name in fn.__globals__}
    shadowed |= set(fn.__code__.co_freevars)
    local_names = own_names | set(fn.__code__.co_freevars)
    constants = _constants(fn) - _own_names(definition)
    depth = _Rewriter(shadowed, local_names, fn.__globals__, constants).rewrite(definition)
    # The names of another scope are those of a function around it.
    free = [*fn.__code__.co_freevars, *_SUPPORT]
    # Its own name is a global of its module, as a rule.
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
    # Imports of native code look there, as those of Python do in what `exec` runs.
    fn.__globals__.setdefault("__builtins__", builtins)
    made = types.FunctionType(found, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    made.__kwdefaults__ = fn.__kwdefaults__
    if kernel._is_replaced:
        _take_defaults(made, kernel.signature)
    made.__qualname__ = fn.__qualname__
    made.__module__ = fn.__module__
    return made


def _own_names(definition: ast.FunctionDef) -> set[str]:
    """The parameters of a function, and the names that it assigns to."""
    nodes = list(ast.walk(definition))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return assigned | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _constants(fn: Any) -> set[str]:
    """The names around a function that hold compile-time values."""
    from tilewright import language as tl

    around = {name: fn.__globals__.get(name) for name in fn.__code__.co_names}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            around[name] = cell.cell_contents
    return {name for name, value in around.items() if isinstance(value, tl.constexpr)}


@contextlib.contextmanager
def _deeper(depth: int) -> Iterator[None]:
    """Lets Python compile a tree of this depth, such as a chain of operators: it parses more than it compiles."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, min(4 * depth, _MAX_RECURSION)))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_MAX_RECURSION = 20_000
"""How deep the stack of a thread lets Python's compiler go."""


def _fill_locations(tree: ast.AST) -> None:
    """Gives nodes without a place that of the node around them, as ``ast.fix_missing_locations``, without recursion."""
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
    """Gives a function made of a text that replaces another the defaults that the kernel's parameters have."""
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
    """Moves a tree from where its text begins to where that stands in its file."""
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno += lines
            node.col_offset += columns  # type: ignore[attr-defined]
        if getattr(node, "end_lineno", None) is not None:
            node.end_lineno += lines  # type: ignore[attr-defined]
            node.end_col_offset += columns  # type: ignore[attr-defined]


class _Rewriter(ast.NodeTransformer):
    """Writes what means something else to Python another way."""

    def __init__(
        self, shadowed: set[str], own_names: set[str], names: dict[str, Any], constants: set[str]
    ) -> None:
        self.shadowed = shadowed
        self.own_names = own_names
        self.globals = names
        self.constants = constants
        self.temporaries = 0

    def rewrite(self, definition: ast.FunctionDef) -> int:
        """The body of a function; not its defaults and annotations, which have been evaluated. Inner nodes come first,
        and no recursion leads there: a chain of operators may be long. The result is how deep the tree is.
        """
        order: list[tuple[Any, Any, ast.AST, int]] = []
        work: list[tuple[Any, Any, ast.AST, int]] = [
            (definition.body, index, node, 1) for index, node in enumerate(definition.body)
        ]
        while work:
            item = work.pop()
            order.append(item)
            _, _, node, depth = item
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.AST):
                    work.append((node, field, value, depth + 1))
                elif isinstance(value, list):
                    children = (pair for pair in enumerate(value) if isinstance(pair[1], ast.AST))
                    work.extend((value, index, child, depth + 1) for index, child in children)
        lengthened: list[list[Any]] = []
        for owner, place, node, _ in reversed(order):
            made = self.visit(node)
            if isinstance(owner, list):
                owner[place] = made
                if isinstance(made, list):
                    lengthened.append(owner)
            elif made is not node:
                setattr(owner, place, made)
        for statements in lengthened:
            statements[:] = _flat(statements)
        return max(depth for *_, depth in order)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Returns the node: its children have been visited before it."""
        return node

    def _call(self, name: str, at: ast.AST, *arguments: ast.expr) -> ast.Call:
        function = ast.copy_location(ast.Name(f"__tilewright_{name}__", ast.Load()), at)
        return ast.copy_location(ast.Call(function, [*arguments], []), at)

    def _assigned(self, value: ast.expr) -> ast.expr:
        if isinstance(value, (ast.Lambda, ast.Dict, ast.Set, ast.List, ast.JoinedStr)):
            return value
        if isinstance(value, ast.Constant) and not isinstance(value.value, (int, float)):
            return value
        return self._call("assign", value, value)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(target, (ast.Name, ast.Tuple, ast.List)) for target in node.targets):
            node.value = self._assigned(node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None:
            is_known = "constexpr" in ast.unparse(node.annotation)
            node.value = (
                self._call("known", node.value, node.value) if is_known else self._assigned(node.value)
            )
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_read = isinstance(node.ctx, ast.Load)
        return self._call("known", node, node) if is_read and node.id in self.constants else node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        load = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        store = ast.copy_location(ast.Name(node.target.id, ast.Store()), node)
        again = ast.copy_location(ast.Assign([store], self._call("assign", node, load)), node)
        return [node, again]

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None:
            node.value = self._assigned(node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        call = node.iter
        is_call = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords
        if is_call and call.func.id == "range" and "range" not in self.shadowed:  # type: ignore[attr-defined]
            call.func.id = "__tilewright_range__"  # type: ignore[attr-defined]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name in (*_OVERLOADED, "isinstance") and name not in self.shadowed:
            node.func.id = f"__tilewright_{name}__"  # type: ignore[attr-defined]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        owner = node.value
        if isinstance(owner, ast.Call) and getattr(owner.func, "id", "") == "__tilewright_known__":
            owner = owner.args[0]
        if node.attr == "value" and isinstance(node.ctx, ast.Load) and isinstance(owner, ast.Name):
            return self._call("value", node, owner)
        if (
            node.attr in _tensor_attributes()
            and isinstance(node.ctx, ast.Load)
            and not self._is_module(node.value)
        ):
            name = ast.copy_location(ast.Constant(node.attr), node)
            return self._call("attribute", node, node.value, name)
        return node

    def _is_module(self, node: ast.expr) -> bool:
        """Returns whether an expression is a module's global name, as far as can be seen."""
        is_global = isinstance(node, ast.Name) and node.id not in self.own_names
        return is_global and isinstance(self.globals.get(node.id), types.ModuleType)  # type: ignore[attr-defined]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        # `a and b and c` is `(stops(t := a) or stops(t := boolean(t, b)) or (t := boolean(t, c)), t)[1]`: as flat.
        text = ast.copy_location(ast.Constant("and" if isinstance(node.op, ast.And) else "or"), node)
        self.temporaries += 1
        name = f"__tilewright_{self.temporaries}"
        left = ast.copy_location(ast.Name(name, ast.Load()), node)
        steps: list[ast.expr] = []
        for number, value in enumerate(node.values):
            result = self._call("boolean", node, text, left, value) if number else value
            kept = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), result), node)
            is_last = number + 1 == len(node.values)
            steps.append(kept if is_last else self._call("stops", node, text, kept))
        pair = ast.Tuple([ast.BoolOp(ast.Or(), steps), left], ast.Load())
        return ast.copy_location(ast.Subscript(pair, ast.Constant(1), ast.Load()), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1:
            # `a < b < c` is `a < (t := b) and t < c`.
            parts: list[ast.expr] = []
            left = node.left
            for number, (operator, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
                following = right
                if number + 1 < len(node.ops):
                    self.temporaries += 1
                    name = f"__tilewright_{self.temporaries}"
                    following = ast.copy_location(ast.Name(name, ast.Load()), right)
                    right = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), right), right)
                pair = ast.copy_location(ast.Compare(left, [operator], [right]), node)
                parts.append(self.visit_Compare(pair))
                left = following
            return self.visit_BoolOp(ast.copy_location(ast.BoolOp(ast.And(), parts), node))
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        if any(isinstance(value, ast.Constant) for value in operands) or isinstance(
            node.ops[0], (ast.Is, ast.IsNot)
        ):
            return node
        node.left, node.comparators[0] = (self._call("comparable", value, value) for value in operands)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return self._call("not", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.generic_visit(node)
        # `if __debug__ and not holds(test): raise failed(message)`.
        fails = ast.UnaryOp(ast.Not(), self._call("holds", node.test, node.test))
        condition = ast.BoolOp(ast.And(), [ast.Name("__debug__", ast.Load()), fails])
        message = [] if node.msg is None else [node.msg]
        raised = ast.copy_location(ast.Raise(self._call("failed", node, *message)), node)
        return ast.copy_location(ast.If(ast.copy_location(condition, node.test), [raised], []), node)


def _flat(statements: list[Any]) -> list[ast.stmt]:
    flat: list[ast.stmt] = []
    for statement in statements:
        flat.extend(statement if isinstance(statement, list) else [statement])
    return flat


# -- Where the body stands. --


def sites(launched: CodeType | None = None) -> list[tuple[Any, ...]]:
    """The place of the operation that Python runs now, and of the calls that led there, up to the kernel: each is the
    name and text of a source, its first line and removed columns, and where the place begins and ends.
    """
    found: list[tuple[Any, ...]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code is _around_code():
            # Between the operation and us is what the program has put around it.
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
    """The lines and columns of what a frame runs. Python 3.10 knows the line alone."""
    code = frame.f_code
    if hasattr(code, "co_positions"):
        positions: Iterator[Any] = code.co_positions()
        for number, (line, end_line, start, end) in enumerate(positions):
            if number == frame.f_lasti // 2 and line is not None:
                return line, line if end_line is None else end_line, start, end
    return frame.f_lineno, frame.f_lineno, None, None


# -- Tensors of a GPU. --


class on_host:
    """Arguments whose tensors lie in main memory: those of a GPU as copies, which are written back afterwards."""

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
        """Copies what the kernel has written."""
        for original, copied in self._storages.values():
            original.copy_(copied)
