"""Every array that has a name, one row each: its symbol, its axes and the layouts it may come in.

The order is that of the derivation. A new step is a row here and its lines in
`attnctl.math.derivation`; reading, checking, drawing and dumping follow the table.

A layout is written as its axes (`attnctl.math.axes`): ``query (head d_k)`` has a row for each query,
and in it the heads side by side. Layouts tell apart what tables and dumps call by one name (`SHOWN_AS`):
heads of queries and of keys, past and new keys, the columns of X, of memory and of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from math import inf, prod

from attnctl.base.namedtuple import NamedTuple
from attnctl.math import Shape, Sizes
from attnctl.math.axes import Group, names_in, parse_axes

SHOWN_AS = {"kv_head": "head", "new": "key", "past": "key", "d_memory": "d_model", "d_out": "d_model"}
"""The axes of layouts whose name in tables and dumps is a wider one."""

X, MEMORY, EMBEDDINGS, POSITIONS = "X", "memory", "embeddings", "positions"
Q, K, V = PROJECTED = ("Q", "K", "V")
W_O, B_O = "W_O", "b_O"
PAST_KEY, PAST_VALUE = "past_key", "past_value"
ROTATED = ("Q_rotated", "K_rotated")
SCALED, SOFTCAPPED = "scaled_scores", "softcapped_scores"
BIASED, MASKED = "biased_scores", "masked_scores"
BIAS, MASK, KEY_LENGTHS = "bias", "mask", "key_lengths"
POSITION_IDS = "position_ids"
CU_SEQLENS = ("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k")
"""Where packed documents begin, and where the last one ends: of all, of queries, of keys."""
PAGES = KEY_PAGES, VALUE_PAGES = ("key_pages", "value_pages")
PAGES_OF = {K: KEY_PAGES, V: VALUE_PAGES}
"""What keys and values are read from where a cache keeps them in pages."""
PAGE_TABLE = "page_table"
"""Which pages hold the keys of each sequence, in order."""
PAGE_LIST = PAGE_ENDS, PAGE_NUMBERS, LAST_PAGE = ("page_ends", "page_numbers", "last_page_length")
"""The same in one row: where the pages of each sequence end, after a 0; them; and the keys in its last."""
STORED_SCALES = ("k_scale", "v_scale")
"""What keys and values that are stored in few bits are multiplied by."""
NORM_WEIGHTS, NORM_BIASES = ("Q_norm_weight", "K_norm_weight"), ("Q_norm_bias", "K_norm_bias")
HIDDEN, RESIDUAL, SINK, SINK_WEIGHTS = "hidden", "residual", "sink", "sink_weights"
MLP_OUTPUT = "mlp_output"
LOGSUMEXP = "logsumexp"
CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, CHUNK_SHARES = "chunk_logsumexp", "chunk_outputs", "chunk_shares"
BIAS_TABLE, BIAS_INDEX = "bias_table", "bias_index"
"""The numbers of a relative bias, by head; and which of them each query reads for each key."""
GATE, GATED = "gate", "gated"
FINAL, LOGITS = "final", "logits"
DECAY, FADED, WRITTEN = "decay", "decayed_scores", "written"
STEP_SIZE, IN_GATE = "step_size", "in_gate"
WEIGHTS, HEAD_OUTPUTS, CONCAT, OUTPUT = "attention_weights", "head_outputs", "concat", "output"


class Name(NamedTuple):
    """A row of the table.

    `layouts` are those that `attend` documents, our own first, without a batch axis; `linear` is
    that of nn.Linear among them, `searched` those that only `check` and `explain` look for.
    A `leaf` may be handed in, everything else follows; `attend` reads an `input`; a batch has what
    is there `once` in common. `hidden` is the value of every cell that a rule hides, where that
    is known without computing it. A `result` is a stage of what attention gives.
    Only the layers of a trained `model` have some: without the model nobody says how they came about.
    A step of the backward pass names what it is the `gradient` by, or goes with. A weight is a row that
    says what it multiplies, or is `added` to (`of` memory: of X where there is none); where it is `asked`
    for by a setting of `attnctl.math.kind`, it is drawn only then; the help of a config says `more`. Of
    several steps with one symbol, later forms of the same thing, one may be `shown` under its own symbol.
    """

    name: str
    symbol: str
    layouts: tuple[str, ...]
    searched: tuple[str, ...] = ()
    linear: str | None = None
    leaf: bool = False
    input: bool = False
    once: bool = False
    hidden: float | None = None
    result: bool = False
    model: bool = False
    gradient: str = ""
    of: str = ""
    added: bool = False
    asked: str = ""
    more: str = ""
    shown: str = ""

    @property
    def own(self) -> str:
        """Our own layout."""
        return self.layouts[0]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes as tables and dumps show them, without a batch axis."""
        return tuple(shown_axis(group) for group in parse_axes(self.own))

    @property
    def of_scores(self) -> bool:
        """True if it has a row of keys for each head and query."""
        return self.own == SCORES

    @property
    def broadcasts(self) -> bool:
        """True if it comes beside others in any shape that broadcasts: masks, a sink, norms' weights."""
        given = TABLE[self.gradient] if self.gradient else self
        if given.is_weight or given.name in PAGES:
            return False
        return given.input and given.once

    @property
    def is_weight(self) -> bool:
        """True if it is a matrix or a bias that may be drawn or given; those of models alone are not."""
        return self.input and bool(self.of)

    @property
    def by_head(self) -> bool:
        """True if each head has its own part of it."""
        return "head" in self.axes

    @property
    def is_split(self) -> bool:
        """True if it is a weight that each head has a part of, with columns of its own.

        Of a number for each head there is one array, as of a bias of all heads.
        """
        return self.is_weight and self.by_head and len(self.axes) > 1

    @property
    def drawn(self) -> bool:
        """True if a run of a sentence draws it where nobody gives it."""
        return self.is_weight and not self.added

    @property
    def side_by_side(self) -> str:
        """The layout of a weight that has its heads side by side."""
        return self.layouts[1] if self.is_split else self.own


