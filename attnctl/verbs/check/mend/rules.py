"""Which changes are tried of which mistake: of one that is known, those alone.

A change of another kind that makes the numbers agree would only hide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attnctl.math.names import CONCAT, HEAD_OUTPUTS, MASKED, OUTPUT, SCALED, WEIGHTS, X
from attnctl.verbs.check.mend import axes, heads, made, masks, names, scales, sums
from attnctl.verbs.check.mend.change import Rule

AXES = (axes.keep_axis, axes.change_axis, axes.say_axis)
SCALES = (
    scales.change_size,
    scales.take_root,
    scales.add_scale,
    scales.scale_products_of_numbers,
    scales.leave_out_scale,
    scales.turn_scale_round,
)
TRIANGLES = (masks.move_diagonal, masks.exchange_triangle, masks.change_comparison, sums.shift_by_one)
ALIGNED = (masks.align_triangle, masks.align_flag)
SENSES = (masks.negate, masks.exchange_branches, masks.negate_comparison, masks.exchange_triangle)
LAID = (masks.fill_in_less, masks.keep_what_is_filled, masks.turn_mask, masks.turn_unsqueezed)
# A sum with what hides nothing loses a bias: only where it is known that a mask was meant.
HIDDEN = (*LAID, masks.hide_instead)
LATE = (masks.share_again, masks.hide_instead)
NAMES = (names.use_another_name, names.use_another_key)
TURNS = (heads.turn_factors, heads.turn, heads.change_letters)
SPLITS = (heads.split_heads, heads.turn_reshaped, heads.change_pattern)
ALIKE = (names.call_alike,)
POSITIONS = (sums.start_positions, sums.move_start)

RULES_OF_MISTAKE: Mapping[str, Sequence[Rule]] = {
    "no-max-subtraction": (axes.take_off_maximum,),
    "softmax": AXES,
    "no-softmax": AXES,
    "no-scale": SCALES,
    # A temperature, or a model's own scale, may be meant.
    "scale-other": (scales.take_root, scales.change_measured_size),
    "scale": SCALES,
    "mask-inverted": SENSES,
    "mask-after-softmax": LATE,
    "mask-unasked": (masks.leave_out_mask,),
    "mask-ignored": (*HIDDEN, sums.cut_cache, *SENSES, *TRIANGLES),
    "mask": (*SENSES, *TRIANGLES, *HIDDEN),
    "causal-aligned": ALIGNED,
    "causal-offset": (*TRIANGLES, *ALIGNED),
    "causal": TRIANGLES,
    "padding": (*HIDDEN, *SENSES),
    "window": TRIANGLES,
    "rule": TRIANGLES,
    "heads-split": SPLITS,
    "heads-merged": (heads.merge_heads, heads.change_pattern),
    "heads-in-other-order": (heads.change_pattern, heads.merge_heads),
    "kv-heads": (heads.repeat_each,),
    "projection": (*NAMES, names.exchange_targets),
    "qkv-packing": (names.exchange_targets,),
    "query-key": (*TURNS, *NAMES),
    "weight-transposed": (heads.turn,),
    "weights-transposed": (heads.change_letters, heads.turn_factors, heads.turn),
    "weights-applied-to-wrong": (*NAMES, names.exchange_targets, names.exchange_joined),
    "output-projection": (names.apply_unused,),
    "positions-missing": (names.apply_unused,),
    "alibi": (sums.change_sign,),
    "bias-after-softmax": (masks.move_before_softmax,),
    "rotary-pairs": (heads.repeat_all,),
    "rotary-start": POSITIONS,
    "rotary-missing": ALIKE,
    "rotary-one-sided": ALIKE,
    "norm-missing": ALIKE,
    "memory-exchanged": (names.use_another_argument, *NAMES),
    "values-shifted": (names.exchange_joined,),
    "residual-added": (names.leave_out_term,),
    "dropout": (sums.train_only,),
    "batch-first": (sums.put_batch_first,),
    "online": (sums.rescale_sum,),
    "rows-are-one-list": (made.make_each_row,),
    "values-never-read": (made.read_unused,),
    "norm-never-read": (made.read_unused,),
    "bias-missing": (made.add_unused,),
    "written-into-integers": (sums.make_floats,),
    "sinusoid-waves": (made.exchange_waves,),
}
"""By the first words of its name."""

RULES_OF_STEP: Mapping[str, Sequence[Rule]] = {
    X: (names.apply_unused, sums.put_batch_first),
    "Q": (*NAMES, *SPLITS, heads.turn),
    "K": (*NAMES, *ALIKE, *SPLITS, *TURNS, heads.repeat_each),
    "V": (*NAMES, names.exchange_targets, *SPLITS, *TURNS, heads.repeat_each),
    "scores": (*NAMES, *TURNS, *SCALES),
    "Q_rotated": (heads.repeat_all, *ALIKE, sums.start_positions, sums.change_sign),
    "K_rotated": (heads.repeat_all, *ALIKE, sums.start_positions, sums.change_sign),
    SCALED: (*SCALES, sums.change_sign),
    MASKED: (*SENSES, *TRIANGLES, *ALIGNED),
    WEIGHTS: (
        *AXES,
        axes.take_off_maximum,
        sums.train_only,
        masks.move_before_softmax,
        masks.share_again,
    ),
    HEAD_OUTPUTS: (
        sums.train_only,
        sums.make_floats,
        sums.rescale_sum,
        names.exchange_joined,
        *NAMES,
        *TURNS,
    ),
    CONCAT: (heads.merge_heads, heads.change_pattern, *NAMES, sums.make_floats),
    OUTPUT: (names.apply_unused, heads.turn_factors, heads.turn, heads.merge_heads),
}
"""Of numbers that no mistake explains.

A mask is not turned there, and nothing is hidden: what then hides nothing would agree, too.
"""


def rules_of(step: str, mistake: str | None) -> Iterable[Rule]:
    """The rules that may mend a finding, the likeliest first."""
    for words, rules in RULES_OF_MISTAKE.items():
        if (mistake or "").startswith(words):
            return rules
    if mistake is None:
        return RULES_OF_STEP.get(step, ())
    return ()
