"""``triton.tools.link``: links the variants of a kernel that ``triton.tools.compile`` has written.

The variants with equal compile-time values and options are an algorithm. A launch of an algorithm takes the variant
with the most hints that its arguments fulfill. ``docs/ahead-of-time.md`` describes the files.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS
from collections.abc import Sequence
from pathlib import Path

from tilewright._arguments import Parser
from tilewright._files import write_file
from tilewright._output import run_command
from tilewright._replaced_names import replaced_names
from tilewright.errors import TritonError
from tilewright.tools import _c_templates as templates
from tilewright.tools import _linking as linking
from tilewright.tools._linking import KernelLinkerMeta, LinkerError, Signature

__all__ = [
    "HeaderParser",
    "KernelLinkerMeta",
    "LinkerError",
    "gen_signature",
    "gen_signature_with_full_args",
    "main",
]

__getattr__ = replaced_names(
    "tilewright.tools.link",
    "make_algo_decls make_default_algo_kernel make_func_pointers make_get_num_algos_decl make_get_num_algos_def "
    "make_global_decl make_kernel_hints_dispatcher make_kernel_load_def make_kernel_meta_const_dispatcher",
    instead="python -m triton.tools.link writes the whole source file, and its parts have no functions",
)

_DESCRIPTION = """\
Link variants of a kernel: write a header and a source file with a function that chooses a variant

  python -m triton.tools.link build/*.h -o build/add

The headers are those of `python -m triton.tools.compile`. Variants with equal compile-time values and options are an
algorithm, numbered in the order of the headers. A launch takes the variant with the most hints that the arguments
fulfill."""

_OWN = "Made by `python -m triton.tools.link`"


class HeaderParser:
    """Reads the descriptions of variants in headers."""

    def __init__(self) -> None:
        self.kernels: dict[str, list[KernelLinkerMeta]] = {}
        """The variants of each algorithm, by the name of its function in C."""

    def extract_linker_meta(self, header: str) -> None:
        """Adds the variants of a header's text."""
        for line in header.splitlines():
            if line.startswith(linking.MARK):
                self._add(KernelLinkerMeta.parse(line))

    def _add(self, meta: KernelLinkerMeta) -> None:
        variants = self.kernels.setdefault(f"{meta.orig_kernel_name}_{meta.suffix}", [])
        if meta in variants:
            return
        hint = "give the kernels different names with --out-name, or link their headers separately"
        others = (one for group in self.kernels.values() for one in group)
        first = next((one for one in others if one.orig_kernel_name == meta.orig_kernel_name), meta)
        if first.arguments != meta.arguments:
            raise LinkerError.of(
                f"the variants of '{meta.orig_kernel_name}' have different arguments",
                hint,
                [f"{one.function} has ({gen_signature_with_full_args(one)})" for one in (first, meta)],
            )
        if same := [one for one in variants if list(one.sizes) == list(meta.sizes)]:
            raise LinkerError.of(
                f"two variants of '{meta.orig_kernel_name}' have equal hints, values and options",
                "remove the header that is out of date",
                [f"these are {same[0].function} and {meta.function}"],
            )
        variants.append(meta)


def gen_signature(m: KernelLinkerMeta) -> str:
    """The parameters of a variant in C, without the stream."""
    return ", ".join(f"{ctype} {name}" for name, ctype in m.passed.items())


def gen_signature_with_full_args(m: KernelLinkerMeta) -> str:
    """The parameters of a kernel in C, without the stream."""
    return ", ".join(f"{ctype} {name}" for name, ctype in m.arguments.items())


def main() -> int:
    """Runs the command of this process; returns the exit code."""
    return run_command(_run, sys.argv[1:])


def _run(arguments: list[str]) -> int:
    parser = Parser("python -m triton.tools.link", ["<header.h>..."], _DESCRIPTION)
    parser.add_argument("headers", nargs="*", help=SUPPRESS)
    parser.add_option("--out", "-o", metavar="<path>", help="the files to write: <path>.h and <path>.c")
    parser.add_option(
        "--prefix", default="", metavar="<text>", help="the start of the names of all functions"
    )
    given = parser.parse(arguments)
    if not given.headers:
        parser.error("no header")
    if given.out is None:
        parser.error("--out is missing")
    try:
        files = _link(given.headers, given.prefix, given.out)
    except TritonError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: cannot open {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(", ".join(map(str, files)))
    return 0


def _link(headers: Sequence[str], prefix: str, out: str) -> list[Path]:
    """Links headers, and returns the paths of the files that it has written."""
    parser = HeaderParser()
    for header in headers:
        text = Path(header).read_text(encoding="utf-8", errors="replace")
        if linking.MARK not in text and _OWN not in text:
            raise LinkerError.of(
                f"{header} describes no variant of a kernel",
                "name the headers that `python -m triton.tools.compile` has written",
            )
        parser.extract_linker_meta(text)
    names = {variants[0].orig_kernel_name: None for variants in parser.kernels.values()}
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise LinkerError.of(
            f"the headers are of {len(names)} kernels, expected one",
            "link the headers of each kernel separately",
            [f"the kernels are {found}"],
        )
    name = prefix + next(iter(names))
    linking.check_name(name, "the kernel's name", "choose another --prefix")
    base = Path(out.removesuffix(".h").removesuffix(".c"))
    base.parent.mkdir(parents=True, exist_ok=True)
    files = [base.with_name(f"{base.name}.h"), base.with_name(f"{base.name}.c")]
    algorithms = {prefix + key: variants for key, variants in parser.kernels.items()}
    fields = _fields(name, algorithms, files[0].name)
    declarations = templates.LINKED_DECLARATIONS.substitute(
        fields, algorithms=_declare_algorithms(algorithms)
    )
    write_file(str(files[0]), templates.HEADER.substitute(fields, declarations=declarations, metadata=""))
    write_file(str(files[1]), templates.LINKED_SOURCE.substitute(fields))
    return files


def _fields(name: str, algorithms: dict[str, list[KernelLinkerMeta]], header: str) -> dict[str, str]:
    """Returns the fields of the templates."""
    variants = [one for group in algorithms.values() for one in group]
    signature = Signature(variants[0].arguments)
    passed = list(signature.arguments)
    functions = [one.function for one in variants]

    def cases(ending: str, grid: Sequence[str] = ()) -> str:
        call = signature.call(passed, grid)
        listed = (f"{key}{ending}({call})" for key in algorithms)
        return "\n".join(f"    case {index}:\n        return {one};" for index, one in enumerate(listed))

    return {
        "name": name,
        "header": header,
        "guard": f"TW_{name.upper()}_H",
        "types": templates.TYPES,
        "title": f"Kernel {name} with {len(variants)} variant{'s' * (len(variants) != 1)}. {_OWN} of tilewright.",
        "parameters": signature.parameters(),
        "algorithm_parameters": signature.parameters(with_algorithm=True),
        "grid_parameters": signature.parameters(with_grid=True, with_algorithm=True),
        "algorithm": signature.algorithm,
        "default_call": f"{signature.call(passed)}, 0",
        "invalid": str(linking.INVALID),
        "variants": "\n".join(map(_declare_variant, variants)),
        "algorithms": "\n".join(_define_algorithm(key, group) for key, group in algorithms.items()),
        "loads": "\n".join(
            f"    if ((code = tw_keep(load_{one}(), {one}_error)) != 0)\n        return code;"
            for one in functions
        ),
        "unloads": "\n".join(f"    unload_{one}();" for one in functions),
        "devices": "\n".join(f"    {one}_set_device(device);" for one in functions),
        "count": str(len(algorithms)),
        "last": str(len(algorithms) - 1),
        "cases": cases(""),
        "grid_cases": cases("_with_grid", signature.grid),
    }


def _declare_variant(meta: KernelLinkerMeta) -> str:
    signature = Signature(meta.passed)
    return templates.VARIANT_PROTOTYPES.substitute(
        name=meta.function,
        parameters=signature.parameters(),
        grid_parameters=signature.parameters(with_grid=True),
    )


def _declare_algorithms(algorithms: dict[str, list[KernelLinkerMeta]]) -> str:
    lines = []
    for index, (name, variants) in enumerate(algorithms.items()):
        signature = Signature(variants[0].arguments)
        lines += [
            f"/* Algorithm {index}. */",
            f"tw_result {name}({signature.parameters()});",
            f"tw_result {name}_with_grid({signature.parameters(with_grid=True)});",
            "",
        ]
    return "\n".join(lines)


