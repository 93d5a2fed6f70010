"""The state of a generator of ``cuda`` while it is the processor's: 16 bytes, as on a GPU, the seed and an offset.

The numbers come from a generator of the CPU, whose state is some 5,000 bytes. They follow the 16 in the storage of
the tensor, which is saved and restored with it; copies that lack them find them among the latest states of this
process. Their offset is a multiple of 2^32 that counts states. Any other offset comes from the program, such as from a
library that draws numbers itself and adds their count to the offset: then seed and offset determine the numbers that
follow.
"""

from __future__ import annotations

import sys
from typing import Any

BYTES = 16

_STEP = 1 << 32

_MAX_KEPT_STATES = 4096
"""The maximum number of states that are kept for copies: 20 MB."""

_kept: dict[tuple[int, int], bytes] = {}
_names: dict[bytes, tuple[int, int]] = {}
_latest: dict[int, int] = {}
"""The index of the latest state of each seed."""
_origins: dict[int, int] = {}
"""The seeds that programs mean, by the seeds that an offset was mixed into."""


def get(generator: Any) -> Any:
    """Returns the state of a generator of the CPU in the form of ``cuda``."""
    torch = sys.modules["torch"]
    state = generator.get_state()
    name = _name(bytes(state.tolist()), generator.initial_seed())
    both = torch.cat([_bytes(name), state, _bytes(name)])
    return both[:BYTES]


def put(generator: Any, state: Any) -> None:
    """Restores a generator of the CPU from a state in the form of ``cuda``."""
    torch = sys.modules["torch"]
    if state.dtype != torch.uint8 or state.numel() != BYTES:
        raise RuntimeError("RNG state is wrong size: that of a generator of 'cuda' has 16 bytes")
    said = bytes(state.tolist())
    seed, offset = (int.from_bytes(said[at : at + 8], "little") for at in (0, 8))
    storage = state.untyped_storage()
    size = generator.get_state().numel()
    if storage.nbytes() == size + 2 * BYTES and state.storage_offset() == 0:
        whole = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
        if bytes(whole[-BYTES:].tolist()) == said:
            generator.set_state(whole[BYTES:-BYTES].clone())
            return
    if (kept := _kept.get((seed, offset))) is not None:
        generator.set_state(torch.tensor(list(kept), dtype=torch.uint8, device="cpu"))
    elif offset == 0:
        generator.manual_seed(seed)
    elif offset % _STEP:
        mixed = _mixed(seed, offset)
        _origins[mixed] = seed
        generator.manual_seed(mixed)
        _keep((seed, offset), bytes(generator.get_state().tolist()))
    else:
        raise RuntimeError(
            "tilewright: this state of a generator of 'cuda' is a copy of one that is not known any more: here 'cuda' "
            "is the CPU, whose states are longer; keep what get_state() has returned, or what torch.save() has written"
        )


def offset_of(generator: Any) -> int:
    """The offset of a generator's state."""
    return int.from_bytes(bytes(get(generator).tolist())[8:], "little")


def put_offset(generator: Any, offset: int) -> None:
    """Gives a generator's state another offset."""
    state = get(generator).clone()
    state[8:] = _bytes((0, offset))[8:]
    put(generator, state)


def _name(state: bytes, initial_seed: int) -> tuple[int, int]:
    """Returns the seed and the offset that identify a state from now on."""
    known = _names.get(state)
    if known is None:
        seed = _origins.get(initial_seed, initial_seed)
        fresh = sys.modules["torch"]._C.Generator().manual_seed(initial_seed).get_state()
        if seed == initial_seed and bytes(fresh.tolist()) == state:
            return seed, 0
        _latest[seed] = _latest.get(seed, 0) + 1
        known = seed, _latest[seed] * _STEP
    _keep(known, state)
    return known


def _keep(name: tuple[int, int], state: bytes) -> None:
    """Keeps a state, as the latest one."""
    _kept.pop(name, None)
    _kept[name] = state
    _names[state] = name
    if len(_kept) > _MAX_KEPT_STATES:
        oldest = next(iter(_kept))
        _names.pop(_kept.pop(oldest), None)


def _bytes(numbers: tuple[int, int]) -> Any:
    torch = sys.modules["torch"]
    text = b"".join(number.to_bytes(8, "little") for number in numbers)
    return torch.tensor(list(text), dtype=torch.uint8, device="cpu")


def _mixed(seed: int, offset: int) -> int:
    """Returns a seed that depends on both."""
    import hashlib

    return int.from_bytes(hashlib.sha256(f"{seed} {offset}".encode()).digest()[:8], "little") >> 1
