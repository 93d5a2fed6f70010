"""State-space scans and convolutions for `gpu/products.py`: their data and configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import silu

from gpu.product_cases import DEVICE, Config, Problem, Row, random, tiles
from gpu.serving_cases import BRAIN, FILE, blocks


@dataclass
class Scan:
    """The operands of a chunked scan, B and C in one group: bf16, but times and decays."""

    batch: int
    seqlen: int
    heads: int
    hdim: int
    dstate: int
    chunk: int

    def __post_init__(self) -> None:
        self.chunks = self.seqlen // self.chunk
        self.x = random(self.batch, self.seqlen, self.heads, self.hdim, dtype=BRAIN)
        shape = self.batch, self.seqlen, 1, self.dstate
        self.b, self.c = (random(*shape, dtype=BRAIN) for _ in range(2))
        shape = self.batch, self.heads, self.chunks, self.chunk
        self.dt = torch.rand(shape, device=DEVICE) * 0.1
        rates = -torch.rand(self.heads, 1, 1, device=DEVICE) * 4
        self.decay = (self.dt * rates).cumsum(-1)

    @property
    def states_shape(self) -> tuple[int, ...]:
        return self.batch, self.chunks, self.heads, self.hdim, self.dstate

    def in_chunks(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, chunks, heads or groups, chunk, columns] of fp32."""
        return x.unflatten(1, (self.chunks, self.chunk)).transpose(2, 3).float()

    def by_chunk(self, x: torch.Tensor) -> torch.Tensor:
        """Times or decays as [batch, chunks, heads, chunk]."""
        return x.transpose(1, 2)

    def grid(self, rows: int, columns: int) -> Callable[[Config], tuple[int, ...]]:
        """A program for each tile of a chunk's result, chunk and head."""
        return lambda c: (*tiles(rows, columns)(c), self.batch * self.chunks, self.heads)


def chunk_state(scan: Scan) -> Problem:
    """The state that each chunk adds."""
    states = torch.empty(scan.states_shape, device=DEVICE)
    strides = [x.stride()[:3] for x in (scan.x, scan.b, states, scan.dt)]
    sizes = (scan.hdim, scan.dstate, scan.chunk, scan.seqlen, scan.batch, scan.heads)

    def expected() -> torch.Tensor:
        decay, dt = scan.by_chunk(scan.decay), scan.by_chunk(scan.dt)
        factor = torch.exp(decay[..., -1:] - decay) * dt
        return (scan.in_chunks(scan.x) * factor[..., None]).transpose(3, 4) @ scan.in_chunks(scan.b)

    return Problem(
        "chunk_state",
        lambda c, _: (scan.x, scan.b, states, scan.dt, scan.decay, *sizes, *sum(strides, ())),
        scan.grid(scan.hdim, scan.dstate),
        states,
        None,
        expected,
        5e-2,
        file=FILE,
    )


