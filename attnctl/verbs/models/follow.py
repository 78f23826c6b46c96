"""A token followed down the layers: from where each layer's attention moves it, and what would come next.

How much a key moves a query is ‖Σ A·V·W_O‖ over the heads, the length of what is added to the stream of
that key's value (Kobayashi et al. 2020): a weight of 0.9 on a value of next to nothing moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError
from attnctl.base.words import quote
from attnctl.drawing.screen import Screen, Span
from attnctl.drawing.screen.listing import column_blocks
from attnctl.drawing.screen.output import Element
from attnctl.math import Array, Progress
from attnctl.math.names import HEAD_OUTPUTS, RESIDUAL, W_O, WEIGHTS, X
from attnctl.models.attention import prepare_attention
from attnctl.models.forward import through
from attnctl.models.layer import LayerTensors
from attnctl.models.next import Pass, Ranked, top_tokens
from attnctl.models.stream import steps_to_keep
from attnctl.record import Trace

MOST_TOKENS = 256
MOST_NAMED = 3
"""Sources of a layer that a screen names."""


class LayerMoves(NamedTuple):
    """What a layer's attention adds to each token of each: lengths, (query, key)."""

    layer: int
    norms: Array
    heads: Array
    """The head that adds most of it, (query, key)."""
    network: Array
    """The length of what the network adds to each token."""
    next: tuple[Ranked, ...]
    """The likeliest next token at each position, were this the last layer."""


@dataclass(frozen=True)
class Followed:
    """A text's tokens through a model, and the one that is followed."""

    model: str
    tokens: tuple[str, ...]
    place: int
    layers: tuple[LayerMoves, ...]

    @property
    def largest(self) -> float:
        """The longest of all that attention adds to the token that is followed, but by itself."""
        return max((float(self.into(moves, self.place).max()) for moves in self.layers), default=0.0)

    def into(self, moves: LayerMoves, place: int) -> Array:
        """What each other token adds to one."""
        row = moves.norms[place].astype(np.float64)
        row[place] = 0
        return row

    def to_dict(self) -> dict[str, Any]:
        layers = []
        for moves in self.layers:
            token = moves.next[self.place]
            layers.append(
                {
                    "layer": moves.layer,
                    "norms": moves.norms[self.place].tolist(),
                    "heads": moves.heads[self.place].tolist(),
                    "network": float(moves.network[self.place]),
                    "next": token._asdict(),
                }
            )
        return {"model": self.model, "tokens": list(self.tokens), "at": self.place, "layers": layers}


def place_named(tokens: list[str], word: str) -> int:
    """The position of a word, its last one, or the one that a number says. Raises AttnError for neither."""
    places = [place for place, token in enumerate(tokens) if token == word.strip()]
    if places:
        return places[-1]
    if word.removeprefix("-").isdecimal() and -len(tokens) <= int(word) < len(tokens):
        return int(word) % len(tokens)
    known = " ".join(map(quote, dict.fromkeys(tokens)))
    raise AttnError(f"--follow: no token {quote(word)}; there are {known}, or a number from 0")


def follow(prompt: Pass, word: str, moved: Progress | None = None) -> Followed:
    """The tokens of a prompt through all layers, one at a time. Raises AttnError for too many."""
    tokens = list(prompt.tokens.labels)
    place = place_named(tokens, word)
    if len(tokens) > MOST_TOKENS:
        raise AttnError(f"--follow: {len(tokens)} tokens; {MOST_TOKENS} are the most")

    model = prompt.runner.model
    hidden = prompt.runner.begin(prompt.tokens)
    count = len(model.description.layers)
    layers: list[LayerMoves] = []
    for index in range(count):
        tensors = model.layer(index)
        seen: list[Trace] = []
        made: list[Array] = []
        hidden = through(tensors, hidden, None, recording(seen), keeping(made))
        norms, heads = moves_of(seen[0])
        layers.append(
            LayerMoves(
                layer=index,
                norms=norms,
                heads=heads,
                network=np.linalg.norm(made[0].astype(np.float64), axis=-1),
                next=tuple(top_tokens(prompt, hidden[..., : model.description["width"]])),
            )
        )
        if moved:
            moved(index + 1, count)
    return Followed(model.name, tuple(tokens), place, tuple(layers))


