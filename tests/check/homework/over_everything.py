import numpy as np

np.random.seed(0)
X = np.random.randn(5, 8)
W_q = np.random.randn(8, 8)
W_k = np.random.randn(8, 8)
W_v = np.random.randn(8, 8)

Q = X @ W_q
K = X @ W_k
V = X @ W_v

d_k = K.shape[-1]
scores = Q @ K.T / np.sqrt(d_k)

def softmax(x):
    e = np.exp(x - np.max(x, axis=None, keepdims=True))
    return e / np.sum(e, axis=None, keepdims=True)  # wrong: softmax-over-everything

weights = softmax(scores)
output = weights @ V
print(output.shape)
