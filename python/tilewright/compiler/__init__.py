"""``triton.compiler``: compiling, compiled kernels, and the errors of compiling."""

from tilewright.compiler._older import AttrsDescriptor, instance_descriptor
from tilewright.compiler.compiler import (
    ASTSource,
    CompiledKernel,
    IRSource,
    LazyDict,
    compile,
    get_cache_key,
    make_backend,
    max_shared_mem,
)
from tilewright.compiler.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    UnsupportedLanguageConstruct,
)
from tilewright.errors import OutOfResources

__all__ = [
    "ASTSource",
    "AttrsDescriptor",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "CompiledKernel",
    "IRSource",
    "LazyDict",
    "OutOfResources",
    "UnsupportedLanguageConstruct",
    "compile",
    "get_cache_key",
    "instance_descriptor",
    "make_backend",
    "max_shared_mem",
]
