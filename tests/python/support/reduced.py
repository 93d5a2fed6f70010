"""Runs a program of a user, whose text stays as it is, at smaller sizes: ``tilewright run reduced.py program.py {}``.

The program runs statement by statement. After a statement that sets a name of ``names``, the name gets the value of
an expression, which may use the old value; ``f.p`` is the default of a parameter of a function. Benchmarks measure the
sizes from the first to the second of ``points`` and take ``args``, and each measurement is short. The figures of pyplot
are written to ``shown_1.png``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import linecache
import sys
from types import ModuleType


def main(path, wanted):
    """Runs the program as ``__main__``."""
    program = ModuleType("__main__")
    program.__file__ = path
    sys.modules["__main__"] = program
    sys.argv = [path]
    limit_benchmarks(wanted.get("points"), wanted.get("args", {}))
    keep_plots()
    names = wanted.get("names", {})
    unmet = set(names)
    for statement in ast.parse("".join(linecache.getlines(path)), path).body:
        exec(compile(ast.Module([statement], []), path, "exec"), program.__dict__)
        for name in names.keys() & set(assigned(statement, names)):
            replace(program.__dict__, name, names[name])
            unmet.discard(name)
    assert not unmet, f"the program does not set {unmet}"


def assigned(statement, names):
    """The names that a statement sets; of a function, the parameters too."""
    if isinstance(statement, ast.FunctionDef):
        return [name for name in names if name.partition(".")[0] == statement.name]
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def replace(namespace, name, text):
    """Gives a name, or the default of a parameter, another value."""
    value = eval(text, namespace)
    function, _, parameter = name.partition(".")
    if not parameter:
        namespace[name] = value
        return
    function = namespace[function]
    parameters = list(inspect.signature(function).parameters.values())
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    function.__defaults__ = tuple({**defaults, parameter: value}.values())


def limit_benchmarks(points, args):
    """Has benchmarks measure some of their sizes, and each only shortly."""
    from triton import testing

    class Benchmark(testing.Benchmark):
        """One with fewer sizes."""

        def __init__(self, *positional, **named):
            super().__init__(*positional, **named)
            self.x_vals = self.x_vals[slice(*points)]
            self.args = {**self.args, **args}

    if points is not None:
        testing.Benchmark = Benchmark
        testing.do_bench = functools.partial(testing.do_bench, warmup=1, rep=4)


def keep_plots():
    """Has plots written that would be shown."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    shown = []

    def show():
        shown.append(pyplot.gcf())
        shown[-1].savefig(f"shown_{len(shown)}.png")

    pyplot.show = show


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
