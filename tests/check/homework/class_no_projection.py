import numpy as np


class MultiHeadAttention:
    def __init__(self, d_model, num_heads, seed=0):
        rng = np.random.default_rng(seed)
        self.num_heads = num_heads
        self.d_model = d_model
        self.depth = d_model // num_heads
        self.Wq = rng.normal(size=(d_model, d_model)) / np.sqrt(d_model)
        self.Wk = rng.normal(size=(d_model, d_model)) / np.sqrt(d_model)
        self.Wv = rng.normal(size=(d_model, d_model)) / np.sqrt(d_model)
        self.Wo = rng.normal(size=(d_model, d_model)) / np.sqrt(d_model)

    def split_heads(self, t):
        n = t.shape[0]
        return t.reshape(n, self.num_heads, self.depth).transpose(1, 0, 2)

    def forward(self, x):
        q = self.split_heads(x @ self.Wq)
        k = self.split_heads(x @ self.Wk)
        v = self.split_heads(x @ self.Wv)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(self.depth)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        context = weights @ v
        context = context.transpose(1, 0, 2).reshape(x.shape[0], self.d_model)
        return context  # wrong: output-projection-missing


x = np.random.default_rng(3).normal(size=(5, 8))
mha = MultiHeadAttention(8, 2)
out = mha.forward(x)
print(out)
