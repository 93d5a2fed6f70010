"""`tilewright.tools.linear_layout`: every question against the definition, by trying all coordinates."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest

from tilewright.tools.linear_layout import LinearLayout


def coordinates(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """All points of a space."""
    for values in product(*(range(size) for size in sizes.values())):
        yield dict(zip(sizes, values, strict=True))


def inputs(layout: LinearLayout) -> Iterator[dict[str, int]]:
    """All inputs of a layout."""
    return coordinates({name: 2 ** len(bases) for name, bases in layout.bases})


def image(layout: LinearLayout, point: dict[str, int]) -> dict[str, int]:
    """The image by definition: the exclusive or of the basis of each set bit."""
    result = dict.fromkeys(layout.get_out_dim_names(), 0)
    for name, bases in layout.bases:
        for bit, basis in enumerate(bases):
            if point[name] >> bit & 1:
                for out, value in zip(result, basis, strict=True):
                    result[out] ^= value
    return result


def random_layout(rng: random.Random, *, surjective: bool) -> LinearLayout:
    """A layout of random bases into a tile of 8 by 4."""
    while True:
        bases = [
            (name, [[rng.randrange(8), rng.randrange(4)] for _ in range(bits)])
            for name, bits in (("register", rng.randrange(3)), ("lane", 3), ("warp", rng.randrange(3)))
        ]
        try:
            return LinearLayout.from_bases(bases, ["y", "x"], [8, 4], require_surjective=surjective)
        except ValueError:
            assert surjective


def test_images_and_properties_are_those_of_the_definition() -> None:
    rng = random.Random(7)
    kinds = set()
    for _ in range(60):
        layout = random_layout(rng, surjective=False)
        points = list(inputs(layout))
        images = [layout.apply(point) for point in points]
        assert images == [image(layout, point) for point in points]
        distinct = {tuple(found.values()) for found in images}
        assert layout.is_surjective() == (len(distinct) == 32)
        assert layout.is_injective() == (len(distinct) == len(points))
        assert layout.is_invertible() == (layout.is_surjective() and layout.is_injective())
        kinds.add((layout.is_surjective(), layout.is_injective()))
        columns = [
            image(layout, {**dict.fromkeys(points[0], 0), n: 1 << b})
            for n, bs in layout.bases
            for b in range(len(bs))
        ]
        rows = [
            [c[out] >> bit & 1 for c in columns]
            for out, size in layout.out_dims
            for bit in range(size.bit_length() - 1)
        ]
        assert layout.get_matrix_view() == rows
    assert len(kinds) == 4, "each kind of layout has occurred"


def test_inverses_and_compositions() -> None:
    rng = random.Random(11)
    inverted = 0
    for _ in range(60):
        layout, other = (random_layout(rng, surjective=True) for _ in range(2))
        right = layout.pseudoinvert()
        relative = layout.invert_and_compose(other)
        for point in coordinates({"x": 4, "y": 8}):
            assert layout.apply(right.apply(point)) == point
        for point in inputs(layout):
            assert other.apply(relative.apply(point)) == layout.apply(point)
            assert right.compose(layout).apply(layout.apply(point)) == layout.apply(point)
        if layout.is_invertible():
            inverted += 1
            assert all(layout.invert().apply(layout.apply(point)) == point for point in inputs(layout))
        else:
            with pytest.raises(ValueError, match="no inverse"):
                layout.invert()
    assert inverted


def test_products_repeat_a_layout() -> None:
    inner = LinearLayout.from_bases([("register", [[0, 1], [1, 0]]), ("lane", [[0, 2]])], ["y", "x"])
    outer = LinearLayout.identity_1d(4, "lane", "y") * LinearLayout.identity_1d(2, "warp", "z")
    both = inner * outer
    assert both.out_dims == [("y", 8), ("x", 4), ("z", 2)]
    for point in inputs(both):
        low = inner.apply({"register": point["register"], "lane": point["lane"] % 2})
        high = outer.apply({"lane": point["lane"] // 2, "warp": point["warp"]})
        assert both.apply(point) == {"y": low["y"] + 2 * high["y"], "x": low["x"], "z": high["z"]}
    assert LinearLayout() * inner == inner == inner * LinearLayout()
    assert hash(LinearLayout() * inner) == hash(inner)
    assert (outer * LinearLayout.zeros_1d(2, "lane", "y")).apply({"lane": 4, "warp": 0}) == {"y": 0, "z": 0}
    assert LinearLayout.strided_1d(4, 2, "a", "b").bases == [("a", [[2], [4]])]


def test_it_prints_as_users_know_it() -> None:
    layout = LinearLayout.from_bases([("register", [[1, 0]]), ("lane", [[2, 0], [0, 1]])], ["y", "x"])
    expected = """
 - register=1 -> (1, 0)
 - lane=1 -> (2, 0)
   lane=2 -> (0, 1)
where out dims are: [y (size 4), x (size 2)]"""
    assert str(layout) == expected
    assert layout.get_distributed_view(False).splitlines()[1].split("  ") == ["l0 r1", "l2 r1"]
    assert "l3 r1  (3, 1)" in layout.get_distributed_view(True)
    offsets = LinearLayout.from_bases([("offset", [[0, 1], [1, 1]])], ["y", "x"])
    assert offsets.get_shared_view(False).split() == ["@0", "@1", "@3", "@2"]
    with pytest.raises(ValueError, match='found "offset"'):
        offsets.get_distributed_view(False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearLayout.identity_1d(3, "a", "b"), "power of two, found 3"),
        (lambda: LinearLayout.strided_1d(4, 3, "a", "b"), "stride has to be a power of two, found 3"),
        (lambda: LinearLayout.identity_1d(2**40, "a", "b"), "40 bits together"),
        (lambda: LinearLayout.from_bases([("r", [[3]])], ["d"]), "reach every coordinate"),
        (
            lambda: LinearLayout.from_bases([("r", [[3]])], ["d"], None, False),
            "out_dim_sizes must be provided",
        ),
        (lambda: LinearLayout.from_bases([("r", [[8]])], ["d"], [8]), 'has 8 for "d", whose size is 8'),
        (lambda: LinearLayout.from_bases([("r", [[1, 2]])], ["d"], [8]), "has 2 coordinates"),
        (lambda: LinearLayout.from_bases([("r", [[1]])], ["d"], [2, 2]), "2 sizes: there are 1 dimensions"),
        (lambda: LinearLayout.from_bases([("r", [[1]]), ("r", [[2]])], ["d"]), '"r" is there twice'),
        (lambda: LinearLayout.identity_1d(4, "a", "b").apply({"a": 4}), "out of range: its size is 4"),
        (lambda: LinearLayout.identity_1d(4, "a", "b").apply({"c": 0}), 'no coordinate for dimension "a"'),
        (lambda: LinearLayout.identity_1d(4, "a", "b").apply({}), "is needed, found"),
        (
            lambda: LinearLayout.identity_1d(4, "a", "b").compose(LinearLayout.identity_1d(4, "a", "b")),
            "do not match",
        ),
        (lambda: LinearLayout.zeros_1d(4, "a", "b", 2).pseudoinvert(), "does not reach every coordinate"),
        (
            lambda: LinearLayout.identity_1d(4, "a", "b").invert_and_compose(
                LinearLayout.zeros_1d(4, "a", "b", 4)
            ),
            "does not reach every coordinate that this one reaches",
        ),
    ],
)
def test_what_makes_no_layout_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
