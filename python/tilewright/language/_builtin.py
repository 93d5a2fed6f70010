"""The functions of the language as Python objects.

Inside a kernel the compiler knows them by their path; in an interpreted kernel Python calls them, and a call from
outside a kernel is an error. The compiler's table lists them: ``tilewright._native.language_names()``.
"""

from __future__ import annotations

from tilewright import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES: dict[str, tuple[str, str, bool]] = {path: rest for path, *rest in _native.language_names()}  # type: ignore[misc]
"""The functions by their path below ``triton.language``: parameters (``(x, axis=None)``), doc, is it a method."""


class LanguageFunction(_native.LanguageCall):
    """A function of the language, such as ``tl.load``."""

    def __init__(self, path: str, parameters: str, doc: str, home: str = "") -> None:
        """``home`` is the module of a function that is not below ``triton.language``."""
        module, _, name = path.rpartition(".")
        self._tilewright_path = path
        self.__name__ = self.__qualname__ = name
        self.__module__ = home or f"triton.language.{module}".rstrip(".")
        self._parameters = parameters
        self.__doc__ = f"{name}{parameters}\n\n{doc}"

    @property
    def __signature__(self) -> Any:
        """The signature that inspect and help() show."""
        return _signature(self._parameters)

    def __repr__(self) -> str:
        return f"<function {self.__module__}.{self.__name__}>"

    def __reduce__(self) -> Any:
        return (_find, (self.__module__, self.__name__))


def _find(module: str, name: str) -> LanguageFunction:
    """The function with a name in a module of Triton."""
    import importlib

    found: LanguageFunction = getattr(
        importlib.import_module(module.replace("triton", "tilewright", 1)), name
    )
    return found


def functions(prefix: str = "") -> dict[str, LanguageFunction]:
    """The functions directly below a path: ``""`` for ``tl`` itself, ``"math."``."""
    return {
        path[len(prefix) :]: LanguageFunction(path, parameters, doc)
        for path, (parameters, doc, _) in NAMES.items()
        if path.startswith(prefix) and "." not in path[len(prefix) :]
    }


class _Text:
    """A default or annotation that is a name of the language."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(parameters: str) -> Any:
    """The signature of a text such as ``(x, axis=None)``."""
    import ast
    import inspect

    function = ast.parse(f"def f{parameters}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args

    def value(node: ast.expr | None) -> Any:
        if node is None:
            return inspect.Parameter.empty
        try:
            return ast.literal_eval(node)
        except ValueError:
            return _Text(ast.unparse(node))

    def parameter(argument: ast.arg, kind: Any, default: ast.expr | None = None) -> inspect.Parameter:
        return inspect.Parameter(
            argument.arg, kind, default=value(default), annotation=value(argument.annotation)
        )

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    kind = inspect.Parameter
    found = [
        parameter(argument, kind.POSITIONAL_OR_KEYWORD, default)
        for argument, default in zip(positional, defaults, strict=True)
    ]
    if arguments.vararg:
        found.append(parameter(arguments.vararg, kind.VAR_POSITIONAL))
    found += [
        parameter(argument, kind.KEYWORD_ONLY, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        found.append(parameter(arguments.kwarg, kind.VAR_KEYWORD))
    return inspect.Signature(found)
