"""``tilewright run``: runs a Python program as ``python`` would, with tilewright as its Triton.

``sys.argv``, ``sys.path``, ``__main__``, exit codes and tracebacks are those of ``python script.py``, ``python -m
module``, ``python -c code`` or ``python -``.
"""

from __future__ import annotations

import argparse
import builtins
import io
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from _tilewright_startup import PARTS
from tilewright._arguments import CHECKED, ProgramParser

_DESCRIPTION = """\
Run a Python program with tilewright as its Triton

The script may be a folder or an archive with a __main__.py; - is standard input."""

_CHECKS = ("bounds", "race", "init", "alignment", "overflow", "nan", "all")

LOCK_ENDINGS = (".lock", ".tar", ".json")
"""The endings of the files that ``--locked`` names."""

_OPTIONAL_VALUES = {
    "--report": (".txt", ".log", ".json"),
    "--sanitize": _CHECKS,
    "--locked": LOCK_ENDINGS,
}
"""The options whose value may be left out, with the names that their values list, or the endings of their files."""

_REPORT_DESCRIPTION = """\
Run a Python program on the simulator of a GPU, and print what its launches cost there

For each form of a kernel: instructions by class, sectors of global memory, bank conflicts, and the lines that move
memory, those that waste most first."""


def run_parser() -> ProgramParser:
    """The parser of ``tilewright run``."""
    made = ProgramParser("tilewright run", _DESCRIPTION, _OPTIONAL_VALUES, frozenset({"--device"}))
    made.add_option(
        "-i",
        action="store_true",
        help="python's own prompt after the program, with its variables; without a program, the prompt only",
    )
    made.add_option(
        "--strict",
        action="store_true",
        help="an error where a kernel reads past the end of a tensor, within the 512 bytes to which a GPU's allocator "
        "rounds: without it such a load gives 0 where 'cuda' is the CPU, and is warned of",
    )
    made.add_option(
        "--portable",
        action="store_true",
        help="warn of tiles that the official Triton refuses, such as one of 250 elements",
    )
    made.add_option(
        "--device",
        metavar="<device>",
        help="where kernels run: cpu, cuda, cuda:1, or the simulator of a GPU, such as sim:sm_90; otherwise that of "
        "TILEWRIGHT_DEVICE, else a GPU if there is one, else the CPU",
    )
    made.add_option(
        "--sanitize",
        metavar="[=<checks>]",
        help="check what kernels do, on the CPU or in the simulator: bounds, race, init, alignment, overflow, nan, or "
        "a list of some of them; exits with 1 if anything is found",
    )
    add_locked(made)
    made.add_option(
        "--report",
        metavar="[=<file>]",
        help="at the end, write what the simulator has counted to stderr, or to a file",
    )
    return made


def add_locked(parser: ProgramParser) -> None:
    """Adds the option ``--locked``."""
    parser.add_option(
        "--locked",
        metavar="[=<file>]",
        help="launch the kernels of a lock (tilewright.lock) only, and compile, tune and assemble nothing",
    )


def report_parser() -> ProgramParser:
    """The parser of ``tilewright sim report``."""
    made = ProgramParser("tilewright sim report", _REPORT_DESCRIPTION, _OPTIONAL_VALUES)
    made.add_option(
        "--device",
        metavar="<device>",
        default="sim:sm_90",
        help="the GPU: sim:sm_90 (the default), or another that `tilewright devices` lists",
    )
    made.add_option("--report", metavar="[=<file>]", default="", help="write to a file instead of stderr")
    # Options of `run` that the report accepts, but that its help does not show.
    for option in ("-i", "--strict", "--portable"):
        made.add_option(option, action="store_true", help=argparse.SUPPRESS)
    made.add_option("--sanitize", help=argparse.SUPPRESS)
    made.add_option("--locked", help=argparse.SUPPRESS)
    return made


