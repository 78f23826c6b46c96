import math
import random

random.seed(76)
n, width, d = 4, 5, 4


def drawn(rows, columns):
    return [[random.gauss(0, 0.6) for _ in range(columns)] for _ in range(rows)]


def times(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def softmax(row):
    most = max(row)
    powers = [math.exp(each - most) for each in row]
    return [each / sum(powers) for each in powers]


tokens = drawn(n, width)
q, k, v = (times(tokens, drawn(width, d)) for _ in range(3))
scores = times(q, [list(column) for column in zip(*k)])
scores = [[each / math.sqrt(d) for each in row] for row in scores]
for row in times([softmax(row) for row in scores], v):
    print([round(each, 5) for each in row])
