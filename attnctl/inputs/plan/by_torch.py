"""Head outputs by torch's own kernel, scaled_dot_product_attention, where somebody asks for it.

It reads what a stretch reads and fills the head outputs; scores and weights it never shows. What is done
to scaled scores, rules among them, is added to them: the ops of the derivation are carried out on zeros,
some queries at a time, and what comes of that is the kernel's mask.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.words import all_of
from attnctl.math import Array, Keep, Progress
from attnctl.math.names import HEAD_OUTPUTS
from attnctl.math.ops import Add, Hide, MatMul, MatMulT, Scale, Slope, Softmax
from attnctl.math.rules import Causal

if TYPE_CHECKING:
    from attnctl.math.engine.tiles import Lead, Stretch
    from attnctl.math.steps import Step

ENGINE = "--engine torch"
KERNEL = "scaled_dot_product_attention"
TYPES = ("float32", "float64")
MASKED = 2**20
"""Numbers of a mask at a time."""

ADDED = (Add, Slope, Hide)
"""Ops that add something to a score, whatever the score is; −∞ where it is hidden."""


class KernelCall(NamedTuple):
    """The steps of a stretch, as arguments of torch's kernel."""

    queries: str
    keys: str
    values: str
    scale: float
    scaled: str
    """The step that the masks are added to."""
    added: Sequence[Step]
    mixed: Step


def refuse_unlike_torch(keep: Keep, steps: Collection[str], dtype: str, *, is_edited: bool) -> None:
    """Raise AttnError where a run asks for what torch's kernel has not."""
    if dtype not in TYPES:
        raise AttnError(f"{ENGINE}: numbers in {dtype}, expected {' or '.join(TYPES)}; add --dtype float32")
    if is_edited:
        raise AttnError(f"{ENGINE}: edits change steps inside of the kernel; leave out --edit, or --engine")
    if not steps:
        return

    asked = "all steps" if keep is None else all_of(sorted(steps))
    raise AttnError(
        f"{ENGINE}: {asked} are asked for, and {KERNEL} gives the output alone; add --step {HEAD_OUTPUTS}"
    )


def fill_by_torch(stretch: Stretch | None, progress: Progress | None = None) -> list[list[int]]:
    """Fill the head outputs of a stretch; returns the rows that see nothing, which are 0.

    Raises AttnError where torch is not installed, or its kernel does not do these steps.
    """
    call = call_of(stretch)
    assert stretch is not None  # or it had raised
    torch = import_torch()

    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # of arrays that are only read
        if is_plain(call, stretch):
            attend(torch, call, stretch, is_causal=bool(call.added))
            return []
        return attend_in_parts(torch, call, stretch, progress)


def import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise AttnError(f"{ENGINE}: torch is not installed; pip install torch, or leave it out") from None
    return torch


def call_of(stretch: Stretch | None) -> KernelCall:
    """The call that does what these steps do. Raises AttnError where there is none."""
    if stretch is None:
        raise AttnError(f"{ENGINE}: no attention of scores here; leave out --engine")

    steps = stretch.steps
    kinds = [type(step.op) for step in steps]
    begins_alike = kinds[:2] == [MatMulT, Scale]
    ends_alike = kinds[-2:] == [Softmax, MatMul]
    if not begins_alike or not ends_alike:
        said = all_of([step.name for step in steps])
        raise AttnError(f"{ENGINE}: {KERNEL} does not do these steps: {said}; leave out --engine")
    if not stretch.in_range:
        raise AttnError(f"{ENGINE}: numbers so large that scores overflow; leave out --engine")

    product, scaling, *added, _, mixed = steps
    others = [step.name for step in added if not isinstance(step.op, ADDED)]
    if others:
        raise AttnError(f"{ENGINE}: {KERNEL} has no {all_of(others)}; leave out --engine")

    assert isinstance(scaling.op, Scale)
    queries, keys = product.inputs
    return KernelCall(
        queries=queries,
        keys=keys,
        values=mixed.inputs[1],
        scale=scaling.op.multiplier,
        scaled=scaling.name,
        added=added,
        mixed=mixed,
    )


def is_plain(call: KernelCall, stretch: Stretch) -> bool:
    """True if every query sees every key, or in a square every key up to its own."""
    if not call.added:
        return True

    first = call.added[0]
    hide = first.op
    if len(call.added) > 1 or not isinstance(hide, Hide):
        return False

    has_mask = len(first.inputs) > 1
    kinds = [type(rule) for rule in hide.rules]
    if has_mask or hide.places or kinds != [Causal]:
        return False
    if stretch.queries != stretch.keys:
        return False
    return isinstance(hide.offset, int) and hide.offset == 0


def attend(torch: Any, call: KernelCall, stretch: Stretch, *, is_causal: bool) -> None:
    """Fill the outputs of all heads at once."""
    heads = stretch.lead[-1]
    outputs = stretch.kept[call.mixed.name]

    tensors = []
    for name in (call.queries, call.keys, call.values):
        array = stretch.outside[name]
        by_batch = array.reshape(-1, heads, *array.shape[-2:])
        tensors.append(torch.from_numpy(by_batch))

    kernel = torch.nn.functional.scaled_dot_product_attention
    found = kernel(*tensors, is_causal=is_causal, scale=call.scale).numpy()
    outputs[...] = found.reshape(outputs.shape)


def attend_in_parts(
    torch: Any, call: KernelCall, stretch: Stretch, progress: Progress | None
) -> list[list[int]]:
    """Some queries of a head at a time, with the keys that any of them sees and their mask."""
    kernel = torch.nn.functional.scaled_dot_product_attention
    tasks = stretch.tasks(max(1, MASKED // stretch.keys))
    empty: list[list[int]] = []
    for done, (lead, rows) in enumerate(tasks, 1):
        keys = stretch.visible_keys(lead, rows)
        mask = mask_of(call, stretch, lead, rows=rows, keys=keys)
        blind = np.isneginf(mask).all(axis=-1)
        mask[blind] = 0  # a row that sees nothing is 0 / 0 there

        q = stretch.outside[call.queries][lead][rows]
        k = stretch.outside[call.keys][lead][keys]
        v = stretch.outside[call.values][lead][keys]
        tensors = [torch.from_numpy(array)[None, None] for array in (q, k, v)]
        found = kernel(*tensors, attn_mask=torch.from_numpy(mask), scale=call.scale)

        outputs = stretch.kept[call.mixed.name][lead][rows]
        outputs[...] = found[0, 0].numpy()
        outputs[blind] = 0
        empty += [[*lead, rows.start + int(row)] for row in np.flatnonzero(blind)]
        if progress:
            progress(done, len(tasks))
    return empty


def mask_of(call: KernelCall, stretch: Stretch, lead: Lead, *, rows: slice, keys: slice) -> Array:
    """What is added to the scaled scores of these queries and keys: the steps on scores of 0."""
    shape = (rows.stop - rows.start, keys.stop - keys.start)
    room = np.zeros(shape, stretch.dtype)
    flat = room.reshape(-1)
    made = stretch.compute_tile(
        call.added, lead, rows, keys, scratch=lambda _: flat, instead={call.scaled: room}
    )
    return made[call.added[-1].name]
