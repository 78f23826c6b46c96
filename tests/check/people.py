"""Right programs as people write them: names, order, functions, masks and in-place lines are drawn."""

from random import Random

NAMES = {
    "x": "x X h inputs emb hidden_states E tokens",
    "w": "Wq,Wk,Wv,Wo W_q,W_k,W_v,W_o wq,wk,wv,wo W_query,W_key,W_value,W_out WQ,WK,WV,WO",
    "qkv": "q,k,v Q,K,V query,key,value queries,keys,values qs,ks,vs",
    "s": "scores attn_scores s sim logits energy att attn dots",
    "a": "weights attn attention A p alpha probs attention_weights",
    "z": "out context ctx z y head_out output",
    "o": "out output y result",
}

SOFTMAX = [
    "def softmax(t):",
    "    t = np.exp(t - t.max(-1, keepdims=True))",
    "    return t / t.sum(-1, keepdims=True)",
    "",
]


def program(seed):
    """A program of two to four functions and a dozen lines; the same for the same seed."""
    one = Random(seed).choice
    names = {kind: one(words.split()) for kind, words in NAMES.items()}
    x, s, z = names["x"], names["s"], names["z"]
    a, o = one([names["a"], s] if s.startswith("att") else [names["a"]]), one([names["o"], z])
    heads, projected, batch = one([1, 2]), one([True, False]), one(["", "", "2, "])
    w, (q, k, v) = names["w"].split(",")[: 3 + projected], names["qkv"].split(",")
    size, turn = 8 // heads, "1, 2" if batch else "0, 1"
    split = f".reshape({batch}5, {heads}, {size}).swapaxes({turn})" * (heads > 1)
    body = [f"{name} = ({x} @ {matrix}){split}" for name, matrix in zip((q, k, v), w, strict=False)]
    raw = f"{s} = {q} @ {k}.swapaxes(-1, -2)"
    scaled = [f"{s} /= np.sqrt({size})"], [f"{s} = {s} / np.sqrt({size})"]
    body += one(
        [[f"{raw} / np.sqrt({size})"], [f"{raw} * {size}**-0.5"], *([raw, *line] for line in scaled)]
    )
    hidden = f"{s} = np.where(mask == 0, -1e9, {s})", f"{s}[..., mask == 0] = -np.inf"
    body += one([[], ["mask = np.tril(np.ones((5, 5)))", one(hidden)]])
    exp = f"np.exp({s} - {s}.max(-1, keepdims=True))"
    body += one(
        [
            [f"e = {exp}", f"{a} = e / e.sum(-1, keepdims=True)"],
            [f"{a} = {exp}", f"{a} /= {a}.sum(-1, keepdims=True)"],
            [f"{a} = softmax({s})"],
        ]
    )
    body += [f"{z} = {a} @ {v}", *[f"{z} = {z}.swapaxes({turn}).reshape({batch}5, 8)"] * (heads > 1)]
    body += [f"{o} = {z} @ {w[3]}"] if projected else []
    given = [
        "import numpy as np",
        *SOFTMAX,
        "rng = np.random.default_rng(3)",
        f"{x} = rng.normal(size=({batch}5, 8))",
    ]
    given += [f"{', '.join(w)} = rng.normal(size=({len(w)}, 8, 8)) / 8**0.5"]
    if one([True, False]):
        takes, gives = ", ".join([x, *w]), o if projected else z
        body = [
            f"def attend({takes}):",
            *(f"    {line}" for line in body),
            f"    return {one([gives, f'{gives}, {a}'])}",
        ]
        body += [f"result = attend({takes})"]
    return "\n".join([*given, *body]) + "\n"
