"""A mistake: softmax of −S, as if the scores were distances."""

import numpy as np

from attnctl.math.ops import Softmax
from attnctl.mistakes.mistake import about
from attnctl.mistakes.plants import at
from attnctl.mistakes.wrong import softmax

SCORES_AS_DISTANCES = about("attention_weights")(
    "scores-as-distances",
    "the scores are negated, as if they were distances",
    "leave the minus sign out",
    at("attention_weights", Softmax).by(lambda s: softmax(np.where(np.isneginf(s), s, -s))),
    why="Of distances the smallest is the best.",
    example="e = np.exp(-scaled_scores)\nattention_weights = e / e.sum(axis=-1, keepdims=True)",
)
