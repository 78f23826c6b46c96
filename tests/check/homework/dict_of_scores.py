import math
import random

random.seed(78)
n, d, most = 6, 3, 3
queries, keys, values = ([[random.gauss(0, 1) for _ in range(d)] for _ in range(n)] for _ in range(3))
for i in range(n):
    seen = range(max(0, i - most + 1), i + 1)
    scores = {j: sum(a * b for a, b in zip(queries[i], keys[j])) / math.sqrt(d) for j in seen}
    highest = max(scores.values())
    powers = {j: math.exp(score - highest) for j, score in scores.items()}
    total = sum(powers.values())
    mixed = [0.0] * d
    for j, power in powers.items():
        for c in range(d):
            mixed[c] += power / total * values[j][c]
    print([round(each, 5) for each in mixed])