def shown_axis(group: Group) -> str:
    """An axis as tables and dumps show it: heads·d_v of those of the heads side by side."""
    *heads, axis = (SHOWN_AS.get(axis, axis) for axis in group)
    return "".join(f"{head}s·" for head in heads) + axis


SCORES = "head query key"


def scores(name: str, symbol: str = "S", hidden: float | None = None) -> Name:
    """The row of a step with a number for each head, query and key."""
    return Name(name, symbol, (SCORES,), ("query key",), hidden=hidden)


def vectors(
    name: str, symbol: str, head: str, row: str, column: str, *, given: bool = False, result: bool = False
) -> Name:
    """The row of an array with a vector for each head and token: by head, side by side, or token first."""
    layouts = f"{head} {row} {column}", f"{row} ({head} {column})"
    return Name(name, symbol, layouts, (f"{row} {head} {column}",), leaf=given, input=given, result=result)


def matrix(name: str, of: str, own: str, *, asked: str = "", more: str = "") -> Name:
    """The row of a projection: by head, side by side, as nn.Linear keeps it, or as Flax does."""
    *heads, rows, columns = map(" ".join, parse_axes(own))
    all_rows = group_axes(rows)
    all_columns = group_axes(*heads, columns)
    fused = f"{all_rows} {all_columns}"
    linear = f"{all_columns} {all_rows}"
    flax = " ".join((rows, *heads, columns))

    return Name(
        name,
        "W",
        layouts=tuple(dict.fromkeys((own, fused, linear))),
        searched=(flax,),
        linear=linear,
        leaf=True,
        input=True,
        once=True,
        of=of,
        asked=asked,
        more=more,
    )


def bias(name: str, of: str, own: str) -> Name:
    """The row of what is added to a projection: by head or side by side."""
    fused = group_axes(*names_in(parse_axes(own)))
    layouts = tuple(dict.fromkeys((own, fused)))
    return Name(name, "b", layouts, leaf=True, input=True, once=True, of=of, added=True)


def group_axes(*axes: str) -> str:
    """These axes side by side, as one: (head d_k); one stays as it is."""
    text = " ".join(axes)
    return f"({text})" if " " in text else text


def given(name: str, symbol: str, layout: str, *, once: bool = False) -> Name:
    """The row of an array that `attend` reads in one layout."""
    return Name(name, symbol, (layout,), leaf=True, input=True, once=once)


