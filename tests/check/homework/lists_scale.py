from math import exp, sqrt

X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
W_Q = [[1, 0], [0, 1], [1, 0]]
W_K = [[0, 1], [1, 0], [1, 1]]
W_V = [[1, 2], [0, 1], [2, 0]]


def matmul(a, b):
    return [[sum(x * y for x, y in zip(row, col)) for col in zip(*b)] for row in a]


Q, K, V = matmul(X, W_Q), matmul(X, W_K), matmul(X, W_V)
scores = matmul(Q, list(zip(*K)))
scaled = [[s / sqrt(3) for s in row] for row in scores]  # wrong: scale-by-sqrt-d_model
weights = [[exp(s) / sum(exp(t) for t in row) for s in row] for row in scaled]
output = matmul(weights, V)
