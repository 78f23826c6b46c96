"""Every kernel in `kernels/`: what is wrong with it, where that shows, and the mistake it is."""

from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Right:
    """A kernel that must not be accused, with what the shell has to be told of it."""

    name: str
    options: tuple[str, ...] = ()

    @property
    def target(self):
        return f"right:{self.name}"


@dataclass(frozen=True)
class Wrong:
    """A kernel that must be found: the feature in which it is wrong, and the mistake's name.

    None is a mistake that has no name: it must be found all the same.
    """

    target: str
    feature: str
    mistake: str | None = None


RIGHT = (
    Right("naive"),
    Right("online"),
    Right("tiled"),
    Right("low_precision_weights"),
    Right("bottom_right"),
    Right("nan_rows"),
    Right("mean_rows"),
    Right("with_einsum"),
    Right("with_weights"),
    Right("with_log_sum_exp"),
    Right("fortran_order"),
    Right("in_one_buffer"),
    Right("tokens_first", ("--layout", "bnhd")),
    Right("no_batch", ("--layout", "hnd")),
    Right("grouped_by_reshape"),
    Right("one_by_one"),
    Right("to_base_two"),
    Right("padded"),
    Right("sliding"),
    Right("everything"),
    Right("like_flash", ("--like", "flash")),
    Right("like_sdpa", ("--like", "sdpa")),
)