def weight(name: str, layout: str) -> Name:
    """The row of a model's own numbers, which come in one layout."""
    kind, _, _ = name.partition("_")
    symbol = kind if kind in {"W", "b"} else name
    return Name(name, symbol, (layout,), leaf=True, once=True, model=True)


def shared_linear(name: str, rows: str, columns: str) -> tuple[Name, Name]:
    """The rows of a model's matrix that all heads share, and of its bias."""
    return weight(f"W_{name}", f"{rows} {columns}"), weight(f"b_{name}", columns)


def norm_of(name: str, layout: str, *, model: bool = True) -> tuple[Name, Name]:
    """The rows of the weight and the bias of a norm."""
    return (
        Name(f"{name}_weight", "γ", (layout,), leaf=True, input=not model, once=True, model=model),
        Name(f"{name}_bias", "β", (layout,), leaf=True, input=not model, once=True, model=model),
    )


def of_models(*rows: Name) -> tuple[Name, ...]:
    """The rows of steps that only models have."""
    return tuple(row._replace(model=True) for row in rows)


# Of layers of a gated delta rule: before and after the norms of Q and K, after scores, after heads.

CONVOLVED = (
    weight("conv_Q", "head d_k kernel"),
    weight("conv_K", "head d_k kernel"),
    weight("conv_V", "head d_v kernel"),
    weight("W_beta", "head d_model one"),
    weight("W_decay", "head d_model one"),
    weight("decay_rate", "head"),
    weight("decay_step", "head"),
    *of_models(
        vectors("Q_convolved", "Q", "head", "query", "d_k"),
        vectors("K_convolved", "K", "kv_head", "new", "d_k"),
        vectors("V_convolved", "V", "kv_head", "new", "d_v"),
    ),
)
OF_TOKENS = ("head token one",)
STATES = of_models(
    Name("beta_logits", "beta_logits", OF_TOKENS),
    Name("beta", "beta", OF_TOKENS),
    Name("decay_logits", "decay_logits", OF_TOKENS),
    Name(DECAY, DECAY, OF_TOKENS),
    vectors(WRITTEN, "U", "kv_head", "new", "d_v"),
)
FADED_SCORES = of_models(scores(FADED))
HEADS_NORMED = (
    *norm_of("head_norm", "d_v"),
    *of_models(vectors("head_outputs_normed", "Z", "head", "query", "d_v")),
)
DELTA_RULE = (*CONVOLVED, *STATES, *FADED_SCORES, *HEADS_NORMED)

# Of layers that mix tokens without attending: a state space (Mamba 2), and a short convolution.

MIXING = (
    weight("conv_bias_Q", "head d_k"),
    weight("conv_bias_K", "head d_k"),
    weight("conv_bias_V", "head d_v"),
    weight("W_in_gate", "kv_head d_model d_v"),
    weight("b_in_gate", "kv_head d_v"),
    *of_models(
        vectors(IN_GATE, "in_gate", "kv_head", "new", "d_v"),
        vectors("V_gated", "V", "kv_head", "new", "d_v"),
        Name(STEP_SIZE, "Δ", OF_TOKENS),
    ),
)
CONCAT_NORMED = (
    *norm_of("concat_norm", "(head d_v)"),
    Name("concat_normed", "Z", ("query (head d_v)",), model=True),
)
SKIPPED = (weight("skip", "head"), *of_models(vectors("head_outputs_skipped", "Z", "head", "query", "d_v")))
GATED_NORMED = (
    *norm_of("gate_norm", "(head d_v)"),
    Name("gated_normed", "Z", ("query (head d_v)",), model=True),
)

# Of attention that reads distances as vectors (DeBERTa): D, and what it is to queries and to keys.

BY_DISTANCE = (
    weight("distances", "distance d_model")._replace(symbol="D"),
    *norm_of("distances_norm", "d_model"),
    Name("distances_normed", "D", ("distance d_model",), model=True),
    weight("W_K_distances", "head d_model d_k"),
    weight("b_K_distances", "head d_k"),
    Name("K_distances", "K_D", ("head distance d_k",), model=True),
    Name("c2p", "c2p", ("head query distance",), model=True),
    weight("W_Q_distances", "head d_model d_k"),
    weight("b_Q_distances", "head d_k"),
    Name("Q_distances", "Q_D", ("head distance d_k",), model=True),
    Name("p2c", "p2c", ("head key distance",), model=True),
)
SCORES_BY_DISTANCE = of_models(scores("c2p_scores"), scores("p2c_scores"))

