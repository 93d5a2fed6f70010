"""The description of a compiled variant, which its header contains for ``triton.tools.link``, and parts of C texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import LaunchValueError, TritonError
from tilewright.runtime._tuning_files import coded

MARK = "// tilewright-link:"
"""The start of the line of a header that has the description as JSON."""

_FORMAT = 1
"""The version of the description."""

NOT_LOADED, NOT_LAUNCHED, INVALID = 200, 719, 1
"""CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_LAUNCH_FAILED and CUDA_ERROR_INVALID_VALUE of ``CUresult``."""

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
const consteval constexpr constinit const_cast continue decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
struct switch template this thread_local throw true try typedef typeid typename union unsigned using
virtual void volatile wchar_t while xor xor_eq
"""

KEYWORDS = frozenset(_KEYWORDS.split())
"""The keywords of C and C++."""


class LinkerError(LaunchValueError):
    """Headers that cannot be linked."""

    @classmethod
    def of(cls, message: str, hint: str, notes: Sequence[str] = ()) -> LinkerError:
        """Makes the error with the code of an invalid value."""
        about = coded("TW0108", message, hint, notes)
        error = cls(str(about))
        error.code, error.diagnostics = about.code, about.diagnostics
        return error


@dataclass
class KernelLinkerMeta:
    """A compiled variant of a kernel. The lists have an item for each argument of the kernel."""

    orig_kernel_name: str
    """The name of the kernel in C."""

    arg_names: Sequence[str]
    arg_ctypes: Sequence[str]

    sizes: Sequence[int | None]
    """16 for a multiple of 16, 1 for the value 1, which is no argument of the variant, or None."""

    sig_hash: str
    triton_suffix: str
    """The parameters with their hints, as in ``0d1d2d34``."""

    suffix: str
    """The algorithm: its compile-time values and options."""

    num_specs: int
    """The number of hints."""

    @property
    def function(self) -> str:
        """The name of the function in C."""
        return f"{self.orig_kernel_name}_{self.sig_hash}_{self.triton_suffix}"

    @property
    def passed(self) -> dict[str, str]:
        """The arguments of the variant with their types in C."""
        named = zip(self.arg_names, self.arg_ctypes, self.sizes, strict=True)
        return {name: ctype for name, ctype, size in named if size != 1}

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of the kernel with their types in C."""
        return dict(zip(self.arg_names, self.arg_ctypes, strict=True))

    def metadata(self) -> str:
        """The line of the header."""
        arguments = [list(one) for one in zip(self.arg_names, self.arg_ctypes, self.sizes, strict=True)]
        content = {
            "format": _FORMAT,
            "kernel": self.orig_kernel_name,
            "hash": self.sig_hash,
            "suffix": self.triton_suffix,
            "algorithm": self.suffix,
            "arguments": arguments,
        }
        return f"{MARK} {json.dumps(content)}"

    @classmethod
    def parse(cls, line: str) -> KernelLinkerMeta:
        """Reads the line of a header."""
        try:
            content = json.loads(line.strip().removeprefix(MARK))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']}, expected {_FORMAT}")
            names, ctypes, sizes = (
                zip(*content["arguments"], strict=True) if content["arguments"] else ((),) * 3
            )
            texts = [content[key] for key in ("kernel", "hash", "suffix", "algorithm")]
            if not all(re.fullmatch(r"\w+", text) for text in (*texts, *names, *ctypes)):
                raise ValueError("a name is no identifier of C")
            if not set(sizes) <= {None, 1, 16}:
                raise ValueError("a hint is neither 1 nor 16")
        except (ValueError, KeyError, TypeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise LinkerError.of(
                f"the description of a header cannot be read: {reason}",
                "write the header anew with `python -m triton.tools.compile`",
            ) from None
        kernel, digest, suffix, algorithm = texts
        count = sum(size is not None for size in sizes)
        return cls(kernel, names, ctypes, sizes, digest, suffix, algorithm, count)


@dataclass
class Signature:
    """The arguments of a function in C, with names for the stream, the grid and the algorithm."""

    arguments: dict[str, str]

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self._free("stream")

    @property
    def grid(self) -> list[str]:
        """The names of the extents of the grid."""
        return [self._free(f"grid_{axis}") for axis in "xyz"]

    @property
    def algorithm(self) -> str:
        """The name of the algorithm's index."""
        return self._free("algo_id")

    def parameters(self, *, with_grid: bool = False, with_algorithm: bool = False) -> str:
        """The parameters of the function."""
        grid = [f"uint32_t {name}" for name in self.grid] if with_grid else []
        algorithm = [f"int {self.algorithm}"] if with_algorithm else []
        named = [f"{ctype} {name}" for name, ctype in self.arguments.items()]
        return ", ".join([f"CUstream {self.stream}", *grid, *named, *algorithm])

    def call(self, names: Sequence[str], grid: Sequence[str] = ()) -> str:
        """The arguments of a call within the function."""
        return ", ".join([self.stream, *grid, *names])

    def _free(self, name: str) -> str:
        while name in self.arguments:
            name += "_"
        return name


def check_name(name: str, what: str, hint: str) -> None:
    """Refuses a name that C or C++ does not take."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in KEYWORDS:
        raise refusal("TW0105", f"{what} '{name}' is no name in C and C++", hint)


def refusal(code: str, message: str, hint: str, notes: Sequence[str] = ()) -> TritonError:
    """Returns an error about the command."""
    return coded(code, message, hint, notes)


def in_comment(text: str) -> str:
    """Returns a text that does not end a comment of C."""
    return text.replace("*/", "* /").replace("\n", " ")
