"""The types of the language as Python objects: dtypes, pointers, blocks."""

from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, ClassVar

__all__ = [
    "base_type",
    "bfloat16",
    "block_type",
    "dtype",
    "float8e4b8",
    "float8e4b15",
    "float8e4nv",
    "float8e5",
    "float8e5b16",
    "float16",
    "float32",
    "float64",
    "int1",
    "int8",
    "int16",
    "int32",
    "int64",
    "pi32_t",
    "pointer_type",
    "str_to_ty",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "void",
]


class base_type:
    """The base of every type of the language."""

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        raise NotImplementedError(f"{type(self).__name__} has no mangled name")


class dtype(base_type):
    """The type of a scalar: ``tl.float32``, ``tl.int1`` and so on."""

    SINT_TYPES: ClassVar[list[str]] = ["int8", "int16", "int32", "int64"]
    UINT_TYPES: ClassVar[list[str]] = ["int1", "uint8", "uint16", "uint32", "uint64"]
    FP_TYPES: ClassVar[list[str]] = [
        "fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64",
    ]  # fmt: skip
    STANDARD_FP_TYPES: ClassVar[list[str]] = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES: ClassVar[list[str]] = ["void"]

    class SIGNEDNESS(enum.IntEnum):
        """The signedness of an integer type."""

        SIGNED = 0
        UNSIGNED = 1

    class KIND(enum.IntEnum):
        """The kind of a type's values."""

        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    # Bits, bits of the mantissa, bias of the exponent.
    _FLOATS: ClassVar[dict[str, tuple[int, int, int]]] = {
        "fp8e4b15": (8, 3, 15),
        "fp8e4nv": (8, 3, 7),
        "fp8e4b8": (8, 3, 8),
        "fp8e5": (8, 2, 15),
        "fp8e5b16": (8, 2, 16),
        "fp16": (16, 10, 15),
        "bf16": (16, 7, 127),
        "fp32": (32, 23, 127),
        "fp64": (64, 52, 1023),
    }

    # The names in triton.language of types whose own names differ.
    _LONG_NAMES: ClassVar[dict[str, str]] = {
        "fp16": "float16",
        "bf16": "bfloat16",
        "fp32": "float32",
        "fp64": "float64",
    }

    def __init__(self, name: Any) -> None:
        name = getattr(name, "value", name)
        self.name: str = name
        self.int_signedness: dtype.SIGNEDNESS | None = None
        if name in dtype.SINT_TYPES or name in dtype.UINT_TYPES:
            signed = name in dtype.SINT_TYPES
            self.int_signedness = dtype.SIGNEDNESS.SIGNED if signed else dtype.SIGNEDNESS.UNSIGNED
            self.int_bitwidth: int = int(str(name).partition("int")[2])
            self.primitive_bitwidth: int = self.int_bitwidth
        elif name in dtype._FLOATS:
            self.primitive_bitwidth, self.fp_mantissa_width, self.exponent_bias = dtype._FLOATS[name]
        elif name == "void":
            self.primitive_bitwidth = 0
        else:
            raise ValueError(f"unknown dtype {name!r}; known are {', '.join(dtype._known())}")
        self.itemsize: int = self.primitive_bitwidth // 8

    @staticmethod
    def _known() -> list[str]:
        return dtype.SINT_TYPES + dtype.UINT_TYPES + dtype.FP_TYPES + dtype.OTHER_TYPES

    @staticmethod
    def is_dtype(type_str: str) -> bool:
        """Returns whether there is a dtype of this name."""
        return type_str in dtype._known()

    def is_fp8(self) -> bool:
        """Returns whether this is any of the 8-bit floats."""
        return self.name.startswith("fp8")

    def is_fp8e4nv(self) -> bool:
        """Returns whether this is ``float8e4nv``."""
        return self.name == "fp8e4nv"

    def is_fp8e4b8(self) -> bool:
        """Returns whether this is ``float8e4b8``."""
        return self.name == "fp8e4b8"

    def is_fp8e4b15(self) -> bool:
        """Returns whether this is ``float8e4b15``."""
        return self.name == "fp8e4b15"

    def is_fp8e5(self) -> bool:
        """Returns whether this is ``float8e5``."""
        return self.name == "fp8e5"

    def is_fp8e5b16(self) -> bool:
        """Returns whether this is ``float8e5b16``."""
        return self.name == "fp8e5b16"

    def is_fp16(self) -> bool:
        """Returns whether this is ``float16``."""
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        """Returns whether this is ``bfloat16``."""
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        """Returns whether this is ``float32``."""
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        """Returns whether this is ``float64``."""
        return self.name == "fp64"

    def is_int1(self) -> bool:
        """Returns whether this is ``int1``."""
        return self.name == "int1"

    def is_int8(self) -> bool:
        """Returns whether this is ``int8``."""
        return self.name == "int8"

    def is_int16(self) -> bool:
        """Returns whether this is ``int16``."""
        return self.name == "int16"

    def is_int32(self) -> bool:
        """Returns whether this is ``int32``."""
        return self.name == "int32"

    def is_int64(self) -> bool:
        """Returns whether this is ``int64``."""
        return self.name == "int64"

    def is_uint8(self) -> bool:
        """Returns whether this is ``uint8``."""
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        """Returns whether this is ``uint16``."""
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        """Returns whether this is ``uint32``."""
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        """Returns whether this is ``uint64``."""
        return self.name == "uint64"

    def is_floating(self) -> bool:
        """Returns whether values are floats."""
        return self.name in dtype.FP_TYPES

    def is_standard_floating(self) -> bool:
        """Returns whether values are floats of 16 bits or more."""
        return self.name in dtype.STANDARD_FP_TYPES

    def is_int_signed(self) -> bool:
        """Returns whether values are integers with a sign."""
        return self.name in dtype.SINT_TYPES

    def is_int_unsigned(self) -> bool:
        """Returns whether values are integers without a sign."""
        return self.name in dtype.UINT_TYPES

    def is_int(self) -> bool:
        """Returns whether values are integers, with ``int1`` among them."""
        return self.int_signedness is not None

    def is_bool(self) -> bool:
        """Returns whether values are truth values."""
        return self.is_int1()

    def kind(self) -> dtype.KIND:
        """The kind of the values: truth values, integers or floats."""
        if self.is_int1():
            return dtype.KIND.BOOLEAN
        if self.is_int():
            return dtype.KIND.INTEGRAL
        if self.is_floating():
            return dtype.KIND.FLOATING
        raise ValueError(f"{self.name} has no kind")

    def get_int_max_value(self) -> int:
        """The largest value of an integer type."""
        if self.is_int_signed():
            return (1 << (self.int_bitwidth - 1)) - 1
        if self.is_int_unsigned():
            return (1 << self.int_bitwidth) - 1
        raise ValueError(f"{self.name} is not an integer type")

    def get_int_min_value(self) -> int:
        """The smallest value of an integer type."""
        if self.is_int_signed():
            return -(1 << (self.int_bitwidth - 1))
        if self.is_int_unsigned():
            return 0
        raise ValueError(f"{self.name} is not an integer type")

    def is_void(self) -> bool:
        """Returns whether there are no values."""
        return self.name == "void"

    def is_block(self) -> bool:
        """Returns whether this is a block."""
        return False

    def is_ptr(self) -> bool:
        """Returns whether this is a pointer."""
        return False

    def is_const(self) -> bool:
        """Returns whether this is a pointer to constant data."""
        return False

    def __eq__(self, other: object) -> bool:
        other = getattr(other, "value", other)
        return type(other) is dtype and other.name == self.name

    def __hash__(self) -> int:
        return hash((self.name,))

    @property
    def scalar(self) -> dtype:
        """The type of an element."""
        return self

    def codegen_name(self) -> str:
        """The name in ``triton.language``."""
        short = self.name
        if short in dtype._LONG_NAMES:
            return dtype._LONG_NAMES[short]
        return short.replace("fp8", "float8", 1) if short.startswith("fp8") else short

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"triton.language.{self.codegen_name()}"

    @property
    def cache_key_part(self) -> str:
        """The part of a cache key that encodes this type."""
        return self.name

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        if self.is_int() and not self.is_int1():
            return f"{'i' if self.is_int_signed() else 'u'}{self.int_bitwidth}"
        return "i1" if self.is_int1() else self.name

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """The type of the same shape with other elements."""
        return element_ty


