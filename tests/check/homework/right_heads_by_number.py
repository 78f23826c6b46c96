"""Two heads, number by number: no list holds the keys of one head."""

import math
import random

random.seed(3)
N, D, HEADS = 5, 8, 2
WIDTH = D // HEADS


def matrix(rows, columns):
    return [[random.gauss(0, 0.5) for _ in range(columns)] for _ in range(rows)]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


x = matrix(N, D)
q, k, v = (product(x, matrix(D, D)) for _ in range(3))
out = [[] for _ in range(N)]
for head in range(HEADS):
    first = head * WIDTH
    for i in range(N):
        scores = [
            sum(q[i][first + c] * k[j][first + c] for c in range(WIDTH)) / math.sqrt(WIDTH) for j in range(N)
        ]
        e = [math.exp(s - max(scores)) for s in scores]
        out[i] += [sum(e[j] / sum(e) * v[j][first + c] for j in range(N)) for c in range(WIDTH)]
print(out[0])
