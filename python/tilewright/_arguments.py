"""The arguments of the commands that are in Python: argparse, with the help format of the commands in Rust."""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from tilewright._output import print_result


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


class Parser(argparse.ArgumentParser):
    """The parser of a command; a mistake ends the process with exit code 2 and two lines on stderr."""

    def __init__(self, prog: str, usage: Sequence[str], description: str) -> None:
        formatter = functools.partial(_Formatter, width=100, max_help_position=26)
        super().__init__(
            prog=prog,
            usage="\n       ".join(f"{prog} [options] {form}".rstrip() for form in usage),
            description=description,
            # The format of the help does not depend on the width of the terminal.
            formatter_class=formatter,
            # An option of the program, such as `--dev`, must not count as an abbreviation of
            # `--device`.
            allow_abbrev=False,
            add_help=False,
        )
        self.options = self.add_argument_group("Options")
        self.refusals: dict[str, str] = {}
        """The advice for options of other commands that this command does not take."""

    def add_option(self, *names: str, **settings: Any) -> None:
        """An option; it is listed in the order in which it is added."""
        self.options.add_argument(*names, **settings)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            print_result(message)
        else:
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        """Ends the process with the message, and the command that prints the help."""
        self.exit(2, f"error: {message}\nhelp: `{self.prog} --help` lists the options\n")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values of the options and positionals, which may come in any order."""
        self.add_option("-h", "--help", action="help", help="print help")
        found, unknown = self.parse_known_intermixed_args(arguments)
        self._refuse(unknown)
        return found

    def _refuse(self, unknown: Sequence[str]) -> None:
        if unknown:
            name = unknown[0].partition("=")[0]
            advice = self.refusals.get(name)
            known = [option for action in self.options._group_actions for option in action.option_strings]
            # The dashes are no similarity.
            words = {option.lstrip("-"): option for option in known}
            near = difflib.get_close_matches(name.lstrip("-"), words, 1)
            suggestion = f"; did you mean `{words[near[0]]}`?" if near else ""
            self.error(f"unknown option '{unknown[0]}'{f': {advice}' if advice else suggestion}")


CHECKED = "--arguments-are-checked"
"""The option by which a command starts another one for its program without a second warning of misplaced options."""


class ProgramParser(Parser):
    """The parser of a command that runs a Python program: arguments after the program are the program's.

    An option of the command among the arguments of the program gets a warning, unless it is one of `of_programs`: the
    options that programs often have themselves.

    `optional_values` are options whose value may be left out, which is then the empty text; it is given by `=` only.
    Each has the names that its value lists, or the endings of the files that it names, each with its dot.
    """

    def __init__(
        self,
        prog: str,
        description: str,
        optional_values: Mapping[str, Sequence[str]] = MappingProxyType({}),
        of_programs: frozenset[str] = frozenset(),
    ) -> None:
        forms = ("<script.py> [argument]...", "-m <module> [argument]...", "-c <code> [argument]...")
        super().__init__(prog, forms, description)
        self._optional_values = optional_values
        self._of_programs = of_programs
        self.add_argument(CHECKED, dest="is_checked", action="store_true", help=argparse.SUPPRESS)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values of the options; `kind` is `-m`, `-c` or empty, `program` the program and its arguments."""
        self.add_option("-h", "--help", action="help", help="print help")
        for kind in ("-m", "-c"):
            self.add_option(kind, dest=kind, nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        self.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        # argparse would use the program as the value of an option whose value is optional and
        # missing: `--report k.py`.
        whole = [f"{one}=" if one in self._optional_values else one for one in arguments]
        found, unknown = self.parse_known_args(whole)
        self._refuse(unknown)
        given = {kind: getattr(found, kind) for kind in ("-m", "-c") if getattr(found, kind) is not None}
        found.kind, named = next(iter(given.items()), ("", []))
        # The last arguments are the program and its own arguments. Take them from `arguments`, which
        # has no added `=`.
        found.program = list(arguments[len(arguments) - len(named) - len(found.program) :])
        if named and found.program[0] == found.kind + named[0]:
            # The word was joined with its option, as in `-mpytest`: split it.
            found.program[0] = named[0]
        if not named and found.program[:1] == ["--"]:
            found.program.pop(0)
        elif not named and len(found.program) < len(arguments):
            self._refuse_loose_value(arguments[-len(found.program) - 1], found.program)
        if misplaced := self._misplaced_option(found, arguments):
            self._warn_of_misplaced_option(found, misplaced)
        return found

    def _misplaced_option(self, given: argparse.Namespace, arguments: Sequence[str]) -> list[str]:
        """Returns an option of the command, with its value, that is after the program but not also before the program.

        The program may have an option of the same name. A `--` before the program states that it has.
        """
        program: list[str] = given.program
        before = list(arguments[: len(arguments) - len(program)])
        if given.is_checked or before[-1:] == ["--"]:
            return []
        words = program[1:]
        end = words.index("--") if "--" in words else len(words)
        for action in self.options._group_actions:
            is_given = any(word.partition("=")[0] in action.option_strings for word in before)
            if action.dest == "help" or is_given or not self._of_programs.isdisjoint(action.option_strings):
                continue
            for index, word in enumerate(words[:end]):
                if word.partition("=")[0] in action.option_strings:
                    has_next = action.nargs != 0 and "=" not in word and word not in self._optional_values
                    return words[index : index + 1 + has_next]
        return []

    def _warn_of_misplaced_option(self, given: argparse.Namespace, misplaced: list[str]) -> None:
        """Warns of an option of the command that is among the arguments of the program."""
        import shlex

        option = shlex.join(misplaced)
        program = "" if given.kind == "-c" else shlex.join(given.program[:1])
        words = " ".join(filter(None, [self.prog, option, given.kind, program, "…"]))
        more = "" if given.kind else "; write -- before the program if the program takes the option"
        print(
            f"warning: the program gets '{option}', which is also an option of `{self.prog}`\n"
            f"help: options of `{self.prog}` come before the program: `{words}`{more}",
            file=sys.stderr,
        )

    def _refuse_loose_value(self, option: str, program: Sequence[str]) -> None:
        """Refuses a value that follows its option without `=`, as in `--sanitize race x.py`."""
        if option not in self._optional_values or not program:
            return
        known = self._optional_values[option]
        is_value = program[0].endswith(tuple(one for one in known if one.startswith(".")))
        if not is_value and (program[0].endswith(".py") or os.path.exists(program[0])):
            return
        is_name = all(word in known for word in program[0].split(","))
        if is_value or is_name or any(word in ("-m", "-c") or os.path.exists(word) for word in program[1:2]):
            self.error(f"a value of {option} follows '=' without a space: {option}={program[0]}")