class pointer_type(dtype):
    """A pointer to values of a type."""

    def __init__(self, element_ty: dtype, address_space: Any = "global", const: bool = False) -> None:
        element_ty = getattr(element_ty, "value", element_ty)
        if not isinstance(element_ty, dtype):
            raise TypeError(f"a pointer points to a dtype, not to a {type(element_ty).__name__}")
        self.element_ty = element_ty
        self.address_space = address_space
        self.const = const
        self.name = f"pointer<{element_ty}>" if not const else f"const_pointer<{element_ty}>"
        self.int_signedness = None
        self.primitive_bitwidth = 64
        self.itemsize = 8

    def is_ptr(self) -> bool:
        """Returns whether this is a pointer."""
        return True

    def is_const(self) -> bool:
        """Returns whether this is a pointer to constant data."""
        return self.const

    def __eq__(self, other: object) -> bool:
        other = getattr(other, "value", other)
        return isinstance(other, pointer_type) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[dtype, Any, bool]:
        return (self.element_ty, self.address_space, self.const)

    def codegen_name(self) -> str:
        """The name, as it is printed."""
        return self.name

    def __repr__(self) -> str:
        return self.name

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        return f"P{self.element_ty.mangle()}"


class block_type(dtype):
    """A block of values of a type."""

    def __init__(self, element_ty: dtype, shape: Sequence[Any]) -> None:
        self.element_ty = getattr(element_ty, "value", element_ty)
        self.shape = tuple(getattr(extent, "value", extent) for extent in getattr(shape, "value", shape))
        if not self.shape:
            raise TypeError("a block has at least one axis; a scalar has the dtype itself")
        self.numel = 1
        for extent in self.shape:
            self.numel *= extent
        self.name = f"<{list(self.shape)}, {self.element_ty}>"
        self.int_signedness = self.element_ty.int_signedness
        self.primitive_bitwidth = self.element_ty.primitive_bitwidth
        self.itemsize = self.element_ty.itemsize

    def is_block(self) -> bool:
        """Returns whether this is a block."""
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return self.shape

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """The type of the same shape with other elements."""
        return block_type(element_ty, self.shape)

    @property
    def scalar(self) -> dtype:
        """The type of an element."""
        return self.element_ty

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return int(self.numel * self.element_ty.primitive_bitwidth // 8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and (self.element_ty, self.shape) == (
            other.element_ty,
            other.shape,
        )

    def __hash__(self) -> int:
        return hash((self.element_ty, self.shape))

    def codegen_name(self) -> str:
        """The name, as it is printed."""
        return self.name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def mangle(self) -> str:
        """The part of a mangled name that encodes this type."""
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self.shape))}S"