def main(arguments: list[str], parser: ProgramParser | None = None) -> int:
    """Runs the program; its exceptions leave this function, the only tilewright frame below the program."""
    kind, program, device, is_strict, sanitize, report = _options(arguments, parser or run_parser())
    if (failure := _prepare(device, is_strict)) is not None:
        return _refuse(failure, 1)
    if sanitize is not None and (failure := _sanitize(sanitize)) is not None:
        return _refuse(failure, 2)
    if report is not None and (failure := _keep_reports(report)) is not None:
        return _refuse(failure, 2)
    try:
        execute, *values = _program(kind, program)
        del arguments, parser, device, report, sanitize, is_strict, kind, program
        execute(*values)
    except SystemExit as exit:
        if sys.flags.inspect:
            # Before the prompt, the interpreter prints this exception, too.
            _end(exit)
        if exit.code in (None, 0) and _has_findings():
            raise SystemExit(1) from None
        raise
    except BaseException as error:
        _leave_out_summary()
        _end(error)
    return int(_has_findings())


def _options(
    arguments: list[str], parser: ProgramParser
) -> tuple[str, list[str], str | None, bool, str | None, str | None]:
    """Returns how the program is given, the program with its arguments, and the options about kernels."""
    given = parser.parse(arguments)
    if not given.program and not (given.i and not given.kind):
        missing = {"-m": "no module to run", "-c": "no code to run"}
        parser.error(missing.get(given.kind, "no program to run"))
    if given.i and not sys.flags.inspect:
        _begin_again_to_inspect(parser.prog, arguments)
    if given.portable:
        from tilewright import _native

        os.environ["TILEWRIGHT_PORTABLE"] = "1"
        _native.reload_knobs()
    if given.locked is not None:
        path = set_lock(given.locked)
        if not can_read_lock(path):
            _end_before_prompt(1)
            raise SystemExit(1)
    sanitize = "all" if given.sanitize == "" else given.sanitize
    return given.kind, given.program, given.device, given.strict, sanitize, given.report


def set_lock(path: str) -> str:
    """Makes this process and those that it starts launch from a lock; returns its absolute path."""
    from tilewright import _native
    from tilewright._lock import DEFAULT

    # The program may change the working directory.
    path = os.path.abspath(path or DEFAULT)
    os.environ["TILEWRIGHT_LOCK"] = path
    _native.reload_knobs()
    return path


def can_read_lock(path: str) -> bool:
    """Returns whether a lock can be read; prints the diagnostic if not.

    A launch would fail with the same diagnostic, but the program may run for long before it launches a kernel.
    """
    from tilewright import _native
    from tilewright._output import without_output

    with without_output():
        return _native.command_line(["lock", "list", path]) == 0


def _begin_again_to_inspect(command: str, arguments: list[str]) -> NoReturn:
    """Becomes ``python -i -m tilewright run ...``: the prompt is Python's own."""
    from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

    flags: list[str] = _args_from_interpreter_flags()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *flags, "-i", "-m", *command.split(), CHECKED, *arguments])


def _refuse(failure: str, code: int) -> int:
    """Prints why no program runs; returns the exit code. With ``-i``, ends the process, so that no prompt follows."""
    print(failure, file=sys.stderr)
    _end_before_prompt(code)
    return code


def _end_before_prompt(code: int) -> None:
    """With ``-i``, ends the process, so that no prompt follows."""
    if sys.flags.inspect:
        sys.stderr.flush()
        os._exit(code)


def _prepare(device: str | None, is_strict: bool = False, parts: tuple[str, ...] = PARTS) -> str | None:
    """Makes tilewright the Triton of this program and of the processes that it starts; returns an error text."""
    from tilewright import _alias, _native, _spawn
    from tilewright.errors import TritonError

    if is_strict:
        os.environ["TILEWRIGHT_STRICT"] = "1"
    try:
        if device is not None:
            _native.set_device(device)
        _alias.begin(parts)
    except TritonError as error:
        return str(error)
    _spawn.install(device, parts)
    return None


