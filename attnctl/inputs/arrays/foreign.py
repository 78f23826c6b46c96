"""The arrays of someone's file, brought to our names and layouts by the table of `CONVENTIONS`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.namedtuple import NamedTuple
from attnctl.inputs.arrays.conventions import (
    AS_IS,
    BESIDE_MODEL,
    BY_HEAD,
    BY_HEAD_LINEAR,
    CONV,
    CONVENTIONS,
    HIDES,
    IF_SCORES,
    LINEAR,
    PACKED,
    PACKED_CONV,
    PACKED_LINEAR,
    PACKED_PAGES,
    PASSED,
    VALUES,
    WORDS,
    Convention,
    pattern,
    row_of,
)
from attnctl.math import Array
from attnctl.math.axes import rearrange
from attnctl.math.names import (
    EMBEDDINGS,
    HEAD_OUTPUTS,
    HIDDEN,
    LOGITS,
    MEMORY,
    OUTPUT,
    TABLE,
    W_O,
    X,
    gradient_of,
    matrix_of,
)

NORMED = ("Q_normed", "K_normed")

GRADIENT = re.compile(
    r"(?:(.*\.)?grad_(\w+)|(.+)[._]grad|d_?(q|k|v|o|x|y|out|output|qkv|bias|sinks?))", re.IGNORECASE
)
"""What gradients are called: grad_q, q.grad, q_grad, dq, dQ, do, dout."""

OURS = frozenset(TABLE) - {LOGITS, "scaled_logits"}
"""Names that stand for themselves; scores are called logits, too, and their sizes tell."""

LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)(?=\.|$)")
OF_X = {X, EMBEDDINGS, HIDDEN}

MATRIX = re.compile(r"(?:.*\.)?w_?[qkvo]", re.IGNORECASE)
"""Names of a matrix, or of a module and so of what comes out: beside an X the shape tells."""


def read_foreign(found: Mapping[str, Array], layer: int | None = None, *counts: int | None) -> Understood:
    """The arrays of someone's file under our names.

    `layer` is the one to read of a file with several; `counts` are those of heads and kv heads of packed
    projections, where the arrays do not show them. Our own names stand for themselves. Raises AttnError
    where a file has several layers and nobody says which, or not the one that is asked for.
    """
    forward_of = forward_names(found)
    if forward_of:
        return read_gradients(found, forward_of, layer, *counts)

    theirs = of_layer([name for name in found if name not in OURS], layer)
    rows = rows_of(theirs, found)
    heads, kv_heads = counts or (None, None)
    out = Understood(found, heads or heads_shown(found, rows), kv_heads, find_x(found, rows))
    out.arrays |= {name: found[name] for name in found if name in OURS}

    def order(name: str) -> Precedence:
        return Precedence(
            is_no_matrix=not out.is_matrix(name),
            row=CONVENTIONS.index(rows[name]),
            may_be_matrix=bool(MATRIX.fullmatch(name)),
            name=name,
        )

    for name in sorted(rows, key=order):
        out.take(name, rows[name])
    out.arrays |= {name: found[name] for name in theirs if name not in rows}

    # Self-attention of torch's module is handed one array twice.
    has_both = MEMORY in out.arrays and X in out.arrays
    if has_both and np.array_equal(out.arrays[MEMORY], out.arrays[X]):
        del out.arrays[MEMORY]
    return out


class Precedence(NamedTuple):
    """The order in which arrays are taken.

    Matrices come first, as they tell what follows; what only may be one comes after its kind.
    """

    is_no_matrix: bool
    row: int
    """The place of its row in the table."""
    may_be_matrix: bool
    name: str


def forward_names(found: Iterable[str]) -> dict[str, str]:
    """By the name of each gradient that is not ours, what it is the gradient by."""
    forward_of: dict[str, str] = {}
    for name in found:
        forward = "" if name in OURS else variable_of(name)
        if forward:
            forward_of[name] = forward
    return forward_of


def rows_of(theirs: Iterable[str], found: Mapping[str, Array]) -> dict[str, Convention]:
    """The row of each name that has one."""
    rows: dict[str, Convention] = {}
    for name in theirs:
        row = row_of(name, found)
        if row:
            rows[name] = row
    return rows


def find_x(found: Mapping[str, Array], rows: Mapping[str, Convention]) -> Array | None:
    """The first array that is X, or what X is made of."""
    for name, array in found.items():
        is_x = name in rows and rows[name].ours == (X,)
        if name in OF_X or is_x:
            return array
    return None


def variable_of(name: str) -> str:
    """The array that this is the gradient by: q of q.grad, grad_q and dq; "" where it is no gradient."""
    found = GRADIENT.fullmatch(name)
    if found is None:
        return ""

    path, *names = (group or "" for group in found.groups())
    forward = "".join(names)
    is_known = forward in TABLE or len(forward) > 1
    return path + (forward if is_known else forward.lower())


def read_gradients(
    found: Mapping[str, Array], forward_of: Mapping[str, str], layer: int | None, *counts: int | None
) -> Understood:
    """The arrays under our names, those of the backward pass by what they are gradients by."""
    forward_alone = {name: array for name, array in found.items() if name not in forward_of}
    out = read_foreign(forward_alone, layer, *counts)

    # Gradients are laid out as what they are gradients by: they are read by those names.
    theirs = {forward: name for name, forward in forward_of.items()}
    backward = read_foreign({forward: found[name] for forward, name in theirs.items()}, layer, *counts)
    for name, array in backward.arrays.items():
        gradient = gradient_of(name)
        out.arrays[gradient if gradient in TABLE else theirs.get(name, name)] = array

    read = {name: name for name in backward.arrays if name in theirs} | backward.read
    for ours, last in read.items():
        from_theirs = [name for forward, name in theirs.items() if forward.endswith(last)]
        names = [gradient_of(word) for word in ours.split() if gradient_of(word) in TABLE]
        if names and from_theirs:
            out.read[" ".join(names)] = from_theirs[0]
    out.notes += backward.notes
    return out


def beside_model(names: Iterable[str], *, cross: bool) -> dict[str, str]:
    """The arrays of a known model's layer, theirs to ours; only `cross` attention reads a memory."""
    theirs_of: dict[str, str] = {}
    for name in names:
        ours = known_as(name)
        is_needless = ours == MEMORY and not cross
        if name not in TABLE and ours in TABLE and not is_needless:
            theirs_of.setdefault(ours, name)
    return {theirs: ours for ours, theirs in theirs_of.items() if ours not in names}


