"""Products in tiles: whatever rows stand beside a row, and wherever it stands, it has the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from attnctl.math.ops import products
from attnctl.math.ops.products import TILE, find_period, in_tiles, multiply_tiles, times, times_heads

SHAPES = [(384, 384), (384, 1536), (16, 24), (37, 53), (1, 1)]


def drawn(shape, dtype, *, by_rows=False):
    w = np.random.RandomState(1).standard_normal(shape[::-1]).astype(dtype).T
    return np.ascontiguousarray(w) if by_rows else w


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sentence_has_its_bits_in_any_place(shape, by_rows, dtype):
    """First, in the middle, alone; with the tile before it full, or not."""
    w = drawn(shape, dtype, by_rows=by_rows)
    rows = np.random.RandomState(0).standard_normal((TILE // 7, 9, shape[0])).astype(dtype)
    with in_tiles():
        whole = times(rows, w)
        assert np.allclose(whole, rows @ w, rtol=1e-4, atol=1e-4)
        for part in ([0], [5], [3, 5, 1], [*range(20, 27), 0]):
            assert times(rows[part], w).tobytes() == whole[part].tobytes()


@pytest.mark.parametrize("period", [1, 4, 12])
def test_sentences_begin_where_the_order_begins(period):
    """A BLAS whose order depends on the place: row i of a tile is off by i modulo the period."""

    class Blas(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, out=None):
            x, w = (each.view(np.ndarray) for each in inputs)
            assert x.shape[-2] == TILE
            found = x @ w + (np.arange(TILE) % period)[:, None]
            if out is None:
                return found
            out[0][...] = found
            return out[0]

    x = np.random.RandomState(0).rand(40, 5, 3)
    w = np.random.RandomState(1).rand(3, 2).view(Blas)
    whole = multiply_tiles(x, w, period)
    assert whole.shape == (40, 5, 2)
    for at in (0, 7, 39):
        assert np.array_equal(multiply_tiles(x[at : at + 1], w, period), whole[at : at + 1])
    assert np.allclose(whole[0] - x[0] @ w.view(np.ndarray), (np.arange(5) % period)[:, None])


def test_the_period_is_that_of_the_sums(monkeypatch):
    """What gives each place an order of its own has none."""

    def order(period):
        def repeat(rows, count, axis):
            return rows + np.zeros((1, count, 1)) + (np.arange(count) % period)[:, None] / 1e6

        monkeypatch.setattr(products.np, "repeat", repeat)
        find_period.cache_clear()
        return find_period((8, 8), True, "<f8")

    try:
        assert [order(each) for each in (1, 2, 12, 5, 192)] == [1, 2, 12, None, None]
    finally:
        monkeypatch.undo()
        find_period.cache_clear()


def test_where_no_period_is_found_each_sentence_goes_alone(monkeypatch):
    monkeypatch.setattr(products, "find_period", lambda *_: None)
    x, w = np.random.RandomState(0).rand(3, 5, 4), np.random.RandomState(1).rand(4, 6)
    with in_tiles():
        assert times(x, w).tobytes() == (x @ w).tobytes()


def test_heads_are_columns_of_one_matrix():
    x, w = np.random.RandomState(0).rand(3, 5, 4), np.random.RandomState(1).rand(2, 4, 6)
    plain = times_heads(x, w)
    assert plain.shape == (3, 2, 5, 6)
    with in_tiles():
        assert np.allclose(times_heads(x, w), plain, rtol=1e-14)
    assert not products.TILED.get()