STATE_SPACE, CONVOLUTION, DELTA_MIXER = "state space", "short convolution", "gated delta rule"
"""What mixes tokens in the layers of some models where others attend."""
NETWORK = "a network alone"
"""What stands there in layers that mix nothing."""

OF_SPLITS = (
    "chunk batch head query",
    "head chunk query",
    "head query chunk",
    "chunk query head",
    "chunk batch query head",
    "query chunk head",
    "query head chunk",
)
"""The axes that kernels give what they compute of each split of the keys."""
OF_SPLITS_1 = tuple(f"{layout} 1" for layout in ("chunk head query", *OF_SPLITS))

ROWS = (
    Name(EMBEDDINGS, "E", ("token d_model",), leaf=True),
    Name(POSITIONS, "P", ("token d_model",), leaf=True, once=True),
    Name(HIDDEN, "H", ("token d_model",), leaf=True, model=True),
    *norm_of("norm", "d_model"),
    given(X, "X", "token d_model"),
    given(MEMORY, "M", "new d_memory"),
    *shared_linear("latent_Q", "d_model", "rank"),
    Name("latent_Q", "C_Q", ("query rank",), model=True),
    *norm_of("latent_Q_norm", "rank"),
    Name("latent_Q_normed", "C_Q", ("query rank",), model=True),
    *shared_linear("latent_KV", "d_model", "kv_rank"),
    Name("latent_KV", "C_KV", ("key kv_rank",), model=True),
    *norm_of("latent_KV_norm", "kv_rank"),
    Name("latent_KV_normed", "C_KV", ("key kv_rank",), model=True),
    *shared_linear("K_rope", "d_model", "d_rope"),
    Name("K_rope", "R", ("key d_rope",), model=True),
    Name("K_rope_rotated", "R", ("key d_rope",), model=True),
    matrix("W_Q", X, "head d_model d_k", more=", the heads side by side; or rows for each head"),
    matrix("W_K", MEMORY, "kv_head d_memory d_k"),
    matrix("W_V", MEMORY, "kv_head d_memory d_v"),
    bias("b_Q", Q, "head d_k"),
    bias("b_K", K, "kv_head d_k"),
    bias("b_V", V, "kv_head d_v"),
    vectors(Q, "Q", "head", "query", "d_k", given=True),
    given(KEY_PAGES, "K_p", "page slot kv_head d_k", once=True),
    vectors(K, "K", "kv_head", "new", "d_k", given=True),
    given(VALUE_PAGES, "V_p", "page slot kv_head d_v", once=True),
    vectors(V, "V", "kv_head", "new", "d_v", given=True),
    vectors("K_latent", "K_C", "kv_head", "new", "d_k")._replace(model=True),
    *CONVOLVED,
    *MIXING,
    *norm_of("Q_norm", "head d_k", model=False),
    *norm_of("K_norm", "kv_head d_k", model=False),
    vectors("Q_normed", "Q", "head", "query", "d_k"),
    vectors("K_normed", "K", "kv_head", "new", "d_k"),
    *STATES,
    vectors("V_normed", "V", "kv_head", "new", "d_v")._replace(model=True),
    vectors("Q_rotated", "Q", "head", "query", "d_k"),
    vectors("K_rotated", "K", "kv_head", "new", "d_k"),
    vectors("Q_tempered", "Q", "head", "query", "d_k"),
    vectors(PAST_KEY, "K", "kv_head", "past", "d_k", given=True),
    vectors("present_key", "K", "kv_head", "key", "d_k"),
    vectors(PAST_VALUE, "V", "kv_head", "past", "d_v", given=True),
    vectors("present_value", "V", "kv_head", "key", "d_v"),
    *(given(name, name, "kv_head", once=True) for name in STORED_SCALES),
    vectors("K_dequantised", "K", "kv_head", "key", "d_k"),
    vectors("V_dequantised", "V", "kv_head", "key", "d_v"),
    vectors("K_shared", "K", "head", "key", "d_k"),
    vectors("V_shared", "V", "head", "key", "d_v"),
    *BY_DISTANCE,
    scores("scores"),
    *SCORES_BY_DISTANCE,
    scores(SCALED)._replace(shown="S′"),
    scores(SOFTCAPPED),
    scores("alibi_scores"),
    given(BIAS_TABLE, BIAS_TABLE, "head bucket", once=True),
    given(BIAS, "B", SCORES, once=True),
    scores(BIASED),
    given(MASK, "mask", SCORES, once=True),
    scores(MASKED, hidden=-inf),
    *FADED_SCORES,
    given(SINK, "sink", "head", once=True),
    Name(CHUNK_LOGSUMEXP, "L_c", ("chunk head query",), (*OF_SPLITS, *OF_SPLITS_1)),
    Name(LOGSUMEXP, "L", ("head query",), ("head query 1", "query head", "query head 1")),
    scores(WEIGHTS, "A", hidden=0.0),
    Name(SINK_WEIGHTS, "A_sink", ("head query",)),
    Name(CHUNK_OUTPUTS, "Z_c", ("chunk head query d_v",), tuple(f"{layout} d_v" for layout in OF_SPLITS)),
    Name(CHUNK_SHARES, "w_c", ("chunk head query",)),
    vectors(HEAD_OUTPUTS, "Z", "head", "query", "d_v", result=True),
    *HEADS_NORMED,
    *SKIPPED,
    Name(CONCAT, "Z", ("query (head d_v)",), result=True, shown=CONCAT),
    matrix("W_gate", X, "d_model (head d_v)", asked=GATE),
    bias("b_gate", GATE, "(head d_v)"),
    Name(GATE, "G", ("query (head d_v)", "head query d_v"), ("query head d_v",), leaf=True, input=True),
    Name(GATED, "Z", ("query (head d_v)",), shown=GATED),
    *GATED_NORMED,
    *CONCAT_NORMED,
    matrix(W_O, CONCAT, "(head d_v) d_out", more="; none leaves the projection out"),
    bias(B_O, OUTPUT, "d_out"),
    Name(OUTPUT, "Y", ("query d_out",), result=True),
    *norm_of("output_norm", "d_out"),
    Name("output_normed", "Y", ("query d_out",), model=True),
    Name("output_scale", "λ", ("d_out",), leaf=True, once=True, model=True),
    Name("output_scaled", "Y", ("query d_out",), model=True),
    Name(RESIDUAL, "H", ("query d_out",), model=True),
    Name(MLP_OUTPUT, "N", ("query d_out",), leaf=True, model=True),
    Name(FINAL, "F", ("query d_model",), leaf=True, model=True),
    weight("W_U", "d_model vocab"),
    weight("b_U", "vocab"),
    *(Name(name, "ℓ", ("query vocab",), model=True) for name in ("raw_logits", "scaled_logits", LOGITS)),
    *(
        given(name, "", "")
        for name in (KEY_LENGTHS, POSITION_IDS, BIAS_INDEX, PAGE_TABLE, *PAGE_LIST, *CU_SEQLENS)
    ),
)

