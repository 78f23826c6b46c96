"""Attention as four kinds of people write it, in pieces: a mistake is a program with other pieces.

Nothing here comes from the package. Each piece is a method that takes arrays and returns an array;
what a program writes down is what a person dumps. Numbers are rounded to the program's type after
every piece that writes them down, and within a piece NumPy's own arithmetic in that type applies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """What was meant."""

    heads: int = 4
    kv: int = 4
    n: int = 12
    memory: int | None = None
    """Tokens of the other sentence, in cross-attention."""
    past: int = 0
    """Keys in the cache."""
    batch: int = 0
    d_model: int = 32
    d: int = 8
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float | None = None
    rope: bool = False
    rotary_dims: int | None = None
    alibi: bool = False
    sinusoidal: bool = False
    biases: bool = False
    score_bias: bool = False
    mask: bool = False
    lengths: tuple[int, ...] = ()
    dtype: str = "float64"
    seed: int = 0
    spread: float = 1.5
    """How large scores are, roughly."""

    def but(self, **changes) -> Kind:
        return replace(self, **changes)

    @property
    def keys(self) -> int:
        return (self.memory or self.n) + self.past

    @property
    def hides(self) -> bool:
        return bool(self.causal or self.window or self.mask or self.lengths)


def bfloat16(x):
    """The nearest bfloat16, as float32."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def softmax(s, axis=-1):
    """Rows that see nothing become zeros."""
    top = s.max(axis=axis, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=axis, keepdims=True)
    return e / np.where(total == 0, 1, total)


