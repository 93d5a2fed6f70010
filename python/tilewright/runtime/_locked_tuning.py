"""The choices of tuners in locks: looked up by locked launches, and recorded by ``tilewright lock``."""

from __future__ import annotations

from typing import Any

from tilewright import _native
from tilewright.errors import LaunchStateError
from tilewright.runtime._config import Config


def _source_digest(tuner: Any) -> str:
    """A digest of the source of the tuned kernel itself, for the choices in a lock."""
    import hashlib

    kernel = tuner.fn
    while not hasattr(kernel, "src") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return hashlib.sha256(str(getattr(kernel, "src", "")).encode(errors="surrogatepass")).hexdigest()


def _config_texts(config: Config) -> dict[str, str]:
    """The arguments and options of a configuration, as a lock has them."""
    return {name: repr(value) for name, value in config.all_kwargs().items()}


def locked_config(tuner: Any, key: tuple[Any, ...], kwargs: dict[str, Any]) -> Config | None:
    """The configuration that the lock has for a key; nothing if the policy permits that it is tuned."""
    texts = _native.lock_choice(tuner.__name__, _source_digest(tuner), [str(value) for value in key])
    if texts is None:
        return None
    for configs in (tuner.configs, tuner.prune_configs(kwargs)):
        for config in configs:
            if _config_texts(config) == texts:
                found: Config = config
                return found
    listed = ", ".join(f"{name}={value}" for name, value in texts.items())
    raise LaunchStateError(
        f"the lock chooses {listed} for '{tuner.__name__}', which is none of its configurations: write the lock anew "
        "with `tilewright lock`"
    )


def record_choice(tuner: Any, key: tuple[Any, ...], trial: Any, best: Config) -> None:
    """Adds a choice and its compiled kernel to the recording of this process."""
    import json
    import math

    timings = {
        json.dumps(_config_texts(config), sort_keys=True): [
            value if math.isfinite(value) else None for value in timing
        ]
        for config, timing in tuner.configs_timings.items()
    }
    key_texts = [str(value) for value in key]
    _native.lock_record_choice(tuner.__name__, _source_digest(tuner), key_texts, _config_texts(best), timings)
    _native.lock_suspend()
    try:
        compiled, failures = trial.compile([best])
    finally:
        _native.lock_resume()
    if best in failures:
        raise failures[best]
    if isinstance(compiled[best], _native.CompiledKernel):
        _native.lock_record(compiled[best])
