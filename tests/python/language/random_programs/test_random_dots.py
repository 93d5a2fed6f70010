"""Random programs with loops of products, against binary64. `fuzz_dots.py` tries others for hours."""

import os

import pytest
from fuzz_dots import launch, shrink
from random_dots import Program

from tilewright.runtime.errors import OutOfResources

# `TILEWRIGHT_SEEDS=100..200` tries these. Those of the second list have found something.
SEEDS = [
    *range(*map(int, os.environ.get("TILEWRIGHT_SEEDS", "0..20").split(".."))),
    *[143, 195, 1035, 1051, 1094],
]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_products(seed, device):
    check(Program(seed), device)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_masks(seed, device):
    """Loads of loops and stores have masks of any form."""
    check(Program(seed, has_conditions=True), device)


def check(program, device):
    try:
        _, wrong = launch(program, device)
    except OutOfResources as error:
        pytest.skip(str(error))
    assert not wrong, f"{wrong}\n{program.text}"


WORDS = [
    *[
        "tl.make_block_ptr",
        "tl.make_tensor_descriptor",
        "TensorDescriptor.from_tensor",
        "_order +",
        "_ptrs +=",
    ],
    *["warp_specialize=True", "loop_unroll_factor", "disallow_acc_multi_buffer", "tl.static_range", "while "],
    *["tl.math.exp2", "tl.program_id(1)", "tl.num_programs(0)", "atomic_add", "num_ctas=2", "num_warps=16"],
    *[
        ".T)",
        ".T,",
        "other=1",
        "'int8'",
        "'float8_e4m3fn'",
        "'float32'",
        "tf32x3",
        "% ",
        "_half in",
        "if at !=",
        *["~(", "tl.where(", " ^ ", "_flags +", "_limit"],
        *["associative_scan(", "tl.flip(", "_part1_"],
    ],
]


def test_programs_have_what_is_to_be_tested():
    texts = [Program(seed).text for seed in range(80)]
    counts = {word: sum(word in text for text in texts) for word in WORDS}
    assert min(counts.values()) >= 2, counts
    assert sum(text.count("acc") > 3 and text.count("loop1_k in") > 0 for text in texts) >= 20


class Fails:
    """Replaces a process in which programs with two loops and warp partitions fail, and others in another way."""

    def run(self, seed, plain):
        text = Program(seed, plain).text
        is_it = "loop1_k" in text and "warp_specialize" in text
        return (
            {"failure": "sim:sm_90: panic", "said": f"at {len(text)}"}
            if is_it
            else {"failure": "wrong", "said": ""}
        )


def test_a_program_that_fails_is_shrunk():
    fails = Fails()
    seed = next(seed for seed in range(100) if fails.run(seed, frozenset())["failure"] != "wrong")
    plain = shrink(fails, seed, frozenset(), "sim:sm_90: panic: at ")
    taken = Program(seed, plain).decisions.taken
    assert fails.run(seed, plain)["failure"] != "wrong"
    # Two loops, and what asks for warps in one of them: a loop that says what it asks for.
    assert sum(place > 0 for place in taken.values()) <= 4, taken
