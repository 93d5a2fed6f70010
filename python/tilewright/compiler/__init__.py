"""``triton.compiler``: compiled kernels and the errors of compiling."""

from tilewright._missing import missing_names
from tilewright.compiler.compiler import CompiledKernel, LazyDict, max_shared_mem
from tilewright.compiler.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    UnsupportedLanguageConstruct,
)

__all__ = [
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "LazyDict",
    "UnsupportedLanguageConstruct",
    "max_shared_mem",
]

__getattr__ = missing_names("tilewright.compiler", "ASTSource IRSource compile get_cache_key make_backend")
