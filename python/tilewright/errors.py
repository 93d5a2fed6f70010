"""The exceptions of tilewright: those that Triton users catch, and one class for each kind of diagnostic.

``str(error)`` is the rendered diagnostic: the source with carets, the found and expected values, and a hint. ``code``
is its code (``TW0004``); ``python -m tilewright explain TW0004`` explains it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from typing_extensions import Self


class Diagnostic(str):
    """One finding: the printed text, and its parts as attributes."""

    code: str
    """The code, such as ``TW0004``."""

    message: str
    """The first line of the text."""

    file: str | None
    """The file that it points into, if any; the same holds for the next three."""

    line: int | None
    column: int | None
    """The first underlined column, from 1, in characters."""

    end_column: int | None
    """The column after the last underlined one; None if that is on another line."""

    label: str
    """The text beside the underlining."""

    labels: tuple[tuple[str, int, int, str], ...]
    """Other positions that explain the finding: file, line, column, text."""

    notes: tuple[str, ...]
    hint: str | None

    def __new__(cls, text: str, **_attributes: Any) -> Self:
        """Makes the string from the text only; ``__init__`` keeps the attributes."""
        return super().__new__(cls, text)

    def __init__(self, _text: str, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class TritonError(Exception):
    """The base of every error that the language, the compiler or a launch raises."""

    code: str | None = None
    """The code of the diagnostic, such as ``TW0004``; None if there is none."""

    diagnostics: tuple[Diagnostic, ...] = ()
    """Every finding; a compilation may have several."""


class CompilationError(TritonError):
    """A kernel does not compile."""


class UnknownAttributeError(CompilationError, AttributeError):
    """A kernel asks a value for an attribute that it does not have."""


class CompileTimeAssertionFailure(CompilationError):
    """A ``tl.static_assert`` does not hold."""


class UnsupportedLanguageConstruct(CompilationError):
    """A kernel uses Python that the language does not have."""


class LaunchError(TritonError):
    """A launch is not possible with these arguments, options or grid."""


class LaunchTypeError(LaunchError, TypeError):
    """An argument is missing, superfluous or of a kind that kernels do not take."""


class LaunchValueError(LaunchError, ValueError):
    """A grid, an option or the device of a tensor is not valid."""


class TensorDescriptorError(TritonError, ValueError, AssertionError):
    """The parts of a ``TensorDescriptor`` do not fit each other. (Triton asserts its requirements of them.)"""


class LaunchKeyError(LaunchError, KeyError):
    """An option or a kernel has an unknown name."""

    # `KeyError.__str__` returns the repr of the argument, which would escape the line breaks of a
    # diagnostic.
    __str__ = Exception.__str__


class LaunchStateError(LaunchError, RuntimeError):
    """A kernel or a function of the language was called outside of its context."""


class LaunchWarning(UserWarning):
    """A launch is legal, but seldom intended: its grid is empty, or is not a tuple."""


class ExecutionError(TritonError, RuntimeError):
    """A running kernel did something illegal."""


class OutOfBoundsError(ExecutionError, IndexError):
    """A running kernel accessed memory that does not belong to its arguments."""


class DeviceAssertionError(ExecutionError, AssertionError):
    """A ``tl.device_assert`` does not hold."""


class OutOfResources(TritonError):
    """A kernel needs more of a resource than the device has."""

    def __init__(self, required: int, limit: int, name: str) -> None:
        super().__init__(
            f"out of resource: {name}, Required: {required}, Hardware limit: {limit}. "
            "Reducing block sizes or `num_stages` may help."
        )
        self.required = required
        self.limit = limit
        self.name = name

    def __reduce__(self) -> tuple[type[OutOfResources], tuple[int, int, str]]:
        return (type(self), (self.required, self.limit, self.name))


class InterpreterError(TritonError):
    """A kernel failed in interpret mode."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message or "")
        self.error_message = error_message


class AutotunerError(TritonError):
    """Autotuning failed."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message or "")
        self.error_message = error_message


class PTXASError(TritonError):
    """The assembler of the driver refused a kernel."""

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(error_message or "")
        self.error_message = error_message


class NotAvailableError(TritonError, NotImplementedError):
    """A part of Triton that tilewright does not have; the text names the replacement."""


class SanitizerError(TritonError):
    """The error of ``tilewright.sanitizer.sanitize()`` after findings; ``reports`` has them all."""

    reports: tuple[Any, ...]
    """Each a ``tilewright.sanitizer.Report``."""

    def __init__(self, found: Sequence[Any], dropped: int = 0) -> None:
        more = f"\n\nand {dropped} more" if dropped else ""
        super().__init__("\n\n".join(map(str, found)) + more)
        self.reports = tuple(found)
        self.code = found[0].code if found else None


def hide_own_frames(error: BaseException) -> None:
    """Removes the frames of tilewright from the traceback of an error that is about the program."""
    import os
    from types import TracebackType

    # `tilewright run` hides the frames to which the error is raised later, too.
    error.__dict__["_is_about_program"] = True
    folder = os.path.dirname(__file__) + os.sep
    kept: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(folder):
            kept.append(trace)
        trace = trace.tb_next
    whole: TracebackType | None = None
    for part in reversed(kept):
        whole = TracebackType(whole, part.tb_frame, part.tb_lasti, part.tb_lineno)
    error.__traceback__ = whole


_BY_KIND: dict[str, type[TritonError]] = {
    "Compilation": CompilationError,
    "Attribute": UnknownAttributeError,
    "StaticAssertion": CompileTimeAssertionFailure,
    "Unsupported": UnsupportedLanguageConstruct,
    "LaunchType": LaunchTypeError,
    "LaunchValue": LaunchValueError,
    "LaunchKey": LaunchKeyError,
    "LaunchState": LaunchStateError,
    "OutOfBounds": OutOfBoundsError,
    "Execution": ExecutionError,
    "DeviceAssertion": DeviceAssertionError,
    "NotAvailable": NotAvailableError,
}


def from_diagnostics(kind: str, diagnostics: tuple[Diagnostic, ...]) -> TritonError:
    """The exception for findings, the first of this kind; the native module calls it."""
    text = "\n\n".join(diagnostics)
    if kind == "OutOfResources":
        import re

        numbers = re.findall(r"\d+", diagnostics[0].notes[0])
        error: TritonError = OutOfResources(int(numbers[0]), int(numbers[-1]), "shared memory")
        error.args = (text,)
    else:
        error = _BY_KIND[kind](text)
    error.code = diagnostics[0].code
    error.diagnostics = diagnostics
    return error
