from math import exp
from random import Random

draw = Random(83)
lines = [["yes", "indeed"], ["no", "not", "at", "all"]]
table = {word: [draw.uniform(-2, 2) for _ in range(3)] for line in lines for word in line}
table["-"] = [0.4, 0.4, 0.4]
for line in lines:
    words = line + ["-"] * (4 - len(line))
    keep = [float(word != "-") for word in words]
    x = [table[word] for word in words]
    for q in x:
        s = [sum(a * b for a, b in zip(q, k)) / 3**0.5 for k in x]
        s = [each * kept for each, kept in zip(s, keep)]  # wrong: mask-finite
        e = [exp(each - max(s)) for each in s]
        print([round(sum(p * k[c] for p, k in zip(e, x)) / sum(e), 5) for c in range(3)])