DELTA = "delta"
"""Σ A ∘ d_A of each row of weights: what softmax takes off all of its gradients."""
WEIGHTS_AGAIN = "weights made again"
"""Of a program whose backward pass does not read what the forward pass made."""

NO_GRADIENT = {
    MASK,
    KEY_LENGTHS,
    POSITION_IDS,
    BIAS_INDEX,
    PAGE_TABLE,
    *PAGE_LIST,
    *CU_SEQLENS,
    SINK_WEIGHTS,
}
"""What no gradient is by: truth values and lengths, what stands beside or after the output, chunks, which
come to the whole, as gradients go through that, and layers of a delta rule."""
NO_GRADIENT |= {CHUNK_LOGSUMEXP, CHUNK_OUTPUTS, CHUNK_SHARES}
NO_GRADIENT |= {RESIDUAL, MLP_OUTPUT, "output_normed", "output_norm_weight", "output_norm_bias"}
NO_GRADIENT |= {"output_scale", "output_scaled"}
NO_GRADIENT |= {FINAL, "W_U", "b_U", "raw_logits", "scaled_logits", LOGITS}
NO_GRADIENT |= {row.name for row in (*DELTA_RULE, *MIXING, *SKIPPED, *GATED_NORMED)}
NO_GRADIENT |= {row.name for row in (*BY_DISTANCE, *SCORES_BY_DISTANCE)}

