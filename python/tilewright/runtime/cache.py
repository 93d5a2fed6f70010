"""``triton.runtime.cache``: the names that programs import; kernels are cached in memory, by the native module."""

from __future__ import annotations

from tilewright._missing import missing_names

_lacking = missing_names(
    "tilewright.runtime.cache",
    "CacheManager FileCacheManager RedisRemoteCacheBackend RemoteCacheBackend RemoteCacheManager get_cache_key "
    "get_cache_manager get_dump_manager get_override_manager make_so_cache_key",
)


def __getattr__(name: str) -> object:
    if name == "knobs":
        from tilewright import knobs

        return knobs
    return _lacking(name)


def _base32(key: str) -> str:
    """A hexadecimal digest in base 32."""
    import base64

    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def triton_key() -> str:
    """What identifies this compiler in the keys of other caches."""
    from tilewright import _native

    return f"tilewright-{_native.__version__}"
