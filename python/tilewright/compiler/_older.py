"""Sources of ``triton.compile`` as releases 2.0 to 3.2 of Triton describe them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.errors import LaunchTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import TypedDict

    class OlderArguments(TypedDict, total=False):
        """The arguments of ``triton.compile`` in release 2, after the kernel."""

        signature: str | dict[Any, str]
        constants: dict[Any, Any]
        configs: Iterable[Any]
        cc: int
        device: int
        device_type: str
        num_warps: int
        num_stages: int
        num_ctas: int
        extern_libs: dict[str, str]
        debug: bool


class instance_descriptor(NamedTuple):
    """The indices of parameters with properties, in release 2: divisible by 16, and equal to 1."""

    divisible_by_16: Iterable[int] = ()
    equal_to_1: Iterable[int] = ()
    ids_of_folded_args: Iterable[int] = ()
    divisible_by_8: Iterable[int] = ()


class AttrsDescriptor:
    """The indices of parameters with properties, in releases 3.0 to 3.2.

    It is made of two lists of indices, as in 3.0, or by ``from_hints({0: 16, 1: 1})``, as in 3.2.
    """

    def __init__(self, divisible_by_16: Iterable[int] = (), equal_to_1: Iterable[int] = ()) -> None:
        self.divisible_by_16 = tuple(divisible_by_16)
        self.equal_to_1 = tuple(equal_to_1)

    @classmethod
    def from_hints(cls, hints: dict[int, int]) -> AttrsDescriptor:
        """Makes a descriptor of 16 for divisibility, or 1 for the value 1, by the index of the parameter."""
        return cls(*([index for index, hint in hints.items() if hint == value] for value in (16, 1)))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AttrsDescriptor:
        """Makes a descriptor of the result of ``to_dict``."""
        properties = data["arg_properties"]
        return cls(properties["tt.divisibility"], properties["tt.equal_to"])

    def to_dict(self) -> dict[str, Any]:
        """The descriptor as a dict of lists."""
        properties = {"tt.divisibility": list(self.divisible_by_16), "tt.equal_to": list(self.equal_to_1)}
        return {"arg_properties": properties, "cls": type(self).__name__}


def attributes(attrs: Any) -> tuple[dict[Any, Any], dict[int, int]]:
    """The attributes of release 3.9 for those of any release, and the parameters with the value 1."""
    if not hasattr(attrs, "divisible_by_16"):
        return {} if attrs is None else attrs, {}
    found = {(index,): [["tt.divisibility", 16]] for index in attrs.divisible_by_16}
    return found, dict.fromkeys(attrs.equal_to_1, 1)


def signature_by_name(fn: Any, signature: Any, constants: dict[tuple[int, ...], Any]) -> Any:
    """The signature as a dict by names: it may be a text, or a dict by the indices of parameters."""
    names: list[str] = fn.arg_names
    if isinstance(signature, str):
        passed = [name for index, name in enumerate(names) if (index,) not in constants]
        types = [text.strip() for text in signature.split(",")]
        if len(types) != len(passed):
            raise LaunchTypeError(
                f"the signature of kernel '{fn.__name__}' has {len(types)} types, but {len(passed)} parameters "
                f"have no value: {', '.join(passed)}"
            )
        return dict(zip(passed, types, strict=True))
    if isinstance(signature, dict):
        return {
            names[key] if isinstance(key, int) and key < len(names) else key: ty
            for key, ty in signature.items()
        }
    return signature


def of_function(fn: Any, options: dict[str, Any] | None, arguments: OlderArguments) -> tuple[Any, Any, Any]:
    """The source, the options and the target of ``triton.compile(fn, signature=..., num_warps=4)``, as in release 2."""
    from tilewright.backends.compiler import GPUTarget
    from tilewright.compiler._source import ASTSource

    older: dict[str, Any] = {**arguments}
    configs = older.pop("configs", None)
    source = ASTSource(
        fn, older.pop("signature", ""), older.pop("constants", None), configs[0] if configs else None
    )
    capability = older.pop("cc", None)
    # The device of the tensors decides where a kernel runs.
    for name in ("device", "device_type"):
        older.pop(name, None)
    return source, {**(options or {}), **older}, capability and GPUTarget("cuda", capability, 32)
