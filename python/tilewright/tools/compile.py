"""``triton.tools.compile``: compiles a kernel ahead of time, into C that launches it without Python.

The C contains a packed lock, and calls tilewright's C library. ``docs/ahead-of-time.md`` describes the files.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
import sys
import tempfile
from argparse import SUPPRESS
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import _native
from tilewright._arguments import Parser
from tilewright._files import write_file
from tilewright._output import run_command
from tilewright.errors import TritonError
from tilewright.tools import _c_templates as templates
from tilewright.tools import _linking as linking
from tilewright.tools._linking import KernelLinkerMeta, Signature, refusal
from tilewright.tools._signature import Argument, parse_grid, parse_signature, split_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tilewright.backends.compiler import GPUTarget
    from tilewright.runtime.jit import JITFunction

__all__ = ["CompileArgs", "compile_kernel", "main"]

_DESCRIPTION = """\
Compile a kernel into C: a header and a source file with a function that launches the kernel

  python -m triton.tools.compile kernel.py --kernel-name add_kernel --out-path build/add \\
      --signature '*fp32:16, *fp32:16, *fp32:16, i32, 1024' --grid 'cdiv(n_elements, 1024), 1, 1'

The signature has for each parameter a type or a compile-time value. A type may have a hint: ':16' for a multiple of
16, ':1' for the value 1. The grid has three expressions of Python or C with the names of parameters. Compile the
source file with the folder of tilewright.h, and link with libtilewright_c. `python -m triton.tools.link` links
several variants of a kernel."""


@dataclass
class CompileArgs:
    """The options of the command. ``target`` is a text, a ``GPUTarget``, or a list of these."""

    path: str = ""
    kernel_name: str = ""
    signature: str = ""
    grid: str = ""
    target: str | GPUTarget | Sequence[str | GPUTarget] | None = None
    num_warps: int = 1
    num_stages: int = 3
    out_name: str | None = None
    out_path: str | Path | None = None


def compile_kernel(args: CompileArgs) -> tuple[str, list[Path]]:
    """Compiles a kernel, and writes its header and its source file.

    Returns the name of the function in C, and the paths of the files.
    """
    targets = _parse_targets(args.target)
    kernel = _load_kernel(args.path, args.kernel_name)
    items = split_items(args.signature) if args.signature.strip() else []
    arguments = parse_signature(kernel, items)
    name = args.out_name or args.kernel_name
    linking.check_name(name, "the kernel's name", "choose another one with --out-name")
    grid = parse_grid(args.grid, arguments)
    options = {"num_warps": args.num_warps, "num_stages": args.num_stages}
    packed = _compile(kernel, arguments, targets, options)
    meta = _describe(name, items, arguments, args)
    path = Path(args.out_path or name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(f"{path.name}.{meta.sig_hash}_{meta.triton_suffix}")
    files = [path.with_name(f"{path.name}.h"), path.with_name(f"{path.name}.c")]
    constants = [f"{one.name} = {one.value!r}" for one in arguments if one.is_value]
    title = (
        f"Kernel {args.kernel_name} of {Path(args.path).name} for {', '.join(_target_name(one) for one in targets)}, "
        f"with {', '.join([*constants, *(f'{key} = {value}' for key, value in options.items())])}.\n"
        "   Made by `python -m triton.tools.compile` of tilewright; needs its C library, libtilewright_c."
    )
    device = "cpu" if all(target.backend == "cpu" for target in targets) else "cuda:0"
    fields = _fields(meta, arguments, grid, files[0].name)
    fields |= {
        "title": "\n".join(map(linking.in_comment, title.split("\n"))),
        "metadata": meta.metadata(),
        "kernel": kernel.__name__,
        "device": device,
        "bytes": _array(packed),
    }
    declarations = templates.VARIANT_DECLARATIONS.substitute(
        fields, grid=linking.in_comment(args.grid.strip())
    )
    write_file(str(files[0]), templates.HEADER.substitute(fields, declarations=declarations))
    write_file(str(files[1]), templates.VARIANT_SOURCE.substitute(fields))
    return meta.function, files


def main() -> int:
    """Runs the command of this process; returns the exit code."""
    return run_command(_run, sys.argv[1:])


def _run(arguments: list[str]) -> int:
    parser = Parser("python -m triton.tools.compile", ["<kernel.py>"], _DESCRIPTION)
    parser.add_argument("path", nargs="?", help=SUPPRESS)
    needed = {
        "--kernel-name": ("-n", "<name>", "the kernel in the file"),
        "--signature": ("-s", "<signature>", "the types, hints and values of its parameters"),
        "--grid": ("-g", "<grid>", "three expressions: the programs along each axis, as 'cdiv(n, 64), 1, 1'"),
    }
    for long, (short, metavar, meaning) in needed.items():
        parser.add_option(long, short, metavar=metavar, help=meaning)
    parser.add_option(
        "--target",
        "-t",
        action="append",
        metavar="<target>",
        help="compile for cuda:90:32, which is sm_90, or for cpu; may be repeated; the default is this machine's GPU",
    )
    parser.add_option(
        "--num-warps", "-w", type=int, default=1, metavar="<number>", help="warps of a program (1)"
    )
    parser.add_option(
        "--num-stages", "-ns", type=int, default=3, metavar="<number>", help="stages of loops (3)"
    )
    parser.add_option("--out-name", "-on", metavar="<name>", help="the kernel's name in C")
    parser.add_option("--out-path", "-o", metavar="<path>", help="the files, without hash and extension")
    given = parser.parse(arguments)
    if given.path is None:
        parser.error("no file with a kernel")
    for option in needed:
        if getattr(given, option[2:].replace("-", "_")) is None:
            parser.error(f"{option} is missing")
    from tilewright import install_as_triton

    try:
        _parse_targets(given.target)
    except TritonError as error:
        print(error, file=sys.stderr)
        return 2
    install_as_triton()
    try:
        function, files = compile_kernel(CompileArgs(**vars(given)))
    except TritonError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{function}: {', '.join(map(str, files))}")
    return 0


# -- the command line --


def _parse_targets(given: str | GPUTarget | Sequence[str | GPUTarget] | None) -> list[GPUTarget]:
    """Returns the targets, without repetitions. ``sm_90`` and ``cuda:90`` are ``cuda:90:32``."""
    from tilewright.backends.compiler import GPUTarget

    if given is None:
        return [_target_of_machine()]
    targets = []
    for one in [given] if isinstance(given, (str, GPUTarget)) else given:
        target = _parse_target(one) if isinstance(one, str) else one
        if _target_name(target) not in _native.target_names():
            known = [name for name in _native.target_names() if not name.endswith("a")]
            raise refusal(
                "TW0109",
                f"no target '{one if isinstance(one, str) else _target_name(target)}'",
                "write --target cuda:90:32 or --target sm_90 for a GPU of compute capability 9.0",
                [f"the targets are {', '.join(known)}"],
            )
        targets += [target] if target not in targets else []
    return targets


def _parse_target(text: str) -> GPUTarget:
    from tilewright.backends.compiler import GPUTarget

    found = re.fullmatch(r"(?:cuda:|sm_)(\d+)a?(?::32)?", text.strip())
    return GPUTarget("cuda", int(found[1]), 32) if found else GPUTarget(text.strip(), "", 0)


def _target_of_machine() -> GPUTarget:
    from tilewright.runtime.driver import driver

    if _native.device() == "cpu":
        raise refusal(
            "TW0109",
            "this machine has no GPU to compile for",
            "name the target: --target cuda:90:32 for a GPU of compute capability 9.0, or --target cpu",
        )
    target: GPUTarget = driver.active.get_current_target()
    return target


def _target_name(target: GPUTarget) -> str:
    return f"sm_{target.arch}" if target.backend == "cuda" else target.backend


def _load_kernel(path: str, name: str) -> JITFunction[..., Any]:
    """Executes a file, and returns its kernel; of a tuned one, the kernel that is tuned."""
    import importlib.util

    from tilewright.runtime.jit import JITFunction

    file = Path(path)
    hint = "a kernel is a function with the decorator @triton.jit"
    # The name is that of no other module, such as `json` for a file `json.py`.
    spec = importlib.util.spec_from_file_location(f"tilewright_compile_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise refusal("TW0110", f"cannot read {path}: there is no such Python file", hint)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    kernels = {key: _unwrap(value) for key, value in vars(module).items()}
    kernels = {key: value for key, value in kernels.items() if isinstance(value, JITFunction)}
    if name not in kernels:
        near = difflib.get_close_matches(name, kernels, 1)
        notes = [f"its kernels are {', '.join(kernels)}"] if kernels else []
        raise refusal(
            "TW0110", f"{path} has no kernel '{name}'", f"did you mean '{near[0]}'?" if near else hint, notes
        )
    found: JITFunction[..., Any] = kernels[name]
    return found


def _unwrap(value: Any) -> Any:
    from tilewright.runtime.autotuner import Autotuner, Heuristics

    while isinstance(value, (Autotuner, Heuristics)):
        value = value.fn
    return value


# -- the compilation --


def _compile(
    kernel: JITFunction[..., Any],
    arguments: Sequence[Argument],
    targets: Sequence[GPUTarget],
    options: dict[str, int],
) -> bytes:
    """Compiles a kernel for each target, and returns the packed lock."""
    from tilewright._lock import assemble
    from tilewright.compiler import ASTSource

    values = {one.name: one.value for one in arguments if one.is_value}
    values |= {one.name: 1 for one in arguments if one.hint == 1}
    types = {one.name: "constexpr" if one.name in values else one.type for one in arguments}
    attrs = {(at,): [["tt.divisibility", 16]] for at, one in enumerate(arguments) if one.hint == 16}
    source = ASTSource(kernel, types, values, attrs)
    with tempfile.TemporaryDirectory(prefix="tilewright-compile-") as folder:
        recording, lock = Path(folder, "recording"), Path(folder, "kernel.lock")
        recording.mkdir()
        # The launches of the C library make the tensor maps of descriptors.
        has_descriptors = any(len(one.parts) > 1 for one in arguments)
        with _recorded_in(recording):
            for target in targets:
                capability = 0 if target.backend == "cpu" else int(target.arch)
                described = source.arguments()
                _native.compile(kernel, target.backend, capability, described, dict(options), has_descriptors)
        _native.lock_collect(str(recording), str(lock))
        assemble(lock)
        return _pack(lock)


@contextlib.contextmanager
def _recorded_in(folder: Path) -> Iterator[None]:
    """Records the kernels that this process compiles, instead of restoring them from a lock."""
    names = ("TILEWRIGHT_LOCK", "TILEWRIGHT_LOCK_RECORD")
    previous = {name: os.environ.pop(name, None) for name in names}
    os.environ["TILEWRIGHT_LOCK_RECORD"] = str(folder)
    _native.reload_knobs()
    try:
        yield
    finally:
        del os.environ["TILEWRIGHT_LOCK_RECORD"]
        os.environ.update({name: value for name, value in previous.items() if value is not None})
        _native.reload_knobs()


def _pack(lock: Path) -> bytes:
    """Returns a lock with its artifacts as an archive. Equal locks give equal bytes."""
    import tarfile

    members = {"tilewright.lock": lock}
    members |= {f"artifacts/{file.name}": file for file in sorted(lock.with_suffix(".artifacts").iterdir())}
    archive = bytearray()
    for name, file in members.items():
        content = file.read_bytes()
        about = tarfile.TarInfo(name)
        about.size = len(content)
        archive += about.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE)
    return bytes(archive + bytes(2 * tarfile.BLOCKSIZE))


def _array(content: bytes) -> str:
    """Returns the initializer of an array, in lines of at most 100 columns."""
    lines = [content[at : at + 24] for at in range(0, len(content), 24)]
    return "\n".join(f"    {','.join(map(str, line))}," for line in lines)


# -- the files --


def _describe(
    name: str, items: Sequence[str], arguments: Sequence[Argument], args: CompileArgs
) -> KernelLinkerMeta:
    """Returns the description of the variant. The hash depends on the signature and the options."""
    options = f"warps{args.num_warps}xstages{args.num_stages}"
    digest = hashlib.sha256(" ".join([*items, options]).encode()).hexdigest()[:8]
    marks = {1: "c", 16: "d", None: ""}
    values = [re.sub(r"\W", "_", str(one.value)) for one in arguments if one.is_value]
    passed = [part for one in arguments if not one.is_value for part in one.parts]
    return KernelLinkerMeta(
        orig_kernel_name=name,
        arg_names=[one.name for one in passed],
        arg_ctypes=[one.ctype for one in passed],
        sizes=[one.hint for one in passed],
        sig_hash=digest,
        triton_suffix="".join(f"{index}{marks[one.hint]}" for index, one in enumerate(arguments)),
        suffix="_".join(filter(None, ["x".join(values), options])),
        num_specs=sum(one.hint is not None for one in passed),
    )


def _fields(
    meta: KernelLinkerMeta, arguments: Sequence[Argument], grid: list[str], header: str
) -> dict[str, str]:
    """Returns the fields of the templates that follow from the description."""
    signature = Signature(meta.passed)
    passed = [part for one in arguments for part in one.parts if part.name in meta.passed]
    initializers = "\n".join(f"        {one.initializer()}," for one in passed)
    array = f"    const tw_argument tw_arguments[] = {{\n{initializers}\n    }};"
    return {
        "name": meta.function,
        "header": header,
        "guard": f"TW_{meta.function.upper()}_H",
        "types": templates.TYPES,
        "parameters": signature.parameters(),
        "grid_parameters": signature.parameters(with_grid=True),
        "grid_names": ", ".join(signature.grid),
        "grid": ", ".join(grid),
        "grid_functions": templates.grid_functions(grid),
        "grid_call": signature.call(list(meta.passed), [f"(uint32_t)tw_grid[{axis}]" for axis in range(3)]),
        "stream": signature.stream,
        "memory": templates.MEMORY if any(one.type.startswith("*") for one in passed) else "",
        "arguments": array if passed else "    const tw_argument *const tw_arguments = NULL;",
        "count": str(len(passed)),
        "not_loaded": str(linking.NOT_LOADED),
        "not_launched": str(linking.NOT_LAUNCHED),
        "invalid": str(linking.INVALID),
    }


if __name__ == "__main__":
    sys.exit(main())