def _sanitize(names: str) -> str | None:
    """Switches the checks of launches on; returns an error text if they cannot be."""
    from tilewright import _native, sanitizer
    from tilewright.errors import LaunchValueError

    if _native.device().startswith("cuda"):
        return "error: the sanitizer works on the CPU and in the simulator: add --device cpu or --device sim:sm_90"
    try:
        checks = sanitizer.parse_checks(names)
    except LaunchValueError as error:
        return str(error)
    if not sanitizer.is_begun():
        sanitizer.begin(names)
    else:
        sanitizer.enable(*checks.split(","))
    return None


def _leave_out_summary() -> None:
    """Suppresses the summary of the sanitizer at the end: the program did not run, or has ended with an error."""
    if (sanitizer := sys.modules.get("tilewright.sanitizer")) is not None:
        sanitizer.leave_out_empty_summary()


def _has_findings() -> bool:
    """Returns whether the sanitizer has found anything."""
    sanitizer = sys.modules.get("tilewright.sanitizer")
    return sanitizer is not None and any(sanitizer.all_reports())


def _keep_reports(path: str) -> str | None:
    """Writes the simulator's report when the program ends: to a file, or to stderr. Returns an error text."""
    import atexit

    from tilewright import _native

    # The program may change the working directory.
    path = path and os.path.abspath(path)
    try:
        if path:
            # Checks that the file can be written. Appending keeps an existing report if the program
            # is killed.
            with open(path, "a"):
                pass
    except OSError as error:
        return f"error: cannot write the report to {path}: {error.strerror}"
    _native.keep_reports()

    def write() -> None:
        text = _native.take_reports()
        if not path:
            sys.stderr.write(text)
            return
        from tilewright._files import write_file

        try:
            write_file(path, text)
        except OSError as error:
            print(f"tilewright: cannot write the report to {path}: {error.strerror}", file=sys.stderr)

    atexit.register(write)
    end_in_order()
    return None


def end_in_order() -> None:
    """Makes SIGTERM end the program like an exception, so that files that are written at its end are written."""
    import signal

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    if hasattr(os, "register_at_fork"):
        # A forked child must not write the files of its parent when it is terminated.
        os.register_at_fork(after_in_child=lambda: _stop_ending(end))


def _stop_ending(end: Any) -> None:
    import signal

    if signal.getsignal(signal.SIGTERM) is end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _program(kind: str, argv: list[str]) -> tuple[Any, ...]:
    """Returns the function to call and its arguments. Before, sets up the process as Python does for a program."""
    if not argv:
        return _prompt()
    if kind == "-m":
        sys.argv = ["-m", *argv[1:]]
        _set_path(os.getcwd())
        return _as_main(argv[0], True)
    path = argv[0]
    if kind == "-c":
        sys.argv = ["-c", *argv[1:]]
        _set_path("")
        # `inspect` reads the source of kernels from `linecache`.
        import linecache

        linecache.cache["<string>"] = (len(path), None, path.splitlines(keepends=True), "<string>")
        return exec, compile(path, "<string>", "exec", dont_inherit=True), _new_main().__dict__
    sys.argv = argv
    if os.path.isdir(path) or _is_archive(path):
        sys.path.insert(0, os.path.abspath(path) + "/" * path.endswith("/"))
        return _as_main("__main__", False)
    if path == "-":
        return _standard_input()
    _set_path(os.path.dirname(os.path.realpath(path)))
    full = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    try:
        with io.open_code(full) as file:
            source = file.read()
    except OSError as error:
        sys.stderr.write(
            f"{sys.executable}: can't open file {full!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        _leave_out_summary()
        if sys.flags.inspect:
            return (_new_main,)
        raise SystemExit(2) from None
    main_module = _new_main()
    main_module.__file__ = full
    main_module.__loader__ = SourceFileLoader("__main__", full)
    main_module.__dict__["__cached__"] = None
    return exec, _compile(source, full), main_module.__dict__


def _prompt() -> tuple[Any, ...]:
    """Returns a function that prints what Python prints before the prompt of ``python -i``. The prompt then follows."""
    from tilewright import __version__

    sys.argv = [""]
    _set_path("")
    _new_main()
    more = 'Type "help", "copyright", "credits" or "license" for more information.'
    ours = f"import triton imports tilewright {__version__}."
    return sys.stderr.write, f"Python {sys.version} on {sys.platform}\n{more}\n{ours}\n"


def _as_main(module: str, is_named: bool) -> tuple[Any, ...]:
    """Returns the code that ``python -m module`` or ``python folder`` runs."""
    import runpy

    _new_main()
    run_module_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]
    return run_module_as_main, module, is_named


