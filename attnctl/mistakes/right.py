"""Right programs that round in their own way, as lines of NumPy like those of the mistakes.

`near` rounds to the type that a program is in; a kernel counts in float32 at least, and rounds its output.
"""

RIGHT = {
    "float32 within": "",
    "every step in its type": "scores = near(Q @ K.swapaxes(-1, -2))\n"
    "scaled_scores = near(scores / d_k**0.5)\n"
    "attention_weights = near(softmax(scaled_scores))",
    "queries scaled": "scores = near(Q / d_k**0.5) @ K.swapaxes(-1, -2)\nscaled_scores = scores",
    "weights in its type": "attention_weights = near(softmax(scaled_scores))",
    "keys in another order": "attention_weights = softmax(scaled_scores[..., ::-1])[..., ::-1]\n"
    "head_outputs = attention_weights[..., ::-1] @ V[..., ::-1, :]",
    "online softmax in blocks": "top, total, sums = -np.inf, 0, 0\n"
    "for at in range(0, keys, 64):\n"
    "    s, last = scaled_scores[..., at : at + 64], top\n"
    "    top = np.maximum(top, s.max(axis=-1, keepdims=True))\n"
    "    e = np.exp(s - top)\n"
    "    total = total * np.exp(last - top) + e.sum(axis=-1, keepdims=True)\n"
    "    sums = sums * np.exp(last - top) + near(e) @ V[..., at : at + 64, :]\n"
    "attention_weights = softmax(scaled_scores)\n"
    "head_outputs = sums / total",
}
"""Lines by what is done: of plain attention, forth and back."""
