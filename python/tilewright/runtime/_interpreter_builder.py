"""Provides the replaceable operations of interpreted kernels, such as ``create_masked_load``.

Checkers and tracers assign their own functions to ``triton.runtime.interpreter.interpreter_builder`` and call the
originals from them. The native module evaluates operations without these functions. If a program has replaced one of
them, its launches call ``around``, which calls the program's function with handles.
"""

from __future__ import annotations

import math
import operator
import threading

from tilewright import _native
from tilewright.errors import LaunchTypeError, LaunchValueError
from tilewright.runtime._tensor_text import _NUMPY, TensorHandle, array, handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OPERATORS: dict[str, tuple[str, Any]] = {
    "+": ("add", operator.add),
    "-": ("subtract", operator.sub),
    "*": ("multiply", operator.mul),
    "/": ("divide", operator.truediv),
    "//": ("floor_divide", operator.floordiv),
    "%": ("fmod", operator.mod),
    "&": ("bitwise_and", operator.and_),
    "|": ("bitwise_or", operator.or_),
    "^": ("bitwise_xor", operator.xor),
    "<<": ("left_shift", operator.lshift),
    ">>": ("right_shift", operator.rshift),
    "<": ("less", operator.lt),
    "<=": ("less_equal", operator.le),
    ">": ("greater", operator.gt),
    ">=": ("greater_equal", operator.ge),
    "==": ("equal", operator.eq),
    "!=": ("not_equal", operator.ne),
}
"""For each operator: the numpy function that represents it to programs, and Python's function."""

_NAMES = {code: name for name, code in _NUMPY.items() if name[0] in "iu"}
_NAMES |= {"b1": "int1", "f2": "float16", "f4": "float32", "f8": "float64"}
"""The element types by their numpy codes."""

_LOAD = ["pointer", "mask", "other", "boundary_check", "padding_option", "cache_modifier", "eviction_policy"]
_LOAD += ["volatile"]
_STORE = ["pointer", "value", "mask", "boundary_check", "cache_modifier", "eviction_policy"]
_DOT = ["input", "other", "acc", "input_precision", "allow_tf32", "max_num_imprecise_acc", "out_dtype"]


class _CurrentOperation(threading.local):
    """The current operation and its operands."""

    operation: Any = None
    tensors: tuple[Any, ...] = ()


_current = _CurrentOperation()


def tensor_of(given: Any) -> Any:
    """Returns the tensor of a handle: its original tensor, or a new one if its elements have changed."""
    import numpy

    from tilewright import language as tl

    if isinstance(given, numpy.ndarray):
        given = TensorHandle(given, getattr(tl, _NAMES[given.dtype.str[1:]]))
    if not isinstance(given, TensorHandle):
        return given
    data = numpy.asarray(given.data)
    own = given.tensor
    if own is not None:
        elements = array(own)
        is_alike = elements.shape == data.shape and elements.dtype == data.dtype
        if is_alike and elements.tobytes() == data.tobytes():
            return own
    dtype = given.get_element_ty()
    name = "pointer" if dtype.is_ptr() else dtype.name
    element = dtype if name in _NUMPY else tl.float32
    # The handle of a scalar has one element.
    is_scalar = data.shape == () or (data.shape == (1,) and (own is None or not own.shape))
    kind = element if is_scalar else tl.block_type(element, list(data.shape))
    made = _native.interpret_tensor(kind, data.astype(_NUMPY.get(name, "f4")).tobytes())
    return made if element is dtype else made.to(dtype)


def constructed(handle: Any, type: Any = None) -> Any:
    """Implements ``tl.tensor(handle, type)`` in a kernel: the elements of a handle or tensor in that type."""
    made: Any = tensor_of(handle)
    if not isinstance(made, _native.tensor):
        raise LaunchTypeError(
            f"tl.tensor takes a handle with elements, not a {handle.__class__.__name__}; make a tile with "
            "`tl.full(shape, value, dtype)`"
        )
    if type is None or type == made.type:
        return made
    elements: Any = made
    data, *_ = elements._elements()
    numel = math.prod(type.shape) if type.is_block() else 1
    if len(data) != numel * made.dtype.itemsize or type.scalar.itemsize != made.dtype.itemsize:
        raise LaunchValueError(f"tl.tensor: elements of type {made.type} are not a {type}")
    return _native.interpret_tensor(type, data)


