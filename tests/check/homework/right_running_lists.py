"""A running softmax over lists: no score and no weight is kept."""

import math
import random

random.seed(8)


def attend(query, keys, values):
    top, total, mixed = -math.inf, 0.0, [0.0] * len(values[0])
    for key, value in zip(keys, values):
        score = sum(a * b for a, b in zip(query, key)) / math.sqrt(len(query))
        higher = max(top, score)
        shrink, weight = math.exp(top - higher), math.exp(score - higher)
        total = total * shrink + weight
        mixed = [m * shrink + weight * number for m, number in zip(mixed, value)]
        top = higher
    return [m / total for m in mixed]


queries, keys, values = ([[random.gauss(0, 1) for _ in range(4)] for _ in range(6)] for _ in range(3))
print([attend(query, keys, values) for query in queries])
