"""``tilewright tuning``: writes, imports, merges and lists tuning files.

``export`` runs a program as ``tilewright lock`` does, and keeps the choices of its tuners. It needs
a program, because the timings on disk are those of all programs of the user, also of kernels that
have changed since.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from argparse import SUPPRESS, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from tilewright._arguments import Parser, ProgramParser
from tilewright._files import write_file
from tilewright._lock import run_program
from tilewright._output import print_result
from tilewright.errors import TritonError
from tilewright.runtime import _tuning_files
from tilewright.runtime._tuning_files import Entry, Scalar, TuningFile, invalid

_COMMANDS = """\
Usage: tilewright tuning export -o FILE script.py    run a program, and write the choices of its tuners
       tilewright tuning import FILE... -o FILE      write the configurations of files of vLLM or SGLang
       tilewright tuning merge FILE... -o FILE       write the entries of several files; the faster counts
       tilewright tuning list FILE...                print the entries

A launch takes the nearest entry of the files in TILEWRIGHT_TUNING (separated by ':'), and measures
nothing. `tilewright tuning export --help` and so on print the options.
"""


def main(arguments: list[str]) -> int:
    """Runs a command; returns the exit code."""
    commands = {"export": _export, "import": _import, "merge": _merge, "list": _list}
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h"):
        print_result(_COMMANDS)
        return 0
    if name not in commands:
        print(f"error: no command '{name}'\n\n{_COMMANDS}", end="", file=sys.stderr)
        return 2
    try:
        return commands[name](arguments[1:])
    except TritonError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print(f"error: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


def _add_output(parser: Parser) -> None:
    parser.add_option("--output", "-o", required=True, metavar="<file>", help="the tuning file to write")


def _parse_files(parser: Parser, arguments: list[str]) -> Namespace:
    parser.add_argument("files", nargs="*", help=SUPPRESS)
    given = parser.parse(arguments)
    if not given.files:
        parser.error("no file")
    return given


def _write(path: str, entries: Sequence[Entry]) -> int:
    """Writes a tuning file, and prints the number of its entries."""
    write_file(path, _tuning_files.render(entries))
    print(f"{path}: {len(entries)} entr{'y' if len(entries) == 1 else 'ies'}")
    return 0


def _read(paths: Iterable[str]) -> list[TuningFile]:
    return [TuningFile(path, _tuning_files.read(path)) for path in paths]


def _export(arguments: list[str]) -> int:
    """Runs a program, and writes the choices of its tuners."""
    parser = ProgramParser(
        "tilewright tuning export",
        "Run a Python program, and write the choices of its tuners to a tuning file\n\n"
        "Timings on disk count, so a second export measures nothing and writes equal bytes. The program\n"
        "runs without the files of TILEWRIGHT_TUNING.",
    )
    parser.refusals["--locked"] = "a program that launches from a lock tunes nothing"
    _add_output(parser)
    parser.add_option(
        "--source",
        action="store_true",
        help="entries hold only for this source of the kernel: they state its digest",
    )
    parser.add_option(
        "--device", metavar="<device>", help="the device of the kernels; see `tilewright run --help`"
    )
    given = parser.parse(arguments)
    if not given.program:
        parser.error("no program to run")
    dropped = ("TILEWRIGHT_LOCK", _tuning_files.VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    with tempfile.TemporaryDirectory(prefix="tilewright-tuning-") as folder:
        code = run_program(given, {**environment, _tuning_files.RECORD_VARIABLE: folder})
        if code:
            print(f"tilewright: no file is written, because the program ended with {code}", file=sys.stderr)
            return code
        recorded = _read(str(path) for path in sorted(Path(folder).glob("*.json")))
    if not given.source:
        recorded = [
            TuningFile(one.name, [entry.without_source() for entry in one.entries]) for one in recorded
        ]
    entries = _tuning_files.merge(recorded)
    if not entries:
        print("error: no autotuner of the program has made a choice", file=sys.stderr)
        return 1
    return _write(given.output, entries)


def _merge(arguments: list[str]) -> int:
    """Writes the entries of several files."""
    parser = Parser(
        "tilewright tuning merge",
        ("<file>...",),
        "Write the entries of several tuning files to one\n\n"
        "Of two entries for the same launches, the one with the smaller median_ms counts. If they differ\n"
        "and one states no time, the command fails and names both.",
    )
    _add_output(parser)
    given = _parse_files(parser, arguments)
    return _write(given.output, _tuning_files.merge(_read(given.files)))


def _list(arguments: list[str]) -> int:
    """Prints the entries of files."""
    parser = Parser("tilewright tuning list", ("<file>...",), "Print the entries of tuning files")
    given = _parse_files(parser, arguments)
    rows = [("kernel", "device", "dtypes", "key", "configuration", "ms")]
    for table in _read(given.files):
        for entry in table.entries:
            device = entry.device if entry.target is None else f"{entry.device} ({entry.target})"
            time = "-" if entry.median_ms is None else f"{entry.median_ms:.6g}"
            dtypes, key, config = (
                _tuning_files.listed(one) or "-" for one in (entry.dtypes, entry.key, entry.config)
            )
            rows.append((entry.kernel, device, dtypes, key, config, time))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    print_result("".join(f"{line}\n" for line in lines))
    return 0


# -- files of vLLM and SGLang --


def _import(arguments: list[str]) -> int:
    """Writes the configurations of files of vLLM or SGLang."""
    parser = Parser(
        "tilewright tuning import",
        ("<file>...",),
        "Write configurations of vLLM or SGLang to a tuning file\n\n"
        "The name of a file, such as E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json, gives the\n"
        "device and a part of the key; M is the name of the numbers in the file. Launches take the entries\n"
        "if the autotuner of the kernel has the same names in its key: rename them with --rename.",
    )
    _add_output(parser)
    parser.add_option("--kernel", required=True, metavar="<name>", help="the kernel of the entries")
    parser.add_option(
        "--rename",
        action="append",
        default=[],
        metavar="<old>=<new>",
        help="the name of a value in the key, as M=EM; without a new name, as dtype=, the value is left out",
    )
    given = _parse_files(parser, arguments)
    if (wrong := next((text for text in given.rename if "=" not in text), None)) is not None:
        parser.error(f"--rename {wrong}: expected {wrong}=<new>, or {wrong}= to leave the value out")
    renamed = dict(text.partition("=")[::2] for text in given.rename)
    tables = [TuningFile(path, import_file(path, given.kernel)) for path in given.files]
    names = {name for table in tables for entry in table.entries for name in entry.key}
    if unknown := sorted(renamed.keys() - names):
        parser.error(f"--rename {unknown[0]}: the files have only {', '.join(sorted(names))}")
    if doubled := sorted(names.difference(renamed) & set(renamed.values())):
        parser.error(f"--rename: {doubled[0]} is the name of another value")
    for table in tables:
        table.entries[:] = [entry.with_names(renamed) for entry in table.entries]
    return _write(given.output, _tuning_files.merge(tables))


def import_file(path: str, kernel: str) -> list[Entry]:
    """Reads a file of vLLM or SGLang, which maps numbers of rows to configurations."""
    key = _values_of_name(path)
    device = key.pop("device_name", None)
    if not isinstance(device, str):
        raise invalid(path, "its name states no device_name")
    content = _tuning_files.read_json(path)
    if not isinstance(content, dict):
        raise invalid(path, "it is not an object that maps numbers of rows to configurations")
    content.pop("triton_version", None)
    entries: dict[int, Entry] = {}
    for rows, config in content.items():
        if not re.fullmatch("[0-9]{1,18}", rows) or int(rows) in entries:
            raise invalid(path, f"it has the name {rows!r}, expected each number of rows once")
        if config is None:
            # The tuner of SGLang writes null if no configuration ran.
            continue
        if not _tuning_files.is_scalars(config):
            raise invalid(path, f"the configuration of {rows!r} is not an object of numbers and texts")
        device_name = _tuning_files.device_in_file(device)
        entries[int(rows)] = Entry(kernel, device_name, {**key, "M": int(rows)}, config)
    return list(entries.values())


def _values_of_name(path: str) -> dict[str, Scalar]:
    """Returns the values in the name of a file: numbers, bools and texts."""
    found: dict[str, Scalar] = {}
    stem = os.path.basename(path).removesuffix(".json")
    is_down = stem.endswith("_down")
    for part in re.split(r",(?=\w+=)", stem.removesuffix("_down")):
        name, sign, text = part.partition("=")
        if not sign or name in found or name == "M":
            raise invalid(path, "its name is not of the form E=8,N=7168,device_name=NVIDIA_H200.json")
        # vLLM writes block_shape without the space that SGLang has.
        found[name] = _value(re.sub(", *", ", ", text))
    # SGLang has files with this mark for the second matmul of an expert.
    return {**found, "down": True} if is_down else found


def _value(text: str) -> Scalar:
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    return text == "True" if text in ("True", "False") else text
