from math import exp, sqrt

asked = [[1.0, 0.5, -0.3], [0.2, -1.0, 0.8], [0.0, 0.4, 1.1], [-0.7, 0.9, 0.1]]
stored = [[0.6, -0.2, 0.9], [1.2, 0.3, -0.5], [-0.4, 0.8, 0.2], [0.1, 0.1, 1.0]]
answers = [[9.0, 0.5], [0.1, 5.0], [3.0, 2.5], [-2.0, 8.0]]


def dot(a, b):
    return sum(s * t for s, t in zip(a, b))


def attend(q, k, v):
    out = [[0.0] * len(v[0])] * len(q)  # wrong: rows-are-one-list
    for i in range(len(q)):
        powers = [exp(dot(q[i], row) / sqrt(len(row))) for row in k]
        total = sum(powers)
        for c in range(len(v[0])):
            out[i][c] = sum(powers[j] / total * v[j][c] for j in range(len(v)))
    return out


print(attend(asked, stored, answers))
