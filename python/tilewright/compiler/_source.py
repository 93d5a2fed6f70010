"""The sources of ``triton.compile``: a kernel, with the types of its arguments in text."""

from __future__ import annotations

from typing import Any

from tilewright import _native
from tilewright.compiler import _older
from tilewright.errors import LaunchTypeError, LaunchWarning

_Places = tuple[list[tuple[int | None, Any]] | None, list[int]]
"""For each parameter, the index of its argument, or its compile-time value; None if the arguments stay as they are.
Then the indices of parameters that are tuples with compile-time values in them."""


class ASTSource:
    """A kernel for arguments of certain types.

    ``signature`` has the type of each parameter by its name: ``"*fp32"``, ``"i32"``, ``"constexpr"``, or a tuple of
    such. ``constexprs`` has the compile-time values, by name or by index: ``{"BLOCK": 128}``, ``{(3,): 128}``, within
    a tuple ``{(2, 0): 1}``. ``attrs`` has facts about the others: ``{(0,): [["tt.divisibility", 16]]}``.

    Older releases name ``constexprs`` ``constants``, have ``attrs`` of their own, and describe the signature by a text,
    ``"*fp32, i32"``, or by the indices of parameters.
    """

    ext = "ttir"

    def __init__(
        self, fn: Any, signature: Any, constexprs: Any = None, attrs: Any = None, *, constants: Any = None
    ) -> None:
        from tilewright.backends.compiler import Language

        self.fn = fn
        self.language = Language.TRITON
        self.name: str = fn.__name__
        attrs, ones = _older.attributes(attrs)
        values = {**ones, **(constexprs or {}), **(constants or {})}
        self.constants = {self._place(key): value for key, value in values.items()}
        signature = _older.signature_by_name(fn, signature, self.constants)
        if not isinstance(signature, dict) or not all(isinstance(name, str) for name in signature):
            raise LaunchTypeError(
                "the signature of an ASTSource is a dict from the names of parameters to types"
            )
        if not isinstance(attrs, dict):
            raise LaunchTypeError(f"attrs of an ASTSource is a dict, not a {type(attrs).__name__}")
        if unknown := [name for name in signature if name not in fn.arg_names]:
            raise LaunchTypeError(f"kernel '{self.name}' has no parameter {unknown[0]!r}")
        self.signature: dict[str, Any] = signature
        self.attrs: dict[Any, Any] = attrs
        self._places: dict[int, _Places] = {}
        """For each number of arguments, their places."""

    @classmethod
    def of_arguments(cls, fn: Any, described: list[Any]) -> ASTSource:
        """Makes the source whose ``arguments`` are these."""
        from collections import namedtuple

        constexprs: dict[tuple[int, ...], Any] = {}
        attrs: dict[tuple[int, ...], Any] = {}

        def type_of(place: tuple[int, ...], about: Any) -> Any:
            if isinstance(about, str):
                name, _, divisibility = about.partition(":")
                if divisibility:
                    attrs[place] = [["tt.divisibility", int(divisibility)]]
                return name
            if len(about) == 1:
                constexprs[place] = about[0]
                return "constexpr"
            items, fields = about
            types = [type_of((*place, number), item) for number, item in enumerate(items)]
            return tuple(types) if fields is None else namedtuple("fields", fields)(*types)

        named = enumerate(zip(fn.arg_names, described, strict=True))
        return cls(fn, {name: type_of((place,), about) for place, (name, about) in named}, constexprs, attrs)

    def _place(self, key: Any) -> tuple[int, ...]:
        """The path of a parameter, or of an item of one, among the parameters."""
        if isinstance(key, str):
            if key not in self.fn.arg_names:
                raise LaunchTypeError(f"kernel '{self.name}' has no parameter {key!r}")
            return (self.fn.arg_names.index(key),)
        return (key,) if isinstance(key, int) else tuple(key)

    def hash(self) -> str:
        """A digest of the kernel, the functions that it calls, the types and the values."""
        import hashlib

        types = [ty for _, ty in sorted(self.signature.items())]
        values = [str(getattr(value, "cache_key", value)) for _, value in sorted(self.constants.items())]
        text = f"{self.fn.cache_key}-{self.attrs}-{types}-{'-'.join(values)}"
        return hashlib.sha256(text.encode()).hexdigest()

    def parse_options(self) -> dict[str, Any]:
        """Returns the options of the source itself: none."""
        return {}

    def make_ir(
        self, target: Any, options: Any, codegen_fns: Any = None, module_map: Any = None, context: Any = None
    ) -> Any:
        """Describes the memory accesses of the kernel for ``torch.compile``; see ``_C.libtriton.ir``."""
        from tilewright._C.libtriton.ir import module

        compiled = _native.compile(self.fn, "cpu", 0, self.arguments(), {})
        names = []
        for name, ty in zip(self.signature, self.passed_types(), strict=True):
            if ty == "constexpr":
                continue
            names.append(name)
            if isinstance(ty, str) and ty.startswith("tensordesc"):
                # The extents and strides follow a descriptor.
                rank = ty.count(",", ty.index("["), ty.index("]")) + 1
                names += [f"{name}.{number}" for number in range(2 * rank)]
        accesses = [
            (sorted({found.split(".")[0] for found in places}), reads, writes)
            for places, reads, writes in compiled._accesses()
        ]
        return module(self.name, names, accesses)

    def arguments(self) -> list[Any]:
        """The description of each parameter for the compiler; see ``_native.compile``."""
        found = []
        for number, param in enumerate(self.fn.params):
            ty = self.signature.get(param.name, "constexpr")
            if ty == "constexpr" and (number,) not in self.constants:
                if not param.has_default:
                    raise LaunchTypeError(
                        f"ASTSource of kernel '{self.name}' has neither a type nor a value for parameter "
                        f"'{param.name}': types are in the signature, values in constexprs"
                    )
                found.append((param.default,))
            else:
                found.append(self._describe((number,), ty))
        return found

    def _describe(self, place: tuple[int, ...], ty: Any) -> Any:
        if place in self.constants:
            return (self.constants[place],)
        if isinstance(ty, (tuple, list)):
            items = [self._describe((*place, number), item) for number, item in enumerate(ty)]
            return (items, getattr(ty, "_fields", None))
        if not isinstance(ty, str):
            raise LaunchTypeError(
                f"a type of a signature is a str or a tuple of such, not a {type(ty).__name__}"
            )
        if ty.startswith("tensordesc"):
            return ty
        if ty.startswith("nvTmaDesc"):
            raise _native.not_available(
                f"an argument of type {ty!r} is not available in this version of tilewright",
                "pass the tensor, and make the descriptor in the kernel with tl.make_tensor_descriptor",
            )
        text = ty
        for name, value in self.attrs.get(place, ()):
            if name == "tt.divisibility":
                text = f"{text}:{value}"
        return text

    def passed_types(self) -> list[Any]:
        """The type of each parameter of the signature at a launch; ``constexpr`` for parts of the code."""
        names = self.fn.arg_names

        def passed(place: tuple[int, ...], ty: Any) -> Any:
            if place in self.constants or ty == "constexpr":
                return "constexpr"
            if isinstance(ty, (tuple, list)):
                return tuple(passed((*place, number), item) for number, item in enumerate(ty))
            return ty

        return [passed((names.index(name),), ty) for name, ty in self.signature.items()]

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...] | list[Any]:
        """Returns an argument for each parameter of the kernel but the last ones that are compile-time values.

        A launch passes one for each parameter of the signature, or one for each that is not a compile-time value; the
        latter keep their compiled values, whatever a launch passes.
        """
        if len(args) not in self._places:
            self._places[len(args)] = self._places_of(len(args))
        passed, nested = self._places[len(args)]
        if passed is None:
            return args
        completed = [fixed if number is None else args[number] for number, fixed in passed]
        for parameter in nested:
            completed[parameter] = self._replace_constants((parameter,), completed[parameter])
        return completed

    def _places_of(self, count: int) -> _Places:
        """Returns the places of a number of arguments."""
        from tilewright.language._constexpr import constexpr

        names = list(self.signature)
        if count != len(names):
            names = [name for name, ty in zip(names, self.passed_types(), strict=True) if ty != "constexpr"]
        if count != len(names):
            raise LaunchTypeError(
                f"kernel '{self.name}' is launched with {count} arguments, and takes {len(self.signature)} "
                f"({len(names)} without compile-time values)"
            )
        passed: list[tuple[int | None, Any]] = []
        for number, param in enumerate(self.fn.params):
            if (number,) in self.constants:
                passed.append((None, constexpr(self.constants[(number,)])))
            elif param.name in names:
                passed.append((names.index(param.name), None))
            else:
                passed.append((None, constexpr(param.default)))
        # A launch may omit the last arguments.
        while passed and passed[-1][0] is None and self.fn.params[len(passed) - 1].is_constexpr:
            passed.pop()
        nested = sorted({place[0] for place in self.constants if len(place) > 1})
        nested = [number for number in nested if number < len(passed) and passed[number][0] is not None]
        if not nested and [number for number, _ in passed] == list(range(count)):
            return None, []
        return passed, nested

    def _replace_constants(self, place: tuple[int, ...], arg: Any) -> Any:
        """Replaces the items of a tuple that have compile-time values."""
        from tilewright.language._constexpr import constexpr

        if place in self.constants:
            return constexpr(self.constants[place])
        if not isinstance(arg, tuple):
            return arg
        items = [self._replace_constants((*place, number), item) for number, item in enumerate(arg)]
        return type(arg)(*items) if hasattr(arg, "_fields") else tuple(items)


class IRSource:
    """A file with IR of the official compiler, which tilewright does not read."""

    def __init__(self, path: Any, context: Any, backend: Any) -> None:
        raise _native.not_available(
            f"triton.compile({str(path)!r}) is not available: tilewright reads no MLIR",
            "compile the kernel's source, with ASTSource(fn, signature, constexprs)",
        )


def warn_of_unknown_options(options: dict[str, Any]) -> None:
    """Warns of names that are not options: the options of the releases of Triton and torch differ."""
    known = [name for name, _ in _native.compile_options()]
    for name in options:
        if name not in known:
            import difflib
            import warnings

            similar = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {similar[0]!r}?" if similar else ""
            text = f"triton.compile passes over the option {name!r}, which it does not have{hint}"
            warnings.warn(text, LaunchWarning, stacklevel=3)
