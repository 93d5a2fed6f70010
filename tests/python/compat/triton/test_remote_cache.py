"""The stores of files that machines share: ``RemoteCacheManager``, Redis with a stand-in for its module, and their
faults."""

from __future__ import annotations

import json
import os
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.errors import LaunchWarning
from tilewright.runtime import cache

KEY = "ab" * 32


class ServerError(Exception):
    """An error of a store, which is no ``OSError``, as those of the module ``redis``."""


class Server:
    """A stand-in for the class ``redis.Redis``: one server for all processes, which may be down."""

    content: dict[str, bytes]
    is_down: bool
    addresses: list[tuple[str, int]]

    def __init__(self, host: str, port: int) -> None:
        self.addresses.append((host, port))

    def mget(self, keys: list[str]) -> list[bytes | None]:
        self._answer()
        return [self.content.get(key) for key in keys]

    def set(self, key: str, value: bytes) -> None:
        self._answer()
        assert isinstance(value, bytes)
        self.content[key] = value

    def _answer(self) -> None:
        if self.is_down:
            raise ServerError("connection refused")


@pytest.fixture
def server(tmp_path, monkeypatch):
    class Redis(Server):
        content = {}  # noqa: RUF012
        is_down = False
        addresses = []  # noqa: RUF012

    module = types.ModuleType("redis")
    module.Redis = Redis
    monkeypatch.setitem(sys.modules, "redis", module)
    for name in ("TILEWRIGHT_CACHE_DIR", "TRITON_CACHE_AUTOTUNING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "one"))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "tilewright.runtime.cache:RemoteCacheManager")
    backend = "tilewright.runtime.cache:RedisRemoteCacheBackend"
    monkeypatch.setenv("TRITON_REMOTE_CACHE_BACKEND", backend)
    return Redis


def manager_of(folder: Path, monkeypatch, key: str = KEY):
    """The manager of a process on a host with a folder of its own."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return cache.get_cache_manager(key)


def test_hosts_share_files(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_REDIS_HOST", "far")
    monkeypatch.setenv("TRITON_REDIS_PORT", "99")
    one = manager_of(tmp_path / "one", monkeypatch)
    assert one.get_file("a.txt") is None
    group = {name: one.put(name.encode(), name) for name in ("a.txt", "b.txt")}
    one.put("text", "c.txt", binary=False)
    one.put_group("all", group)
    base = cache._base32(KEY)
    assert server.addresses == [("far", 99)]
    assert server.content == {
        f"triton:{base}:a.txt": b"a.txt",
        f"triton:{base}:b.txt": b"b.txt",
        f"triton:{base}:c.txt": b"text",
        f"triton:{base}:__grp__all": json.dumps({"child_paths": ["a.txt", "b.txt"]}).encode(),
    }
    two = manager_of(tmp_path / "two", monkeypatch)
    path = Path(two.get_file("c.txt"))
    assert (path.read_text(), path.parent) == ("text", tmp_path / "two" / base)
    found = two.get_group("all")
    assert {name: Path(path).read_bytes() for name, path in found.items()} == {
        "a.txt": b"a.txt",
        "b.txt": b"b.txt",
    }
    assert two.get_group("none") is None
    # A file that the server has dropped is missing.
    del server.content[f"triton:{base}:b.txt"]
    assert list(two.get_group("all")) == ["a.txt"]
    assert manager_of(tmp_path / "two", monkeypatch, "cd" * 32).get_file("a.txt") is None


def test_the_format_of_keys(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_REDIS_KEY_FORMAT", "{filename}@{key}")
    manager_of(tmp_path / "one", monkeypatch).put(b"x", "a")
    assert list(server.content) == [f"a@{cache._base32(KEY)}"]


def test_overrides_and_dumps_are_local(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "dump"))
    monkeypatch.setenv("TRITON_OVERRIDE_DIR", str(tmp_path / "override"))
    dump = cache.get_dump_manager(KEY)
    dump.put("text", "a")
    folder = tmp_path / "override" / cache._base32(KEY)
    folder.mkdir(parents=True)
    (folder / "a").write_text("mine")
    assert Path(cache.get_override_manager(KEY).get_file("a")).read_text() == "mine"
    assert server.content == {}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"3", b"null", b'{"child_paths": 3}', b'{"other": 1}', b"\xff"]
)
def test_a_damaged_group_is_none(server, tmp_path, monkeypatch, text):
    manager = manager_of(tmp_path / "one", monkeypatch)
    manager.put(text, "__grp__g")
    assert manager.get_group("g") is None
    monkeypatch.delenv("TRITON_CACHE_MANAGER")
    assert cache.get_cache_manager(KEY).get_group("g") is None


def test_a_group_has_no_files_of_other_folders(server, tmp_path, monkeypatch):
    manager = manager_of(tmp_path / "one", monkeypatch)
    names = ["../escaped", str(tmp_path / "absolute"), "inside"]
    for name in names:
        server.content[f"triton:{cache._base32(KEY)}:{name}"] = b"x"
    manager.put(json.dumps({"child_paths": names}), "__grp__g")
    assert list(manager.get_group("g")) == ["inside"]
    assert not list(tmp_path.rglob("escaped"))
    assert not list(tmp_path.rglob("absolute"))


@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def tune() -> int:
    """Tunes a kernel in a tuner of its own; returns the number of configurations that were measured."""
    measured = []

    def bench(call, quantiles):
        call()
        measured.append(call)
        return [1.0, 1.0, 1.0]

    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    kernel = triton.autotune(configs=configs, key=["n"], do_bench=bench, cache_results=True)(scale)
    kernel[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](np.ones(64, np.float32), 64)
    return len(measured)


def test_hosts_share_timings(server, tmp_path, monkeypatch):
    assert tune() == 2
    (key,) = server.content
    assert key.endswith("scale.autotune.json")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "two"))
    assert tune() == 0
    # Bytes that are damaged on the way, or at the server.
    text = server.content[key]
    for damaged in (text[:-20], text.replace(b"1.0", b"1.5", 1), b"", b"\xff"):
        server.content[key] = damaged
        assert tune() == 2, damaged
        assert tune() == 0, "the timings were stored anew"


def test_a_server_that_is_down_stops_no_program(server, tmp_path):
    server.is_down = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tune() == 2
    messages = [str(warning.message) for warning in caught]
    assert messages == ["timings are not kept on disk: ServerError: connection refused"]
    assert caught[0].category is LaunchWarning
    server.is_down = False
    assert tune() == 2
    assert tune() == 0


def test_a_local_folder_that_cannot_be_written_stops_no_program(server, tmp_path, monkeypatch):
    assert tune() == 2
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(LaunchWarning, match="timings are not kept on disk"):
        assert tune() == 2
    assert os.listdir(tmp_path / "one")