def _define_algorithm(name: str, variants: Sequence[KernelLinkerMeta]) -> str:
    """Returns the functions that choose a variant of an algorithm: the one with the most hints first."""
    signature = Signature(variants[0].arguments)
    ordered = sorted(variants, key=lambda one: -one.num_specs)
    failure = f'    return tw_fail("no variant of {name} fits the arguments: compile one without hints");'
    if not ordered[-1].num_specs:
        failure = ""
    functions = []
    for ending, grid in (("", []), ("_with_grid", signature.grid)):
        launches = [_launch_if_fits(one, signature, ending, grid) for one in ordered]
        functions.append(
            templates.ALGORITHM.substitute(
                name=name + ending,
                parameters=signature.parameters(with_grid=bool(grid)),
                dispatch="\n".join(filter(None, [*launches, failure])),
            )
        )
    return "\n".join(functions)


def _launch_if_fits(meta: KernelLinkerMeta, signature: Signature, ending: str, grid: Sequence[str]) -> str:
    """Returns the statement that launches a variant if the arguments fulfill its hints."""
    launch = templates.LAUNCH.substitute(
        function=meta.function + ending,
        variant=meta.function,
        call=signature.call(list(meta.passed), grid),
    )
    sizes = zip(meta.arg_names, meta.sizes, strict=True)
    tests = [f"{name} == 1" if size == 1 else f"{name} % {size} == 0" for name, size in sizes if size]
    return f"    if ({' && '.join(tests)})\n        {launch}" if tests else f"    {launch}"


if __name__ == "__main__":
    sys.exit(main())