def known_as(name: str) -> str:
    """Our name for an array of a layer, or for a gradient by one; of no array where there is none."""
    ours = known_forward_as(name)
    if ours:
        return ours
    forward = variable_of(name)
    return gradient_of(forward if forward in TABLE else known_forward_as(forward))


def known_forward_as(name: str) -> str:
    """Our name for one array as it is, of a layer whose model says what comes into it; "" for others."""
    for ours, text in BESIDE_MODEL.items():
        if name.lower() in text.split():
            return ours

    row = None if MATRIX.fullmatch(name) else row_of(name, ())
    if row is None or len(row.ours) != 1 or row.layout not in {AS_IS, IF_SCORES}:
        return ""
    return row.ours[0]


def passed_names(ours: str) -> tuple[str, ...]:
    """What functions call an array that they are passed."""
    usual = WORDS.get(ours, "").split()
    besides = PASSED.get(ours, "").split()
    words = [ours.lower(), *usual, *besides]
    if ours == gradient_of(OUTPUT):
        for prefix in ("d_", "d", "grad_"):
            words += [f"{prefix}{word}" for word in passed_names(OUTPUT)]
    return tuple(dict.fromkeys(words))


def of_layer(names: Iterable[str], layer: int | None) -> list[str]:
    """The names of one layer, and those of none."""
    number_of: dict[str, int | None] = {}
    layers: set[int] = set()
    for name in names:
        place = LAYER.search(name)
        number = int(place[1]) if place else None
        number_of[name] = number
        if number is not None and row_of(name, ()):
            layers.add(number)

    there = sorted(layers)
    if layer is not None and layer not in there:
        raise AttnError(f"--layer {layer}: the arrays are of {list_layers(there)}")
    if layer is None and len(there) > 1:
        raise AttnError(f"the arrays are of {list_layers(there)}; --layer N says which to read")
    if not there:
        return list(number_of)

    wanted = {None, there[0] if layer is None else layer}
    return [name for name, number in number_of.items() if number in wanted]


def list_layers(layers: list[int]) -> str:
    """layers 0 to 11, or no layer."""
    if not layers:
        return "no layer by number"
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"


def heads_shown(found: Mapping[str, Array], rows: Mapping[str, Convention]) -> int | None:
    """The number of heads that the scores or weights of a file have, where they have an axis for them."""
    for name, array in found.items():
        ours = rows[name].ours if name in rows else (name,)
        if len(ours) != 1 or ours[0] not in TABLE:
            continue

        row = TABLE[ours[0]]
        if row.of_scores and not row.leaf and array.ndim == 4:
            _, heads, _, _ = array.shape  # batch, head, query, key
            return int(heads)
    return None