WRONG = (
    # before the softmax
    Wrong("wrong_scores:no_scale", "attention", "no-scale"),
    Wrong("wrong_scores:scale_by_d", "attention", "scale-by-d_k"),
    Wrong("wrong_scores:scale_by_d_plus_one", "attention", "scale-other"),
    Wrong("wrong_scores:scaled_twice", "attention", "scale-by-d_k"),
    Wrong("wrong_scores:scale_ignored", "scale", "option-ignored"),
    Wrong("wrong_scores:scale_inverted", "scale", "scale-other"),
    Wrong("wrong_scores:softcap_after_mask", "pairs", "softcap-after-mask"),
    Wrong("wrong_scores:softcap_not_multiplied", "softcap", "softcap-half"),
    Wrong("wrong_scores:softcap_before_scale", "softcap", "softcap-before-scale"),
    Wrong("wrong_scores:softcap_clips", "softcap", "softcap-clipped"),
    Wrong("wrong_scores:softcap_ignored", "softcap", "option-ignored"),
    Wrong("wrong_scores:bias_ignored", "bias", "option-ignored"),
    Wrong("wrong_scores:bias_before_scale", "bias", "bias-scaled"),
    Wrong("wrong_scores:bias_after_softmax", "bias", "bias-after-softmax"),
    Wrong("wrong_scores:bias_of_first_head", "bias", "score-bias-wrong"),
    Wrong("wrong_scores:bias_subtracted", "bias", "score-bias-wrong"),
    Wrong("wrong_scores:alibi_sign", "alibi", "alibi-slopes"),
    Wrong("wrong_scores:alibi_heads_reversed", "alibi", "alibi-slopes"),
    Wrong("wrong_scores:alibi_without_abs", "alibi", "alibi-distance"),
    Wrong("wrong_scores:alibi_own_slopes", "alibi", "alibi-slopes"),
    Wrong("wrong_scores:float_mask_as_bool", "float_mask", "option-ignored"),
    Wrong("wrong_scores:float_mask_before_scale", "float_mask", "bias-scaled"),
    # the softmax
    Wrong("wrong_softmax:over_queries", "attention", "softmax-over-queries"),
    Wrong("wrong_softmax:over_heads", "attention", "softmax-over-heads"),
    Wrong("wrong_softmax:no_maximum", "large scores", "no-max-subtraction"),
    Wrong("wrong_softmax:base_two", "attention", "exp-base-2"),
    Wrong("wrong_softmax:plus_one", "attention", "softmax-plus-one"),
    Wrong("wrong_softmax:not_divided", "attention", "softmax-unnormalized"),
    Wrong("wrong_softmax:taken_twice", "attention", "softmax-twice"),
    Wrong("wrong_softmax:epsilon", "attention", "softmax-epsilon"),
    Wrong("wrong_softmax:dropout_on", "attention", "dropout-left-on"),
    Wrong("wrong_softmax:mask_after", "causal", "mask-after-softmax"),
    Wrong("wrong_softmax:finite_mask", "causal", "mask-finite"),
    Wrong("wrong_softmax:maximum_of_everything", "large scores"),
    Wrong("wrong_softmax:sink_missing", "sinks", "option-ignored"),
    Wrong("wrong_softmax:sink_weighs", "sinks"),
    Wrong("wrong_softmax:sink_of_first_head", "sinks"),
    Wrong("wrong_softmax:sink_scaled", "sinks"),
    # who sees whom
    Wrong("wrong_masks:causal_off_by_one", "causal", "causal-offset"),
    Wrong("wrong_masks:causal_strict", "causal", "causal-strict"),
    Wrong("wrong_masks:causal_ignored", "causal", "option-ignored"),
    Wrong("wrong_masks:causal_backwards", "causal", "mask-inverted"),
    Wrong("wrong_masks:causal_by_blocks", "causal", "mask-by-blocks"),
    Wrong("wrong_masks:causal_within_blocks", "causal"),
    Wrong("wrong_masks:mask_inverted", "mask", "mask-inverted"),
    Wrong("wrong_masks:mask_ignored", "mask", "option-ignored"),
    Wrong("wrong_masks:mask_of_first_head", "mask"),
    Wrong("wrong_masks:mask_of_first_member", "mask"),
    Wrong("wrong_masks:mask_reaches_first_head", "mask", "mask-some-heads"),
    Wrong("wrong_masks:mask_of_first_query", "mask"),
    Wrong("wrong_masks:causal_drops_mask", "pairs", "mask-ignored"),
    Wrong("wrong_masks:window_left_off", "window", "window-off-by-one"),
    Wrong("wrong_masks:window_right_off", "window", "window-off-by-one"),
    Wrong("wrong_masks:window_two_sided", "window", "window-other"),
    Wrong("wrong_masks:window_sides_swapped", "window"),
    Wrong("wrong_masks:window_ignored", "window", "option-ignored"),
    Wrong("wrong_masks:lengths_ignored", "key_lengths", "padding-ignored"),
    Wrong("wrong_masks:lengths_off_by_one", "key_lengths", "padding-lengths"),
    Wrong("wrong_masks:lengths_too_short", "key_lengths", "padding-lengths"),
    Wrong("wrong_masks:lengths_of_first_member", "key_lengths", "padding-members"),
    Wrong("wrong_masks:lengths_from_the_right", "key_lengths", "padding-left"),
    Wrong("wrong_masks:cache_offset_ignored", "cache", "causal-aligned-wrong"),
    Wrong("wrong_masks:cache_offset_off_by_one", "cache", "causal-offset"),
    Wrong("wrong_masks:cache_appended_in_front", "cache"),
    Wrong("wrong_masks:cache_ignored", "cache", "keys-dropped"),
    Wrong("wrong_masks:cache_of_values_in_front", "cache", "cache-written-wrong"),
    # a block at a time
    Wrong("wrong_blocks:sum_not_rescaled", "attention", "online-not-rescaled"),
    Wrong("wrong_blocks:output_not_rescaled", "attention", "online-not-rescaled"),
    Wrong("wrong_blocks:neither_rescaled", "attention", "online-not-rescaled"),
    Wrong("wrong_blocks:third_block_not_rescaled", "attention", "online-not-rescaled"),
    Wrong("wrong_blocks:last_partial_block_dropped", "attention", "keys-dropped"),
    Wrong("wrong_blocks:last_block_dropped", "attention", "keys-dropped"),
    Wrong("wrong_blocks:last_key_dropped", "attention", "keys-dropped"),
    Wrong("wrong_blocks:first_key_dropped", "attention", "keys-dropped"),
    Wrong("wrong_blocks:boundary_dropped", "attention"),
    Wrong("wrong_blocks:boundary_twice", "attention"),
    Wrong("wrong_blocks:last_block_read_again", "attention"),
    Wrong("wrong_blocks:padding_counted", "attention", "keys-padded"),
    Wrong("wrong_blocks:normalized_in_each_block", "attention"),
    Wrong("wrong_blocks:values_one_block_late", "attention"),
    Wrong("wrong_blocks:values_shifted", "attention", "values-shifted"),
    Wrong("wrong_blocks:half_accumulators", "attention", "low-precision"),
    Wrong("wrong_blocks:last_queries_dropped", "attention", "queries-dropped"),
    Wrong("wrong_blocks:causal_stops_early", "causal"),
    # which array, head, member
    Wrong("wrong_heads:kv_heads_tiled", "grouped heads", "kv-heads-tiled"),
    Wrong("wrong_heads:kv_head_zero", "grouped heads", "kv-heads-order"),
    Wrong("wrong_heads:kv_values_tiled", "grouped heads", "kv-heads-tiled"),
    Wrong("wrong_heads:kv_heads_reversed", "grouped heads", "kv-heads-order"),
    Wrong("wrong_heads:keys_and_values_exchanged", "attention"),
    Wrong("wrong_heads:queries_and_keys_exchanged", "attention", "query-key-swapped"),
    Wrong("wrong_heads:values_are_keys", "attention", "weights-applied-to-wrong"),
    Wrong("wrong_heads:first_member_for_all", "attention"),
    Wrong("wrong_heads:keys_of_first_member", "attention"),
    Wrong("wrong_heads:width_of_values", "d_v ≠ d_k", "scale-other"),
    Wrong("wrong_heads:values_cut_to_keys", "d_v ≠ d_k", "wrong-shape"),
    Wrong("wrong_heads:tokens_first_by_reshape", "attention"),
    Wrong("wrong_heads:heads_rolled", "attention", "heads-in-other-order"),
    Wrong("wrong_heads:heads_averaged", "attention", "heads-averaged"),
    Wrong("wrong_heads:last_columns_dropped", "head sizes"),
    Wrong("wrong_heads:key_reversed", "attention"),
    # conduct
    Wrong("wrong_conduct:zeros", "attention", "zeros"),
    Wrong("wrong_conduct:mean_of_values", "attention", "mean-of-values"),
    Wrong("wrong_conduct:nans", "attention"),
    Wrong("wrong_conduct:noise_of_three_percent", "attention"),
    Wrong("wrong_conduct:three_percent_too_much", "attention"),
    Wrong("wrong_conduct:racing", "repeatable", "not-repeatable"),
    Wrong("wrong_conduct:racing_now_and_then", "repeatable", "not-repeatable"),
    Wrong("wrong_conduct:skips_a_row_of_its_buffer", "repeatable", "not-repeatable"),
    Wrong("wrong_conduct:last_row_not_written", "attention", "memory-not-written"),
    Wrong("wrong_conduct:adds_to_what_is_there", "attention", "memory-not-written"),
    Wrong("wrong_conduct:answer_of_the_first_call", "attention"),
    Wrong("wrong_conduct:changes_queries", "inputs kept", "inputs-changed"),
    Wrong("wrong_conduct:changes_values", "inputs kept", "inputs-changed"),
    Wrong("wrong_conduct:reads_memory_in_order", "memory layouts"),
    Wrong("wrong_conduct:hangs", "attention"),
    Wrong("wrong_conduct:hangs_on_long_ones", "attention"),
    Wrong("wrong_conduct:aborts", "attention"),
    Wrong("wrong_conduct:exits", "attention"),
    Wrong("wrong_conduct:raises", "attention"),
    Wrong("wrong_conduct:raises_on_odd_lengths", "attention"),
    Wrong("wrong_conduct:talks", "attention"),
    Wrong("wrong_conduct:returns_nothing", "attention"),
    Wrong("wrong_conduct:returns_text", "attention"),
    Wrong("wrong_conduct:overflows_in_half", "attention"),
)
