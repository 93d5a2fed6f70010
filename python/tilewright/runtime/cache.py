"""``triton.runtime.cache``: files that programs and the autotuner keep between runs, by key.

Kernels are not kept here: the native module has them in memory, and its own cache of machine code on disk.
"""

from __future__ import annotations

from tilewright._kept_names import kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class CacheManager:
    """The files of one key."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        pass

    def get_file(self, filename: str) -> str | None:
        """Returns the path of a file, if it exists."""
        raise NotImplementedError

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Writes a file; returns its path."""
        raise NotImplementedError

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Returns the paths of a group of files by their names, if the group exists."""
        raise NotImplementedError

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Writes the list of a group's files; returns its path."""
        raise NotImplementedError


class FileCacheManager(CacheManager):
    """Files in the folder of a key, below that of the cache."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        import os

        from tilewright import knobs

        self.key = key
        folder = knobs.cache.override_dir if override else knobs.cache.dump_dir if dump else knobs.cache.dir
        if not folder:
            raise RuntimeError("Could not create or locate cache dir")
        self.cache_dir: str = os.path.join(folder, key)
        self.lock_path: str | None = None
        if not override:
            self.lock_path = os.path.join(self.cache_dir, "lock")
            os.makedirs(self.cache_dir, exist_ok=True)

    def _make_path(self, filename: str) -> str:
        import os

        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        """Returns whether a file exists."""
        import os

        return os.path.exists(self._make_path(filename))

    def get_file(self, filename: str) -> str | None:
        """Returns the path of a file, if it exists."""
        return self._make_path(filename) if self.has_file(filename) else None

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Returns the paths of a group of files by their names, without missing files, if the group exists."""
        import os

        path = self.get_file(f"__grp__{filename}")
        children = None if path is None else _read_group(path)
        if not isinstance(children, dict):
            return None
        return {name: path for name, path in children.items() if os.path.exists(path)}

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Writes the list of a group's files; returns its path."""
        import json

        return self.put(json.dumps({"child_paths": group}), f"__grp__{filename}", binary=False)

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Writes a file atomically; returns its path. A concurrent reader sees the old file or the new one."""
        import os

        from tilewright._files import write_file

        os.makedirs(self.cache_dir, exist_ok=True)
        path = self._make_path(filename)
        # Files that other users may write are not trusted.
        write_file(path, data if isinstance(data, bytes) else str(data), mode=0o664)
        return path


class RemoteCacheBackend:
    """The remote store in which a ``RemoteCacheManager`` has the files of a key."""

    def __init__(self, key: str) -> None:
        pass

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """Returns the content of the files that exist."""
        raise NotImplementedError

    def put(self, filename: str, data: bytes) -> None:
        """Stores a file."""
        raise NotImplementedError


class RedisRemoteCacheBackend(RemoteCacheBackend):
    """Files in the Redis server of ``knobs.redis``."""

    def __init__(self, key: str) -> None:
        try:
            import redis  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            from tilewright.errors import LaunchStateError

            text = "TRITON_REMOTE_CACHE_BACKEND names RedisRemoteCacheBackend, which needs the package redis"
            raise LaunchStateError(f"{text}: {error}") from None

        from tilewright import knobs

        self._key = key
        self._key_fmt: str = knobs.redis.key_format
        self._redis = redis.Redis(host=knobs.redis.host, port=knobs.redis.port)

    def _get_key(self, filename: str) -> str:
        return self._key_fmt.format(key=self._key, filename=filename)

    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """Returns the content of the files that exist."""
        contents = self._redis.mget([self._get_key(name) for name in filenames])
        return {name: data for name, data in zip(filenames, contents, strict=True) if data is not None}

    def put(self, filename: str, data: bytes) -> None:
        """Stores a file."""
        self._redis.set(self._get_key(filename), data)


class RemoteCacheManager(CacheManager):
    """Files that machines share: those of ``TRITON_REMOTE_CACHE_BACKEND``, fetched into a folder at their first use."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        from tilewright import knobs

        make = knobs.cache.remote_manager_class
        if make is None:
            raise RuntimeError(
                "Unable to use RemoteCacheManager: set TRITON_REMOTE_CACHE_BACKEND=module:Class to a "
                "RemoteCacheBackend"
            )
        self._override = override
        self._dump = dump
        self._backend = make(key)
        self._file_cache_manager = FileCacheManager(key, override=override, dump=dump)

    def get_file(self, filename: str) -> str | None:
        """Returns the path of a file, if it exists."""
        if self._override:
            return self._file_cache_manager.get_file(filename)
        found = self._backend.get([filename])
        if not found:
            return None
        (data,) = found.values()
        return self._materialize(filename, data)

    def _materialize(self, filename: str, data: bytes) -> str:
        """Writes a fetched file."""
        return self._file_cache_manager.put(data, filename, True)

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Stores a file; returns its local path."""
        content = data if isinstance(data, bytes) else str(data).encode()
        if not self._override and not self._dump:
            self._backend.put(filename, content)
        return self._file_cache_manager.put(content, filename, True)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Returns the paths of a group of files by their names, if the group exists."""
        import os

        path = self.get_file(f"__grp__{filename}")
        children = None if path is None else _read_group(path)
        if not isinstance(children, (list, dict)):
            return None
        # A name with a folder would be a file outside of the folder of this key.
        names = [name for name in children if isinstance(name, str) and os.path.basename(name) == name]
        return {name: self._materialize(name, data) for name, data in self._backend.get(names).items()}

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """Writes the list of a group's files; returns its path."""
        import json

        names = json.dumps({"child_paths": sorted(group)})
        return self.put(names, f"__grp__{filename}", binary=False)