def state_passing(scan: Scan) -> Problem:
    """The state before each chunk, and the last one, which the output has after them."""
    states = torch.randn(scan.states_shape, device=DEVICE)
    dim = scan.hdim * scan.dstate
    out = torch.empty(scan.batch, scan.chunks + 1, scan.heads, dim, device=DEVICE)
    before, final = out[:, :-1], out[:, -1]
    # Both have a slot for the last state, so that their strides are equal.
    given = torch.empty_like(out)[:, :-1].copy_(states.flatten(3))
    strides = (*given.stride()[:3], final.stride(0), final.stride(1), *scan.decay.stride()[:3])

    def expected() -> torch.Tensor:
        factor = torch.exp(scan.by_chunk(scan.decay)[..., -1, None])
        found = [torch.zeros_like(final)]
        for chunk in range(scan.chunks):
            found.append(factor[:, chunk] * found[-1] + given[:, chunk])
        return torch.stack(found, 1)

    return Problem(
        "state_passing",
        lambda c, _: (given, before, final, scan.decay, dim, scan.chunks, scan.chunk, *strides),
        lambda c: (-(-dim // c["BLOCK_N"]), scan.batch, scan.heads),
        out,
        None,
        expected,
        1e-3,
        file=FILE,
    )


def chunk_scan(scan: Scan) -> Problem:
    """The output of each chunk."""
    # One group, so the axis of groups of C @ B.T is that of C and B.
    c, b = (scan.in_chunks(x) for x in (scan.c, scan.b))
    cb = c @ b.transpose(3, 4)
    # So large that neither the states nor the chunk itself decides the output.
    states = random(*scan.states_shape, dtype=BRAIN) / 8
    d = torch.randn(scan.heads, device=DEVICE) / 4
    out = torch.empty_like(scan.x)
    operands = (cb, scan.x, scan.c, states, d, out, scan.dt, scan.decay)
    strides = [x.stride()[:3] for x in (cb, scan.x, scan.c, states, scan.dt)]
    sizes = (scan.hdim, scan.chunk, scan.seqlen, scan.batch, scan.heads)

    def expected() -> torch.Tensor:
        decay, dt = scan.by_chunk(scan.decay), scan.by_chunk(scan.dt)
        x = scan.in_chunks(scan.x)
        found = torch.empty_like(x)
        # A head at a time: the decays of all heads would be a gigabyte.
        for head in range(scan.heads):
            mine, times = decay[:, :, head], dt[:, :, head]
            factor = torch.exp(mine[..., :, None] - mine[..., None, :]).tril() * times[..., None, :]
            found[:, :, head] = (cb[:, :, 0] * factor) @ x[:, :, head]
            new = c[:, :, 0] @ states[:, :, head].float().transpose(2, 3)
            found[:, :, head] += new * torch.exp(mine)[..., None]
        found += x * d[:, None, None]
        return found.transpose(2, 3).flatten(1, 2)

    return Problem(
        "chunk_scan",
        lambda c, _: (*operands, *sizes, *sum(strides, ())),
        scan.grid(scan.chunk, scan.hdim),
        out,
        None,
        expected,
        5e-2,
        {"DSTATE": scan.dstate},
        file=FILE,
    )


def convolution(batch: int, dim: int, width: int) -> Problem:
    """One step of a causal convolution. The output is that of the layer, then the new states."""
    x = random(batch, dim, dtype=BRAIN)
    w, bias = random(dim, width, dtype=BRAIN), random(dim, dtype=BRAIN)
    state = random(batch, width - 1, dim, dtype=BRAIN)
    lines = torch.randperm(batch, device=DEVICE).int()
    out = torch.empty(batch * width, dim, device=DEVICE, dtype=BRAIN)
    y, new_state = out[:batch], out[batch:].view(state.shape)
    operands = (x, w, bias, state, new_state, lines, y)

    def expected() -> torch.Tensor:
        taps = torch.cat((state[lines.long()], x[:, None]), 1)
        shifted = torch.empty_like(state)
        shifted[lines.long()] = taps[:, 1:]
        sums = (taps.float() * w.float().T).sum(1) + bias.float()
        return torch.cat((silu(sums), shifted.flatten(0, 1).float()))

    return Problem(
        "causal_conv_update",
        lambda c, _: (*operands, dim, x.stride(0), *state.stride()[:2]),
        lambda c: (batch, -(-dim // c["BLOCK_N"])),
        out,
        None,
        expected,
        2e-2,
        {"WIDTH": width},
        file=FILE,
    )


def rows(small: bool) -> Iterator[Row]:
    """Mamba-2 of 2.7 billion weights, four sequences; and the convolution of a step."""
    batch, seqlen, heads, hdim, dstate, chunk = (
        (1, 64, 3, 16, 16, 32) if small else (4, 4096, 80, 64, 128, 256)
    )

    def make(problem: Callable[[Scan], Problem]) -> Callable[[], Problem]:
        return lambda: problem(Scan(batch, seqlen, heads, hdim, dstate, chunk))

    size = f"{batch}x{seqlen}, {heads} heads of {hdim}"
    yield Row(
        f"serving: state-space chunk state {size}",
        "TFLOP/s",
        2.0 * batch * seqlen * heads * hdim * dstate,
        1.0,
        None,
        blocks(
            "MNK",
            *("64x128x32 w4 s3", "64x128x64 w4 s3", "64x128x64 w8 s3", "64x64x64 w4 s4"),
            *("64x32x32 w4 s4", "32x64x32 w4 s3"),
        ),
        make(chunk_state),
    )
    states = batch * heads * hdim * dstate
    yield Row(
        f"serving: state-space state passing {size}",
        "GB/s",
        # In fp32: the states are read, and the states before and the last ones written.
        4.0 * states * (2 * (seqlen // chunk) + 1),
        1.0,
        None,
        blocks("N", "1024 w4 s2", "512 w4 s2", "2048 w4 s2", "256 w2 s2", "64 w2 s2"),
        make(state_passing),
    )
    # C @ state, and the causal half of C @ B.T times x.
    yield Row(
        f"serving: state-space chunk scan {size}",
        "TFLOP/s",
        2.0 * batch * seqlen * heads * hdim * (dstate + (chunk + 1) / 2),
        1.0,
        None,
        blocks(
            "MNK",
            *("128x64x64 w4 s3", "128x64x32 w4 s4", "128x64x64 w8 s3", "64x64x32 w4 s4"),
            *("64x64x64 w4 s3", "32x32x32 w4 s3"),
        ),
        make(chunk_scan),
    )
    dim, width = (96, 4) if small else (8192, 4)
    for count in (3,) if small else (64, 512):
        yield Row(
            f"serving: causal convolution of a step, {count}x{dim}",
            "GB/s",
            # Of bf16: x, the output, the state that is read and written, weights and bias.
            2.0 * (count * dim * 2 * width + dim * (width + 1)),
            1.0,
            None,
            blocks("N", "256 w4 s2", "512 w4 s2", "1024 w4 s2", "256 w2 s2", "128 w1 s2"),
            lambda count=count: convolution(count, dim, width),
        )