class InterpreterBuilder:
    """The operations and queries that a program may call or replace while a kernel is interpreted."""

    @property
    def grid_idx(self) -> tuple[int, int, int] | None:
        """The index of the current program; None outside a kernel."""
        found = _native.interpreted_program()
        return None if found is None else (found[0][0], found[0][1], found[0][2])

    @property
    def grid_dim(self) -> tuple[int, int, int] | None:
        """The extents of the grid; None outside a kernel."""
        found = _native.interpreted_program()
        return None if found is None else (found[1][0], found[1][1], found[1][2])

    def set_grid_dim(self, nx: int, ny: int, nz: int) -> None:
        """Sets the extents of the grid."""
        _native.interpret_program_is(grid=(int(nx), int(ny), int(nz)))

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        """Sets the index of the current program."""
        _native.interpret_program_is(id=(int(x), int(y), int(z)))

    def create_make_range(self, start: int, stop: int) -> Any:
        """Evaluates ``tl.arange``."""
        from tilewright import language as tl

        return _evaluated((start, stop), tl.arange)

    def create_masked_load(
        self,
        ptrs: TensorHandle,
        mask: TensorHandle,
        other: TensorHandle | None,
        cache_modifier: Any = "",
        eviction_policy: Any = "",
        is_volatile: bool = False,
    ) -> Any:
        """Evaluates ``tl.load``; without a mask in the kernel, ``mask`` is all true."""
        from tilewright import language as tl

        def load(pointer: Any, mask: Any, other: Any) -> Any:
            return tl.load(
                pointer,
                mask,
                other,
                cache_modifier=cache_modifier,
                eviction_policy=eviction_policy,
                volatile=is_volatile,
            )

        return _evaluated((ptrs, mask, other), load)

    def create_masked_store(
        self,
        ptrs: TensorHandle,
        value: TensorHandle,
        mask: TensorHandle,
        cache_modifier: Any = "",
        eviction_policy: Any = "",
    ) -> None:
        """Evaluates ``tl.store``."""
        from tilewright import language as tl

        def store(pointer: Any, value: Any, mask: Any) -> Any:
            return tl.store(
                pointer, value, mask, cache_modifier=cache_modifier, eviction_policy=eviction_policy
            )

        _evaluated((ptrs, value, mask), store)

    def create_expand_dims(self, arg: TensorHandle, axis: int) -> Any:
        """Evaluates ``tl.expand_dims`` and ``x[:, None]`` for one axis."""
        from tilewright import language as tl

        return _evaluated((arg, axis), tl.expand_dims)

    def create_addptr(self, ptr: TensorHandle, offset: TensorHandle) -> Any:
        """Adds an offset to a pointer."""
        return _evaluated((ptr, offset), operator.add)

    def create_dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        d: TensorHandle,
        input_precision: Any = None,
        max_num_imprecise_acc: Any = None,
    ) -> Any:
        """Evaluates ``tl.dot``; ``d`` is the accumulator."""
        from tilewright import language as tl

        options = {} if input_precision is None else {"input_precision": input_precision}
        return _evaluated((a, b, d), lambda a, b, d: tl.dot(a, b, d, **options))

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Any) -> Any:
        """Evaluates an operator, which ``op`` names as a numpy function."""
        own = [own for name, own in _OPERATORS.values() if name == getattr(op, "__name__", "")]
        if not own:
            return TensorHandle(op(lhs.data, rhs.data), lhs.dtype)
        return _evaluated((lhs, rhs), own[0])


interpreter_builder = InterpreterBuilder()

_ORIGINAL = {name: value for name, value in vars(InterpreterBuilder).items() if not name.startswith("__")}


def is_replaced() -> bool:
    """Returns whether a program has replaced a function of the builder."""
    for name, value in vars(interpreter_builder).items():
        if getattr(value, "__func__", None) is not _ORIGINAL.get(name):
            return True
    return any(vars(InterpreterBuilder).get(name) is not value for name, value in _ORIGINAL.items())


def _evaluated(given: tuple[Any, ...], compute: Any) -> Any:
    """Returns the handle of a result; evaluates the current operation if the operands are unchanged."""
    tensors = tuple(tensor_of(value) for value in given)
    operation, own = _current.operation, _current.tensors
    is_same = operation is not None and len(tensors) == len(own)
    is_same = is_same and all(value is known for value, known in zip(tensors, own, strict=True))
    result = operation() if is_same else compute(*tensors)
    return None if result is None else handle(result)


def _call_builder(method: Any, operation: Any, tensors: tuple[Any, ...], *rest: Any) -> Any:
    """Calls the builder's function for an operation."""
    before = _current.operation, _current.tensors
    _current.operation, _current.tensors = operation, tensors
    try:
        handles = (handle(value) if isinstance(value, _native.tensor) else value for value in tensors)
        return tensor_of(method(*handles, *rest))
    finally:
        _current.operation, _current.tensors = before


def _whole(value: Any, shape: Any, dtype: Any) -> Any:
    """Returns a number or scalar as a tensor of a shape; None stays None."""
    from tilewright import language as tl

    if value is None:
        return None
    if not isinstance(value, _native.tensor):
        return tl.full(list(shape), value, dtype) if shape else tl.full([1], value, dtype).reshape([])
    value = value.to(dtype) if value.dtype != dtype else value
    return value if tuple(value.shape) == tuple(shape) else tl.broadcast_to(value, list(shape))


