"""Edits of one step that no mistake is named after: what a slip of any kind may make of its numbers.

Each is a function of the step's right numbers and of chance; None where the step has no room for it.
"""

from __future__ import annotations

import numpy as np

STEPS = (
    "Q", "K", "V", "Q_rotated", "K_rotated", "K_shared", "V_shared", "scores", "scaled_scores",
    "softcapped_scores", "biased_scores", "masked_scores", "attention_weights", "head_outputs", "concat",
    "output",
)  # fmt: skip
"""What may be edited, in the order in which it is computed."""


def wide_axes(x):
    return [at for at, size in enumerate(x.shape) if size > 1]


def some_axis(x, rng):
    return int(rng.choice(wide_axes(x))) if wide_axes(x) else None


def some_cell(x, rng):
    finite = np.argwhere(np.isfinite(x))
    return tuple(finite[rng.integers(len(finite))])


def permuted(x, rng):
    at = some_axis(x, rng)
    return None if at is None else x.take(rng.permutation(x.shape[at]), axis=at)


def shifted(x, rng):
    """Each slice where the next one should be, and zeros at the end; or the first one there."""
    at = some_axis(x, rng)
    if at is None:
        return None
    out = np.roll(x, -1, axis=at)
    if rng.random() < 0.5 and np.isfinite(x).all():
        np.moveaxis(out, at, 0)[-1] = 0
    return out


def slice_scaled(x, rng):
    at = some_axis(x, rng)
    if at is None:
        return None
    out = x.copy()
    np.moveaxis(out, at, 0)[rng.integers(x.shape[at])] *= rng.choice([0.5, 2.0, 3.0, 1.7])
    return out


def slices_scaled(x, rng):
    """A factor of its own for each slice."""
    at = some_axis(x, rng)
    if at is None:
        return None
    factors = rng.uniform(0.5, 3.0, x.shape[at])
    return np.moveaxis(np.moveaxis(x, at, -1) * factors, -1, at)


def one_slice_for_another(x, rng):
    at = some_axis(x, rng)
    if at is None:
        return None
    here, there = rng.permutation(x.shape[at])[:2]
    out = x.copy()
    np.moveaxis(out, at, 0)[here] = np.moveaxis(x, at, 0)[there]
    return out


def one_slice_for_all(x, rng):
    at = some_axis(x, rng)
    return None if at is None else np.broadcast_to(x.take([0], axis=at), x.shape).copy()


def slices_blank(x, rng):
    at = some_axis(x, rng)
    if at is None:
        return None
    out = x.copy()
    np.moveaxis(out, at, 0)[rng.permutation(x.shape[at])[: rng.integers(1, 3)]] = 0
    return out


def multiplied(x, rng):
    return np.where(np.isfinite(x), x * rng.choice([0.37, 0.5, 2.0, -1.0, 1.01]), x)


def raised(x, rng):
    return x + rng.choice([0.1, -0.25, 3.0])


def one_cell(x, rng):
    out = x.copy()
    out[some_cell(x, rng)] += rng.choice([0.5, -1.25])
    return out


def one_cell_nan(x, rng):
    out = x.copy()
    out[some_cell(x, rng)] = np.nan
    return out


def some_cells(x, rng):
    """Cells in places without a rule."""
    chosen = rng.random(x.shape) < 0.15
    return np.where(chosen & np.isfinite(x), rng.standard_normal(x.shape), x)


def slice_noisy(x, rng):
    at = some_axis(x, rng)
    if at is None:
        return None
    out = x.copy()
    part = np.moveaxis(out, at, 0)[rng.integers(x.shape[at])]
    part += np.where(np.isfinite(part), rng.standard_normal(part.shape), 0)
    return out


def bent(x, rng):
    del rng
    return np.where(np.isfinite(x), np.sin(3 * np.where(np.isfinite(x), x, 0)), x)


def turned_over(x, rng):
    """Two axes of one size exchanged."""
    pairs = [(a, b) for a in range(x.ndim) for b in range(a) if x.shape[a] == x.shape[b] > 1]
    return x.swapaxes(*pairs[rng.integers(len(pairs))]) if pairs else None


def laid_out_anew(x, rng):
    """Read in another order of its axes."""
    order = rng.permutation(x.ndim)
    return x.transpose(order).reshape(x.shape)


def flipped(x, rng):
    at = some_axis(x, rng)
    return None if at is None else np.flip(x, at)


def band_changed(x, rng):
    """What is so many keys from the query."""
    if x.ndim < 3:
        return None
    queries, keys = x.shape[-2:]
    away = np.arange(keys)[None, :] - np.arange(queries)[:, None]
    by = rng.integers(-1, 3)
    return np.where((away == by) & np.isfinite(x), 1 + x**2, x)


def sights_changed(x, rng):
    """Some keys hidden that are seen, in one head or in all."""
    if x.ndim < 3:
        return None
    chosen = rng.random(x.shape[-2:]) < rng.choice([0.04, 0.2])
    chosen = np.broadcast_to(chosen, x.shape).copy()
    if x.shape[-3] > 1 and rng.random() < 0.5:
        chosen[..., 1:, :, :] = False
    return np.where(chosen, -np.inf, x)


EDITS = {
    edit.__name__: edit
    for edit in (
        permuted, shifted, slice_scaled, slices_scaled, one_slice_for_another, one_slice_for_all,
        slices_blank, multiplied, raised, one_cell, one_cell_nan, some_cells, slice_noisy, bent,
        turned_over, laid_out_anew, flipped, band_changed, sights_changed,
    )
}  # fmt: skip

OF_MASKED = {"sights_changed"}
"""Edits of masked scores alone: elsewhere −∞ is no number."""


def from_other_step(name, x, before, rng):
    """A head of another step in the place of one."""
    others = [each for each in ("Q", "K", "V") if each != name and each in before]
    others = [each for each in others if before[each].shape[-2:] == x.shape[-2:]]
    if name not in {"Q", "K", "V"} or not others:
        return None
    other = before[rng.choice(others)]
    out = x.copy()
    out[..., rng.integers(x.shape[-3]), :, :] = other[..., rng.integers(other.shape[-3]), :, :]
    return out
