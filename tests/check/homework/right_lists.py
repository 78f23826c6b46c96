from math import exp, sqrt

X = [[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]
W_Q = [[1, 0], [0, 1], [1, 0]]
W_K = [[0, 1], [1, 0], [1, 1]]
W_V = [[1, 2], [0, 1], [2, 0]]


def matmul(a, b):
    return [[sum(x * y for x, y in zip(row, col)) for col in zip(*b)] for row in a]


Q, K, V = matmul(X, W_Q), matmul(X, W_K), matmul(X, W_V)
scores = matmul(Q, list(zip(*K)))
scaled = [[s / sqrt(2) for s in row] for row in scores]
weights = []
for row in scaled:
    e = [exp(s) for s in row]
    weights.append([x / sum(e) for x in e])
output = matmul(weights, V)