def _read_group(path: str) -> Any:
    """The names of a group's files. A damaged list counts as none."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)["child_paths"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _base32(key: str) -> str:
    """A hexadecimal digest in base 32."""
    import base64

    return base64.b32encode(bytes.fromhex(key)).decode().rstrip("=")


def _manager(key: str, **options: bool) -> CacheManager:
    from tilewright import knobs

    make = knobs.cache.manager_class or FileCacheManager
    found: CacheManager = make(_base32(key), **options)
    return found


def get_cache_manager(key: str) -> CacheManager:
    """Returns the files of a key, a hexadecimal digest; of the class in ``TRITON_CACHE_MANAGER``, if it is set."""
    return _manager(key)


def get_override_manager(key: str) -> CacheManager:
    """Returns the files by which a user replaces compiled ones."""
    return _manager(key, override=True)


def get_dump_manager(key: str) -> CacheManager:
    """Returns the files that are written for a user to read."""
    return _manager(key, dump=True)


def make_so_cache_key(version_hash: str, signature: Any, constants: Any, ids: Any, **kwargs: Any) -> str:
    """Returns a digest of a launcher's sources."""
    import hashlib

    types = {name: "ptr" if str(ty)[:1] == "*" else str(ty) for name, ty in signature.items()}
    parts = [version_hash, str(sorted(types.items(), key=str)), str(constants), str(ids)]
    parts += [f"{name}={kwargs[name]}" for name in sorted(kwargs)]
    return _base32(hashlib.sha256("-".join(parts).encode()).hexdigest())


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: dict[str, str]) -> str:
    """A key that no other compilation has."""
    from tilewright.compiler.compiler import get_cache_key

    return get_cache_key(src, backend, backend_options, env_vars)


def triton_key() -> str:
    """The identity of this compiler in the keys of other caches."""
    from tilewright import _native

    return f"tilewright-{_native.__version__}"


def _folder(name: str) -> Callable[[], str]:
    def folder() -> str:
        from tilewright import knobs

        return str(getattr(knobs.cache, name))

    return folder


_FOLDERS = {
    "default_cache_dir": _folder("dir"),
    "default_dump_dir": _folder("dump_dir"),
    "default_override_dir": _folder("override_dir"),
}
"""The functions that have the folders of ``triton.knobs.cache`` in releases 2.0 to 3.2."""


def __getattr__(name: str) -> object:
    return kept(globals(), name, _find)


def _find(name: str) -> object:
    if name == "knobs":
        from tilewright import knobs

        return knobs
    if name in _FOLDERS:
        return _FOLDERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
