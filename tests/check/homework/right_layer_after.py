import numpy as np

rng = np.random.default_rng(11)
x = rng.normal(size=(5, 4))
Wq, Wk, Wv = rng.normal(size=(3, 4, 4))
Q, K, V = x @ Wq, x @ Wk, x @ Wv
scores = Q @ K.T / 2
attention_weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
attended = attention_weights @ V
x = x + attended
hidden = np.maximum(x @ rng.normal(size=(4, 16)), 0)
output = x + hidden @ rng.normal(size=(16, 4))