def _standard_input() -> tuple[Any, ...]:
    """Reads the program from standard input; kernels in it are found by their source."""
    import linecache

    _set_path("")
    source = sys.stdin.buffer.read()
    code = _compile(source, "<stdin>")
    lines = source.decode(errors="replace").splitlines(keepends=True)
    linecache.cache["<stdin>"] = (len(source), None, lines, "<stdin>")
    main_module = _new_main()
    main_module.__dict__.update(__file__="<stdin>", __cached__=None)
    return exec, code, main_module.__dict__


def _compile(source: bytes, path: str) -> CodeType:
    """Compiles the program; an error about unreadable text is worded as Python words it for a file."""
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        before, is_null, _ = source.partition(b"\0")
        if is_null:
            lines = before.decode(errors="replace").splitlines() or [""]
            place = (path, len(lines), 0, lines[-1])
            raise SyntaxError("source code cannot contain null bytes", place) from None
        if isinstance(error, SyntaxError) and "(unicode error)" in str(error):
            _check_encoding(source, path)
        raise


def _check_encoding(source: bytes, path: str) -> None:
    """Rejects text that is not UTF-8 and declares no encoding."""
    import tokenize

    try:
        tokenize.detect_encoding(iter(source.splitlines(keepends=True)).__next__)
        source.decode()
    except UnicodeDecodeError as error:
        line, byte = source[: error.start].count(b"\n") + 1, source[error.start]
    except SyntaxError:
        # `detect_encoding` fails on a byte that is not UTF-8 in the first two lines: find it.
        start = next((at for at, byte in enumerate(source) if byte >= 0x80), 0)
        line, byte = source[:start].count(b"\n") + 1, source[start]
    else:
        return
    raise SyntaxError(
        f"Non-UTF-8 code starting with '\\x{byte:02x}' in file {path} on line {line}, but no encoding declared; "
        "see https://peps.python.org/pep-0263/ for details"
    ) from None


def _is_archive(path: str) -> bool:
    if path.endswith((".py", ".pyw")) or not os.path.isfile(path):
        return False
    import zipfile

    return zipfile.is_zipfile(path)


def _set_path(first: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0:1] = [first]


def _new_main() -> ModuleType:
    """Returns a fresh module ``__main__``."""
    module = ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    return module


def _end(error: BaseException) -> NoReturn:
    """Ends as Python would: prints the traceback, and lets the interpreter do the rest."""
    from tilewright.errors import TritonError, hide_own_frames

    seen: set[int] = set()
    errors: list[BaseException | None] = [error]
    while errors:
        one = errors.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _of_program(one.__traceback__)
        if isinstance(one, TritonError) or hasattr(one, "_is_about_program"):
            hide_own_frames(one)
        errors += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        # The interpreter would print the error again, with frames of tilewright.
        sys.excepthook = lambda *_: None
    raise error


_FOLDER = os.path.dirname(__file__)
_CUDA_SHIMS = ("__init__.py", "mode.py", "device_marks.py", "overrides.py", "autocast.py", "classes.py")
_OWN = {__file__, *(os.path.join(_FOLDER, "_cuda_on_cpu", name) for name in _CUDA_SHIMS)}


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Removes the frames that started the program, and those that replace a GPU, from a traceback."""
    kept: list[TracebackType] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename not in _OWN:
            kept.append(trace)
        elif kept and kept[-1].tb_frame.f_code.co_name == "handle_torch_function":
            # Torch's override mechanism called this frame of tilewright: drop the two frames before
            # it.
            del kept[-2:]
        trace = trace.tb_next
    whole = None
    for part in reversed(kept):
        whole = TracebackType(whole, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return whole