def angles(n, d, start=0, theta=10000.0, step=1.0):
    return (start + step * np.arange(n))[:, None] * theta ** (-2.0 * np.arange(d // 2) / d)


def turned(x, angle):
    """Columns i and i + d/2 turned together, as in Llama; the rest left alone."""
    half = angle.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def turned_neighbours(x, angle):
    """Columns 2i and 2i + 1 turned together, as in GPT-J."""
    out = x.copy()
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    half = 2 * angle.shape[-1]
    a, b = x[..., 0:half:2], x[..., 1:half:2]
    out[..., 0:half:2], out[..., 1:half:2] = a * cos - b * sin, b * cos + a * sin
    return out


def sinusoids(n, d, start=0, base=10000.0):
    angle = np.arange(start, start + n)[:, None] / base ** (2 * (np.arange(d) // 2) / d)
    return np.where(np.arange(d) % 2 == 0, np.sin(angle), np.cos(angle))


def slopes(heads):
    """ALiBi's slopes, for any number of heads (Press et al. 2022)."""
    whole = 2 ** int(np.log2(heads))
    out = [2.0 ** (-8.0 * (h + 1) / whole) for h in range(whole)]
    more = [2.0 ** (-8.0 * (h + 1) / (2 * whole)) for h in range(2 * whole)]
    return np.array(out + more[0::2][: heads - whole])[:, None, None]


class Textbook:
    """Plain NumPy, everything written down."""

    batches = False

    def __init__(self, kind):
        self.k = kind
        self.record = {}
        self.low = np.float32 if kind.dtype == "bfloat16" else np.dtype(kind.dtype).type
        self.rng = np.random.default_rng(kind.seed)
        self.g = {name: self.near(x) for name, x in self.given().items()}

    def near(self, x):
        """Rounded to the program's type."""
        if x.dtype.kind != "f":
            return x
        return bfloat16(x) if self.k.dtype == "bfloat16" else x.astype(self.low)

    def put(self, name, x):
        """Write a step down, rounded; what follows reads that."""
        self.record[name] = self.near(x)
        return self.record[name]

    def given(self):
        """Everything that is handed in."""
        k, normal = self.k, self.rng.standard_normal
        batch = (k.batch,) if k.batch else ()
        g = {"embeddings" if k.sinusoidal else "X": normal((*batch, k.n, k.d_model))}
        if k.memory:
            g["memory"] = normal((*batch, k.memory, k.d_model))
        root = np.sqrt(k.spread / k.d_model)
        for letter, heads in (("Q", k.heads), ("K", k.kv), ("V", k.kv)):
            g[f"W_{letter}"] = normal((k.d_model, heads * k.d)) * root
        g["W_O"] = normal((k.heads * k.d, k.d_model)) * root
        if k.biases:
            for letter, size in (
                ("Q", k.heads * k.d),
                ("K", k.kv * k.d),
                ("V", k.kv * k.d),
                ("O", k.d_model),
            ):
                g[f"b_{letter}"] = normal(size) / 2
        if k.past:
            g["past_key"] = normal((*batch, k.kv, k.past, k.d))
            g["past_value"] = normal((*batch, k.kv, k.past, k.d))
        if k.score_bias:
            g["bias"] = normal((k.heads, k.n, k.keys))
        if k.mask:
            g["mask"] = (self.rng.random((k.n, k.keys)) < 0.6) | np.eye(k.n, k.keys, dtype=bool)
        if k.lengths:
            g["key_lengths"] = np.array(k.lengths)
        return g

    # --- X to Q, K, V ---

    def table(self):
        return sinusoids(self.k.n, self.k.d_model)

    def add_positions(self, x, table):
        return x + table.astype(x.dtype)

    def sources(self, x, memory):
        """What Q, K and V are projected from."""
        return x, memory, memory

    def weight(self, letter):
        return self.g[f"W_{letter}"]

    def offset(self, letter):
        return self.g.get(f"b_{letter}")

    def project(self, x, letter):
        y = x @ self.weight(letter)
        return y if self.offset(letter) is None else y + self.offset(letter)

    def split(self, y, letter):
        heads = self.k.heads if letter == "Q" else self.k.kv
        *batch, n, columns = y.shape
        return y.reshape(*batch, n, heads, columns // heads).swapaxes(-3, -2)

    def projected(self, x, memory):
        sources = self.sources(x, memory)
        return tuple(
            self.split(self.project(source, letter), letter)
            for source, letter in zip(sources, "QKV", strict=True)
        )

    # --- positions, cache, groups ---

    def turn(self, x, start):
        return turned(x, angles(x.shape[-2], self.k.rotary_dims or self.k.d, start))

    def rotated(self, q, k, v):
        return self.turn(q, self.k.past), self.turn(k, self.k.past), v

    def cached(self, k, v):
        return tuple(
            np.concatenate([self.g[f"past_{name}"], x], axis=-2) for name, x in (("key", k), ("value", v))
        )

    def share(self, x, letter):
        return np.repeat(x, self.k.heads // self.k.kv, axis=-3)

    # --- scores to weights ---

    def scores(self, q, k):
        return q @ k.swapaxes(-1, -2)

    def factor(self):
        return 1 / np.sqrt(self.k.d)

    def scaled(self, s):
        return s * s.dtype.type(self.factor())

    def cap(self):
        return self.k.softcap

    def capped(self, s):
        return self.cap() * np.tanh(s / self.cap())

    def distance(self):
        return np.abs(np.arange(self.k.n)[:, None] + self.k.past - np.arange(self.k.keys))

    def slopes(self):
        return slopes(self.k.heads)

    def score_bias(self):
        return self.g["bias"] if self.k.score_bias else -self.slopes() * self.distance()

    def biased(self, s):
        return s + self.score_bias().astype(s.dtype)

    def places(self):
        return np.arange(self.k.n)[:, None] + self.k.past, np.arange(self.k.keys)[None, :]

    def causal(self):
        i, j = self.places()
        return j <= i

    def window(self):
        i, j = self.places()
        left, right = self.k.window
        return (j >= i - left) & (j <= i + right)

    def padding(self):
        return np.arange(self.k.keys) < self.g["key_lengths"][:, None, None, None]

    def mask(self):
        return self.g["mask"]

    def seen(self):
        seen = np.ones((self.k.n, self.k.keys), dtype=bool)
        seen = seen & self.causal() if self.k.causal else seen
        seen = seen & self.window() if self.k.window else seen
        seen = seen & self.mask() if self.k.mask else seen
        return seen & self.padding() if self.k.lengths else seen

    def hidden(self, s):
        return np.where(self.seen(), s, s.dtype.type(-np.inf))

    def softmax(self, s):
        return softmax(s)

    def weights(self, s):
        return self.softmax(s)

    def bent(self, s):
        """Everything between the scaled scores and softmax."""
        if self.k.softcap:
            s = self.put("softcapped_scores", self.capped(s))
        if self.k.alibi or self.k.score_bias:
            s = self.put("biased_scores", self.biased(s))
        return self.put("masked_scores", self.hidden(s)) if self.k.hides else s

    def attend(self, q, k, v):
        s = self.put("scores", self.scores(q, k))
        s = self.bent(self.put("scaled_scores", self.scaled(s)))
        self.q, self.keys, self.values = q, k, v
        return self.mix(self.put("attention_weights", self.weights(s)), v)

    def mix(self, a, v):
        return a @ v

    # --- heads to output ---

    def merge(self, z):
        *batch, heads, n, d = z.shape
        return z.swapaxes(-3, -2).reshape(*batch, n, heads * d)

    def finish(self, c):
        y = c @ self.weight("O")
        return y if self.offset("O") is None else y + self.offset("O")

    def run(self):
        for name, x in self.g.items():
            self.put(name, x)
        k, g = self.k, self.g
        x = g.get("X")
        if k.sinusoidal:
            table = self.put("positions", self.table())
            x = self.put("X", self.add_positions(g["embeddings"], table))
        self.x = x
        parts = self.projected(x, g.get("memory", x))
        q, key, v = (self.put(name, y) for name, y in zip("QKV", parts, strict=True))
        if k.rope:
            q, key, v = self.rotated(q, key, v)
            q, key = self.put("Q_rotated", q), self.put("K_rotated", key)
        if k.past:
            key, v = self.cached(key, v)
            key, v = self.put("present_key", key), self.put("present_value", v)
        if k.kv != k.heads:
            key, v = self.share(key, "K"), self.share(v, "V")
            key, v = self.put("K_shared", key), self.put("V_shared", v)
        z = self.put("head_outputs", self.attend(q, key, v))
        self.put("output", self.finish(self.put("concat", self.merge(z))))
        return self.record


class Module(Textbook):
    """As in nn.MultiheadAttention: a batch, one product for Q, K and V, Q scaled first, an added mask."""

    batches = True

    def projected(self, x, memory):
        if memory is not x:
            return super().projected(x, memory)
        fused = np.concatenate([self.weight(letter) for letter in "QKV"], axis=1)
        y, parts, at = x @ fused, [], 0
        for letter in "QKV":
            size = self.weight(letter).shape[1]
            part = y[..., at : at + size]
            bias = self.offset(letter)
            parts.append(self.split(part if bias is None else part + bias, letter))
            at += size
        return tuple(parts)

    def hidden(self, s):
        return s + np.where(self.seen(), 0, -np.inf).astype(s.dtype)

    def attend(self, q, k, v):
        s = self.bent(self.put("scaled_scores", self.scores(q * q.dtype.type(self.factor()), k)))
        self.q, self.keys, self.values = q, k, v
        return self.mix(self.put("attention_weights", self.weights(s)), v)


class Llama(Textbook):
    """As in HF's modules: a batch, softmax in float32, the type's least number for −∞."""

    batches = True

    def hidden(self, s):
        least = np.finfo(np.float16 if s.dtype == np.float16 else np.float32).min
        return np.where(self.seen(), s, s.dtype.type(least))

    def softmax(self, s):
        return softmax(s.astype(np.float64 if s.dtype == np.float64 else np.float32)).astype(s.dtype)


class Kernel(Textbook):
    """Tiles and a running softmax; no scores or weights are ever written down."""

    block = 4

    def key_blocks(self):
        return [(at, min(at + self.block, self.k.keys)) for at in range(0, self.k.keys, self.block)]

    def query_blocks(self):
        return [(at, min(at + self.block, self.k.n)) for at in range(0, self.k.n, self.block)]

    def tile_seen(self, rows, columns):
        seen = np.broadcast_to(self.seen(), (*self.seen().shape[:-2], self.k.n, self.k.keys))
        return seen[..., slice(*rows), slice(*columns)]

    def tile(self, q, k, rows, columns):
        """Scores of one tile, scaled, bent and hidden."""
        s = self.scaled(self.scores(q, k))
        if self.k.softcap:
            s = self.capped(s)
        if self.k.alibi or self.k.score_bias:
            s = s + self.score_bias()[..., slice(*rows), slice(*columns)].astype(s.dtype)
        return np.where(self.tile_seen(rows, columns), s, -np.inf) if self.k.hides else s

    def exp(self, x):
        return np.exp(x)

    def shrink_sum(self, old, new):
        return self.exp(old - new)

    def shrink_output(self, old, new):
        return self.exp(old - new)

    def close(self, z, total, top):
        return z / np.where(total == 0, 1, total)

    def visits(self, rows):
        """The blocks of keys that a block of queries reads."""
        return self.key_blocks()

    def first_top(self, s):
        return s.max(axis=-1, keepdims=True)

    def pieces(self, k, v, columns):
        return k[..., slice(*columns), :], v[..., slice(*columns), :]

    def attend(self, q, k, v):
        exact = np.float64 if self.k.dtype == "float64" else np.float32
        q, k, v = (x.astype(exact) for x in (q, k, v))
        self.q, self.keys, self.values = q, k, v
        out = np.zeros((*q.shape[:-1], v.shape[-1]), exact)
        for rows in self.query_blocks():
            out[..., slice(*rows), :] = self.row_block(q[..., slice(*rows), :], k, v, rows)
        return out

    def row_block(self, q, k, v, rows):
        top = np.full((*q.shape[:-1], 1), -np.inf)
        total, z = np.zeros(top.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
        for columns in self.visits(rows):
            keys, values = self.pieces(k, v, columns)
            s = self.tile(q, keys, rows, columns)
            new = np.maximum(top, self.first_top(s))
            safe = np.where(np.isinf(new), 0, new)
            old = np.where(np.isinf(top), safe, top)
            p = self.exp(s - safe)
            total = total * self.shrink_sum(old, safe) + p.sum(axis=-1, keepdims=True)
            z = z * self.shrink_output(old, safe) + p @ values
            top = new
        return self.close(z, total, top)


FAMILIES = {"textbook": Textbook, "module": Module, "llama": Llama, "kernel": Kernel}

KINDS = {
    "plain": Kind(),
    "causal": Kind(causal=True),
    "grouped": Kind(kv=2, causal=True),
    "cross": Kind(memory=9),
    "cross same": Kind(memory=12),
    "cross causal": Kind(n=8, memory=12, causal=True),
    "window": Kind(causal=True, window=(4, 0)),
    "band": Kind(window=(3, 2)),
    "masked": Kind(mask=True),
    "padded": Kind(lengths=(12, 7), batch=2),
    "rope": Kind(rope=True, causal=True),
    "rope whole": Kind(rope=True),
    "rope part": Kind(rope=True, rotary_dims=4, causal=True),
    "cache": Kind(n=5, past=6, causal=True, rope=True),
    "decode": Kind(n=1, past=6, causal=True, rope=True),
    "alibi": Kind(alibi=True, causal=True),
    "alibi whole": Kind(alibi=True),
    "alibi 6": Kind(alibi=True, heads=6, kv=6, d=6, d_model=36, causal=True),
    "softcap": Kind(softcap=3.0, causal=True, spread=3.0),
    "biases": Kind(biases=True),
    "score bias": Kind(score_bias=True),
    "score bias causal": Kind(score_bias=True, causal=True),
    "sinusoidal": Kind(sinusoidal=True),
    "tail": Kind(n=14),
    "causal tail": Kind(n=14, causal=True),
    "batch": Kind(batch=3),
    "batch causal": Kind(batch=3, causal=True),
    "wide": Kind(n=24, d_model=64, d=16, causal=True),
    "peaked": Kind(spread=30.0, causal=True),
    "huge": Kind(spread=400.0, causal=True),
}