@dataclass
class Understood:
    """The arrays of one file, ours under our names; `heads` and `kv_heads` share what is packed."""

    found: Mapping[str, Array]
    heads: int | None = None
    kv_heads: int | None = None
    x: Array | None = None
    arrays: dict[str, Array] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    """Theirs by ours, without the path of its module."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""

    def take(self, name: str, row: Convention) -> None:
        """Take an array of theirs as its row has it, or note why it is left out."""
        if row.layout == IF_SCORES and not self.may_be_scores(name):
            self.arrays[name] = self.found[name]
            return
        if self.is_matrix(name):
            symbol = name[-1].upper()
            row = row._replace(ours=(matrix_of(symbol),))

        # Masks are the exception: one of padding goes with another one.
        taken = [ours for ours in row.ours if ours in self.arrays and row.layout != HIDES]
        if taken:
            self.notes.append(f"{name} is left out: {taken[0]} is there already")
            return
        if row.layout == VALUES:
            self.take_source_of_values(name)
            return

        arrays = self.lay_out(self.found[name], row)
        if arrays is None:
            self.notes.append(
                f"{name} is left out: --heads N says how many heads share its {len(row.ours)}"
            )
            return
        names = self.settle(name, row.ours, arrays[0])
        for ours, array in zip(names, arrays, strict=True):
            self.arrays[ours] = both(self.arrays[ours], array) if ours in self.arrays else array

        found = pattern(row.theirs).fullmatch(name)
        assert found is not None  # by which the row was found
        self.read[" ".join(names)] = found[1]

    def take_source_of_values(self, name: str) -> None:
        """Leave out what V is made of, and its weights, where K is made of something else."""
        keys = self.arrays.get(MEMORY, self.arrays.get(X))
        if keys is None or np.array_equal(keys, self.found[name]):
            return

        # None of our arrays is what V alone is made of.
        self.notes.append(f"{name} is left out: V is made of it alone; record V instead")
        for lost in ("W_V", "b_V"):
            self.arrays.pop(lost, None)

    def settle(self, name: str, ours: tuple[str, ...], array: Array) -> tuple[str, ...]:
        """Ours for a name that several arrays go by: its shape tells."""
        if ours == (OUTPUT,) and self.is_by_head(array):
            return (HEAD_OUTPUTS,)
        if ours[0] in NORMED and array.ndim == 1:
            symbol = ours[0][0]
            return (f"{symbol}_norm_weight",)
        return ours

    def is_by_head(self, output: Array) -> bool:
        """True if what attention gives still has its heads, as a fused kernel gives it, laid out as V."""
        if HEAD_OUTPUTS in self.arrays:
            return False
        if output.ndim == 4:
            return True
        v = self.arrays.get("V")
        return W_O not in self.arrays and v is not None and v.ndim == output.ndim

    def is_matrix(self, name: str) -> bool:
        """True if X can be multiplied by it, and it is not as long as what comes out of a module."""
        x = self.x
        array = self.found[name]
        if not MATRIX.fullmatch(name) or x is None or x.ndim < 2 or array.ndim not in {2, 3}:
            return False

        # W_O gives as many columns as X has, the others take them.
        of_x = array.shape[-1 if name[-1] in "oO" else -2]
        is_in_module = "." in name
        is_as_long = array.shape[-2] == x.shape[-2]
        return of_x == x.shape[-1] and not (is_in_module and is_as_long)

    def may_be_scores(self, name: str) -> bool:
        """True if other arrays have as many queries and keys; logits of words have no such keys."""
        array = self.found[name]
        rows: set[int] = set()
        for other, beside in self.found.items():
            if other != name:
                rows |= {*beside.shape[:-1]}
        return array.ndim > 1 and rows.issuperset(array.shape[-2:])

    def lay_out(self, array: Array, row: Convention) -> list[Array] | None:
        """Our arrays of one of theirs; None where nothing tells how many heads there are."""
        if row.layout == HIDES:
            return [~array if array.dtype == bool else array]
        if self.is_linear(row):
            array = array.T

        if row.layout == PACKED_PAGES:
            axis = 1 if array.shape[1:2] == (2,) else 0
            return list(np.moveaxis(array, axis, 0)[:2])
        if row.layout in {PACKED, PACKED_LINEAR, PACKED_CONV}:
            return self.side_by_side(array)
        if row.layout in {BY_HEAD, BY_HEAD_LINEAR}:
            if self.heads is None or array.shape[-1] % (3 * self.heads):
                return None
            return list(rearrange(array, "... (head qkv d) -> qkv ... (head d)", head=self.heads, qkv=3))
        return [array]

    def is_linear(self, row: Convention) -> bool:
        """True for matrices that are (out, in): by their layout, or as the packed one of the file shows."""
        if row.layout not in {CONV, PACKED_CONV}:
            return row.layout in {LINEAR, PACKED_LINEAR, BY_HEAD_LINEAR}

        # nanoGPT has GPT-2's names and nn.Linear's layout.
        for name, array in self.found.items():
            if name.endswith("c_attn.weight") and array.ndim == 2 and array.shape[0] > array.shape[1]:
                return True
        return False

    def side_by_side(self, array: Array) -> list[Array] | None:
        """(…, all of Q, K and V) in three: equal, or with fewer heads of K and V where that is said."""
        columns = array.shape[-1]
        if self.kv_heads is None:
            return None if columns % 3 else np.split(array, 3, axis=-1)

        if self.heads is None:
            return None
        d, rest = divmod(columns, self.heads + 2 * self.kv_heads)
        if rest:
            return None
        end_of_q = self.heads * d
        end_of_k = end_of_q + self.kv_heads * d
        return np.split(array, [end_of_q, end_of_k], axis=-1)


def both(mask: Array, padding: Array) -> Array:
    """A mask without the keys that are padding, (batch, key) or (key,) and true where they are not."""
    real = padding[:, None, None] if padding.ndim > 1 else padding
    return mask & real if mask.dtype == bool else np.where(real, mask, -np.inf)
