"""The hooks of ``triton.knobs.runtime``, as the native module calls them: around launches and around compilations."""

from __future__ import annotations

from typing import Any

from tilewright import _native, knobs


class JitFunctionInfo:
    """The description of a kernel for hooks."""

    def __init__(self, module: str, name: str, jit_function: Any) -> None:
        self.module = module
        self.name = name
        self.jit_function = jit_function


def launch_metadata(kernel: Any, grid: Any, stream: int, arguments: dict[str, Any]) -> Any:
    """The metadata of a launch for the two hooks."""
    from tilewright.compiler.compiler import describe_launch

    return describe_launch(kernel, grid, stream, arguments)


def launch_enter(metadata: Any) -> None:
    """Calls the hook before the programs of a grid run."""
    if (hook := knobs.runtime.launch_enter_hook) is not None:
        hook(metadata)


def launch_exit(metadata: Any) -> None:
    """Calls the hook after all programs have ended."""
    if (hook := knobs.runtime.launch_exit_hook) is not None:
        hook(metadata)


def before_compile(kernel: Any, arguments: dict[str, Any], is_warmup: bool) -> bool:
    """Calls the hook before a variant of a kernel is compiled; true if the hook forbids the compilation."""
    return _call(knobs.runtime.jit_cache_hook, kernel, arguments, is_warmup)


def after_compile(kernel: Any, arguments: dict[str, Any], is_warmup: bool) -> bool:
    """Calls the hook after the compilation."""
    return _call(knobs.runtime.jit_post_compile_hook, kernel, arguments, is_warmup)


def _call(hook: Any, kernel: Any, arguments: dict[str, Any], is_warmup: bool) -> bool:
    if hook is None:
        return False
    from tilewright.runtime import _binder

    given = {name: value for name, value in arguments.items() if name not in kernel.arg_names}
    _, _, target, backend, _ = _binder.create_binder(kernel)
    values = {param.name: arguments.get(param.name, param.default) for param in kernel.params}
    specialization = _binder.specialized(kernel.params, backend, values)
    parsed, signature, constants, attrs = _binder.pack_args(
        kernel, backend, given, values, specialization, given
    )
    defaults = {name: _native.default_option(name) for name in ("num_warps", "num_ctas", "num_stages")}
    options = {**defaults, **given}
    listed = ", ".join(f"{name}: {kind}" for name, kind in signature.items())
    settings = ", ".join(f"{name}={value}" for name, value in options.items())
    representation = f"{kernel.fn.__qualname__}[{settings}]({listed})"
    key = f"{kernel.cache_key}-{representation}-{constants}"
    info = JitFunctionInfo(kernel.fn.__module__, kernel.fn.__qualname__, kernel)
    compilation = {
        "key": key,
        "signature": signature,
        "constants": constants,
        "configs": [attrs],
        "device": 0,
        "specialization_data": _binder.serialize_specialization_data(
            kernel._fn_name, signature, constants, attrs, parsed, key, target
        ),
        "is_warmup": is_warmup,
        **options,
    }
    found = hook(
        key=key,
        repr=representation,
        fn=info,
        compile=compilation,
        is_manual_warmup=is_warmup,
        already_compiled=False,
    )
    return bool(found)
