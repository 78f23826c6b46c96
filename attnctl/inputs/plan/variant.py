"""From settings and sizes to the kind of attention: for sentences, arrays, models and cases alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnctl.base.errors import raise_all
from attnctl.inputs.arrays.facts import Facts, rotary
from attnctl.inputs.config.settings import SINUSOIDAL, Settings
from attnctl.inputs.plan.prepared import Named
from attnctl.math.derivation import Axes, LayerParts, Variant
from attnctl.math.kind import HEADS, chosen
from attnctl.math.names import EMBEDDINGS, TABLE
from attnctl.math.ops import Sinusoid
from attnctl.math.rules import PerBatch


def variant(
    asked: Settings, facts: Facts, named: Named, offset: PerBatch = 0, layer: LayerParts | None = None
) -> Variant:
    """The kind of attention that settings ask for on arrays of these sizes, `offset` keys before query 0.

    Sinusoidal positions are those of the embeddings among the arrays.
    """
    raise_all(uncovered(asked, facts.keys))
    x = named[EMBEDDINGS][0] if asked.positions == SINUSOIDAL else None
    return Variant(
        given={name: how for name, (_, how) in named.items()},
        d_k=facts.d_k,
        kv_share=facts.heads // facts.kv_heads,
        sinusoid=None if x is None else Sinusoid(x.shape[-2], x.shape[-1], facts.past),
        rotary=rotary(asked),
        offset=offset,
        past=facts.past,
        batch=facts.batch is not None,
        axes=axes_of(named),
        layer=layer or LayerParts(),
        **chosen(asked),
    )


def uncovered(asked: Settings, keys: int) -> Iterator[str]:
    """Ranges of chunks that are not those of all keys, a cache's among them."""
    if isinstance(asked.chunks, tuple) and (last := asked.chunks[-1][1]) != keys:
        place = asked.where(("chunks",))
        yield f"{place}: the ranges end at {last}, but there are {keys} keys; end the last one at {keys}"


def with_norm_rows(asked: Settings, *, one_row: bool) -> Settings:
    """The settings with norms that take all heads as one row, where nobody says what else is one."""
    if asked.qk_norm is None or asked.qk_norm.over is not None or not one_row:
        return asked
    return asked.with_(qk_norm=replace(asked.qk_norm, over=HEADS))


def axes_of(named: Named) -> dict[str, Axes]:
    """The axes of what is given with more or fewer of them than our layout has: the last ones."""
    return {
        name: ("batch", *TABLE[name].axes)[-array.ndim :]
        for name, (array, _) in named.items()
        if array.ndim != len(TABLE[name].axes)
    }