READERS = {
    X: ("Q", "K", "V", "latent_Q", "latent_KV", "K_rope", *(row.name[2:] for row in ROWS if row.asked)),
    MEMORY: (K, V),
    "latent_KV": ("K_latent", K, V),
    "latent_KV_normed": ("K_latent", K, V),
}
"""What several lines may read, and those lines; softmax may read any scores."""


def gradient_of(name: str) -> str:
    """The name of the gradient of the loss by an array."""
    return f"d_{name}"


def is_gradient(name: str) -> bool:
    """True for a step of the backward pass."""
    return name in TABLE and bool(TABLE[name].gradient)


def gradient_via(name: str, reader: str) -> str:
    """The name of the part of a gradient that comes through one of the steps that read the array."""
    return f"d_{name}_through_{reader}"


def gradients() -> Iterator[Name]:
    """The rows of the backward pass, from the output back; where it begins it may be handed in."""
    for row in reversed(ROWS):
        if row.name in NO_GRADIENT:
            continue

        begins = row.name in {OUTPUT, HEAD_OUTPUTS, LOGSUMEXP}
        own = row._replace(
            name=gradient_of(row.name),
            symbol=f"d{row.symbol}",
            shown=f"d{row.shown}" if row.shown else "",
            gradient=row.name,
            leaf=begins,
            input=begins,
            hidden=None,
            result=False,
        )
        readers = (WEIGHTS, LOGSUMEXP) if row.of_scores else READERS.get(row.name, ())
        for reader in readers:
            yield own._replace(name=gradient_via(row.name, reader))
        yield own
        if row.name == WEIGHTS:
            yield Name(DELTA, "δ", ("head query",), gradient=WEIGHTS)


TABLE = {row.name: row for row in (*ROWS, *gradients())}


FIRST: dict[str, str] = {}
"""The first step with each symbol: scores of the several that have S."""

for row in ROWS:
    if row.symbol and not row.is_weight and not row.model:
        FIRST.setdefault(row.symbol, row.name)

SYMBOLS = {
    **{symbol: name for symbol, name in FIRST.items() if symbol not in TABLE},
    **{f"d{symbol}": gradient_of(name) for symbol, name in FIRST.items() if gradient_of(name) in TABLE},
}
"""The step that a symbol names: attention_weights, which is A in tables."""


def where(wanted: Callable[[Name], bool]) -> list[str]:
    """The names of the rows that this holds of, in order."""
    return [row.name for row in TABLE.values() if wanted(row)]


def leaves() -> list[str]:
    """The names that may be handed in."""
    return where(lambda row: row.leaf and not row.model)


def results() -> list[str]:
    """The stages of what attention gives, in order: by head, side by side, and projected."""
    return where(lambda row: row.result)


def result_in(there: Container[str]) -> list[str]:
    """The last stage of what attention gives that is there, alone; nothing where none is."""
    return [name for name in reversed(results()) if name in there][:1]


def shares_in(there: Container[str]) -> list[str]:
    """What queries take of keys, if it is there: weights, or what stands for them without softmax."""
    return [name for name in (WEIGHTS, FADED) if name in there][:1]


def axis_size(axis: str, sizes: Sizes) -> int:
    """The size of an axis of a layout, or of the wider one that it is shown as."""
    return sizes[axis] if axis in sizes else sizes[SHOWN_AS[axis]]


def shape_in(layout: str, sizes: Sizes) -> Shape:
    """The shape of an array in this layout."""
    return tuple(prod(axis_size(axis, sizes) for axis in group) for group in parse_axes(layout))


def matrix_of(symbol: str) -> str:
    """The matrix that makes Q, K or V."""
    return f"W_{symbol}"


def bias_of(symbol: str) -> str:
    """What is added to Q, K or V where it is made."""
    return f"b_{symbol}"
