import math
import random

random.seed(5)


def matrix(rows, columns):
    return [[random.gauss(0, 1) for _ in range(columns)] for _ in range(rows)]


def attend(queries, keys, values):
    mixed_rows = []
    total = 0.0
    for query in queries:
        weights = []
        for key in keys:
            weight = math.exp(sum(a * b for a, b in zip(query, key)) / math.sqrt(len(key)))
            weights.append(weight)
            total += weight  # wrong: sum-goes-on
        mixed = [0.0] * len(values[0])
        for weight, value in zip(weights, values):
            for c in range(len(value)):
                mixed[c] += weight / total * value[c]
        mixed_rows.append(mixed)
    return mixed_rows


print(attend(matrix(4, 5), matrix(6, 5), matrix(6, 5)))