def recording(seen: list[Trace]) -> Any:
    """What carries out attention and notes what it came to."""

    def run(tensors: LayerTensors, hidden: Array, memory: Array | None, cross: bool) -> Trace:
        plan = prepare_attention(tensors, hidden, None, memory, cross=cross)
        if HEAD_OUTPUTS not in plan.derivation or WEIGHTS not in plan.derivation:
            raise AttnError(f"--follow: layer {tensors.index} of {tensors.d.family} does not attend")
        values = plan.derivation[HEAD_OUTPUTS].inputs[1]
        wanted = [WEIGHTS, values, W_O, HEAD_OUTPUTS]
        seen.append(plan.run([*wanted, *steps_to_keep(tensors, X, RESIDUAL)]))
        return seen[-1]

    return run


def keeping(made: list[Array]) -> Any:
    def network(output: Array) -> Array:
        made.append(output)
        return output

    return network


class Moves(NamedTuple):
    norms: Array
    heads: Array


def moves_of(trace: Trace) -> Moves:
    """The lengths of what each key adds to each query, of all heads; and the head that adds most."""
    weights = trace[WEIGHTS].astype(np.float64)
    values = trace[trace.steps[HEAD_OUTPUTS].inputs[1]].astype(np.float64)
    heads = len(weights)
    matrices = trace[W_O].astype(np.float64).reshape(heads, values.shape[-1], -1)
    written = np.repeat(values, heads // len(values), axis=0) @ matrices

    # ‖Σ_h a_h w_h‖² = Σ_hg a_h a_g (w_h · w_g): the products of heads, a key at a time.
    products = np.einsum("hjd,gjd->jhg", written, written)
    squares = np.einsum("hqj,gqj,jhg->qj", weights, weights, products, optimize=True)
    alone = weights * np.sqrt(np.einsum("jhh->hj", products))[:, None]
    return Moves(np.sqrt(np.maximum(squares, 0)), alone.argmax(axis=0))


# --- on a screen ---


def follow_lines(found: Followed, screen: Screen) -> Iterator[Element]:
    """For each layer the tokens that move the one that is followed most, and what would come next."""
    token = screen.token(found.tokens[found.place])
    yield [
        (f"{token}, position {found.place}, down the layers of {screen.printable(found.model)}", "label")
    ]
    yield []
    titles = ["layer", "moved most by", "‖A·V·W_O‖", "by head", "network", "next token", "p"]
    rows: list[list[Span]] = []
    for moves in found.layers:
        rows += rows_of_layer(found, moves, screen)
    yield from column_blocks(
        screen, [screen.printable(each) for each in titles], rows, frozenset({0, 1, 5})
    )
    yield [(screen.printable("Of other tokens, all heads together; one page: -o follow.html"), "dim")]


def rows_of_layer(found: Followed, moves: LayerMoves, screen: Screen) -> Iterator[list[Span]]:
    into = found.into(moves, found.place)
    order = [place for place in np.argsort(-into, kind="stable")[:MOST_NAMED].tolist() if into[place] > 0]
    following = moves.next[found.place]
    for number, source in enumerate(order or [found.place]):
        is_first = number == 0
        strong = "strong" if into[source] > 0.5 * found.largest else ""
        row: list[Span] = [(f"layer {moves.layer}" if is_first else "", "label")]
        row.append((f"{screen.token(found.tokens[source])} ({source})", strong))
        row.append((f"{into[source]:.3g}", strong))
        row.append((f"{moves.layer}.{moves.heads[found.place, source]}", ""))
        row.append((f"{moves.network[found.place]:.3g}" if is_first else "", ""))
        row.append((screen.token(following.text) if is_first else "", ""))
        row.append((f"{following.probability:.1%}" if is_first else "", ""))
        yield row
