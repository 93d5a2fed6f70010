"""``triton.compiler.code_generator``: names that programs import. The compiler itself is not in Python."""

from __future__ import annotations

from typing import Any

from tilewright._replaced_names import replaced_names
from tilewright._utils import apply_with_path, is_namedtuple, set_iterable_path
from tilewright.errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from tilewright.language._constexpr import constexpr
from tilewright.language._types import str_to_ty
from tilewright.language.core import base_type, base_value, tensor
from tilewright.runtime.jit import (
    BoundConstexprFunction,
    ConstexprFunction,
    JITCallable,
    JITFunction,
    get_full_name,
)

__all__ = [
    "BoundConstexprFunction",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "ConstexprFunction",
    "JITCallable",
    "JITFunction",
    "UnsupportedLanguageConstruct",
    "apply_with_path",
    "base_type",
    "base_value",
    "check_identifier_legality",
    "constexpr",
    "get_full_name",
    "is_namedtuple",
    "mangle_fn",
    "set_iterable_path",
    "str_to_ty",
    "tensor",
]

__getattr__ = replaced_names(
    "tilewright.compiler.code_generator",
    "ASTFunction BoundJITMethod CodeGenerator ContainsReturnChecker ast_to_ttir enter_sub_region "
    "flatten_values_to_ir unflatten_ir_values",
    instead="triton.compile(ASTSource(fn, signature)) and kernel.warmup(...) compile, and their asm has each stage",
)


def check_identifier_legality(name: str, type: str) -> str:
    """The name, if it is one that a function or an argument may have."""
    import re

    if not re.match(r"^[a-zA-Z_][a-zA-Z0-9_]*$", name):
        raise CompilationError(f"invalid {type} identifier: {name}", name)
    return name


def mangle_fn(name: str, arg_tys: Any, caller_context: Any) -> str:
    """The name of a function for the types of its arguments."""
    types = "_".join(ty.mangle() for ty in arg_tys).replace("'", "_sq_").replace("[", "_").replace("]", "_")
    context = "" if caller_context is None else caller_context.mangle()
    return f"{name}__{types}{context}"