def _is_pointer(value: Any) -> bool:
    return isinstance(value, _native.tensor) and bool(value.dtype.is_ptr())


def around(name: str, keywords: list[str], operands: tuple[Any, ...], operation: Any) -> Any:
    """Evaluates an operation by the builder's function for it."""
    if operation.is_binary:
        return _binary(name, operands, operation)
    if operation.new_axes and operands[0].shape:
        result = operands[0]
        for axis in operation.new_axes:
            result = _call_builder(interpreter_builder.create_expand_dims, None, (result, axis))
        return result
    values = operands[1:] if operation.is_function else operands
    positional = values[: len(values) - len(keywords)]
    named = dict(zip(keywords, values[len(positional) :], strict=True))
    function = _FUNCTIONS.get(name)
    return operation() if function is None else function(operation, positional, named)


def _binary(name: str, operands: tuple[Any, ...], operation: Any) -> Any:
    import numpy

    found = _OPERATORS.get(name)
    pair = tuple(_native.interpret_assign(value) for value in operands)
    if found is None or not all(isinstance(value, _native.tensor) for value in pair):
        return operation()
    pointers = [_is_pointer(value) for value in pair]
    if not any(pointers):
        return _call_builder(interpreter_builder.binary_op, operation, pair, getattr(numpy, found[0]))
    if name != "+" or all(pointers):
        return operation()
    if pointers[1]:
        pair = (pair[1], pair[0])
    return _call_builder(interpreter_builder.create_addptr, operation, pair)


def _range(operation: Any, positional: Any, named: dict[str, Any]) -> Any:
    given = {**dict(zip(("start", "end"), positional, strict=False)), **named}
    bounds = tuple(int(given[name]) for name in ("start", "end"))
    return _call_builder(interpreter_builder.create_make_range, None, bounds)


def _expand_dims(operation: Any, positional: Any, named: dict[str, Any]) -> Any:
    given = {**dict(zip(("input", "axis"), positional, strict=False)), **named}
    axis = given["axis"]
    if isinstance(axis, (tuple, list)) or not given["input"].shape:
        return operation()
    return _call_builder(interpreter_builder.create_expand_dims, None, (given["input"], int(axis)))


def _load(operation: Any, positional: Any, named: dict[str, Any]) -> Any:
    from tilewright import language as tl

    given = {**dict(zip(_LOAD, positional, strict=False)), **named}
    pointer, mask, other = given["pointer"], given.get("mask"), given.get("other")
    if not _is_pointer(pointer):
        return operation()
    shape = getattr(mask, "shape", ()) if not pointer.shape else pointer.shape
    pointer = _whole(pointer, shape, pointer.dtype)
    mask = _whole(True if mask is None else mask, shape, tl.int1)
    other = _whole(other, shape, pointer.dtype.element_ty)
    rest = [given.get(name, default) for name, default in zip(_LOAD[5:], ("", "", False), strict=True)]
    return _call_builder(interpreter_builder.create_masked_load, None, (pointer, mask, other), *rest)


def _store(operation: Any, positional: Any, named: dict[str, Any]) -> Any:
    from tilewright import language as tl

    given = {**dict(zip(_STORE, positional, strict=False)), **named}
    pointer, value, mask = given["pointer"], given["value"], given.get("mask")
    if not _is_pointer(pointer):
        return operation()
    value = _whole(value, getattr(value, "shape", ()), pointer.dtype.element_ty)
    value = value if tuple(value.shape) == tuple(pointer.shape) else _whole(value, pointer.shape, value.dtype)
    mask = _whole(True if mask is None else mask, pointer.shape, tl.int1)
    rest = [given.get(name, "") for name in _STORE[4:]]
    return _call_builder(interpreter_builder.create_masked_store, None, (pointer, value, mask), *rest)


def _dot(operation: Any, positional: Any, named: dict[str, Any]) -> Any:
    from tilewright import language as tl

    given = {**dict(zip(_DOT, positional, strict=False)), **named}
    a, b, d = given["input"], given["other"], given.get("acc")
    if d is None:
        dtype = tl.int32 if a.dtype.is_int() else tl.float64 if a.dtype == tl.float64 else tl.float32
        d = tl.full([*a.shape[:-1], b.shape[-1]], 0, dtype)
    rest = [given.get(name) for name in ("input_precision", "max_num_imprecise_acc")]
    return _call_builder(interpreter_builder.create_dot, operation, (a, b, d), *rest)


_FUNCTIONS = {
    "arange": _range,
    "expand_dims": _expand_dims,
    "load": _load,
    "store": _store,
    "dot": _dot,
}