void = dtype("void")
int1 = dtype("int1")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float8e5 = dtype("fp8e5")
float8e5b16 = dtype("fp8e5b16")
float8e4nv = dtype("fp8e4nv")
float8e4b8 = dtype("fp8e4b8")
float8e4b15 = dtype("fp8e4b15")
float16 = dtype("fp16")
bfloat16 = dtype("bf16")
float32 = dtype("fp32")
float64 = dtype("fp64")
pi32_t = pointer_type(int32)

_SHORT_NAMES: dict[str, dtype] = {
    "i1": int1,
    "i8": int8,
    "i16": int16,
    "i32": int32,
    "i64": int64,
    "u1": int1,
    "u8": uint8,
    "u16": uint16,
    "u32": uint32,
    "u64": uint64,
    "fp8e5": float8e5,
    "fp8e5b16": float8e5b16,
    "fp8e4nv": float8e4nv,
    "fp8e4b8": float8e4b8,
    "fp8e4b15": float8e4b15,
    "fp16": float16,
    "bf16": bfloat16,
    "fp32": float32,
    "fp64": float64,
}


def str_to_ty(name: str, _constexpr: Any = None) -> dtype:
    """The type of a signature: ``fp32``, ``*fp16``, ``*ki8`` (a pointer to constant data)."""
    if name.startswith("*"):
        const = name.startswith("*k")
        return pointer_type(str_to_ty(name[2 if const else 1 :]), const=const)
    if name in _SHORT_NAMES:
        return _SHORT_NAMES[name]
    try:
        return dtype(name)
    except ValueError:
        raise ValueError(f"unknown type {name!r}; known are {', '.join(_SHORT_NAMES)}") from None
