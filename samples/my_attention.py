"""Ten lines of attention with a mistake in them: attnctl check mine.npz --causal finds it."""

import numpy as np

Q, K, V = np.random.RandomState(0).randn(3, 2, 5, 4)  # 2 heads, 5 tokens, d_k 4
future = np.triu(np.ones((5, 5), dtype=bool), 1)

scores = Q @ K.transpose(0, 2, 1) / np.sqrt(4)
weights = np.exp(scores - scores.max(-1, keepdims=True))
weights /= weights.sum(-1, keepdims=True)
weights[:, future] = 0

np.savez("mine.npz", Q=Q, K=K, V=V, attention_weights=weights, head_outputs=weights @ V)
