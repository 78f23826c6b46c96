"""Pages of models: two beside each other, and a token followed down the layers of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from attnctl.base.words import plural, quote
from attnctl.drawing.screen.text import shell_line, visible
from attnctl.pages import image, page_of_tables
from attnctl.pages.html import finding_html, html_table, scrolled, text
from attnctl.verbs.models.compare import LayerDiff, ModelsDiff
from attnctl.verbs.models.compared import models_picture
from attnctl.verbs.models.follow import Followed
from attnctl.verbs.models.followed import draw_followed, shown

HEADING = "Two models"
LAYER_TITLES = ["layer", "change", "of it most in", "change", "and in head", "change"]
LAYER_TITLES += ["cosine", "at the last token", "next token"]
CHANGE = "change: ‖B − A‖ / ‖A‖ of the weights"
NATS = "next token: Kullback–Leibler divergence of B from A, in nats"
LAYER_NOTES = [
    CHANGE,
    "cosine: of the rows that leave the layer in A and in B, the mean over positions",
    f"{NATS}, were this the last layer of both",
]
MOST_TENSORS = 200


def write_models(found: ModelsDiff, stream: IO[bytes]) -> None:
    body = []
    if not found.same:
        words = "How far each head's matrices, and each layer's rows, have moved"
        body.append(scrolled(image(models_picture([found]).svg, words), words))
    rows = [layer_words(layer) for layer in found.layers]
    body.append(html_table("Layer by layer", LAYER_TITLES, rows, LAYER_NOTES))
    body.append(tensors_table(found))
    body.append(tokens_table(found))

    title = f"{HEADING}: {visible(found.a)} and {visible(found.b)}"
    facts = f"A: {visible(found.a)} · B: {visible(found.b)}"
    stream.write(page_of_tables(title, HEADING, facts, body, finding=models_finding(found)))


def models_finding(found: ModelsDiff) -> str:
    """Where the two differ most, and the command that shows it, as HTML."""
    if found.same:
        return finding_html("The same weights, and the same logits.")

    most = max(found.layers, key=lambda layer: layer.weights)
    sentence = f"Layer {most.layer} differs most: its weights by {most.weights:.2%}"
    command = ["attnctl", "run", "--model", found.b, "--layer", str(most.layer)]
    head = most_moved_head(most)
    if head is not None:
        sentence += f", those of head {head} by {most.heads[head]:.2%}"
        command += ["--head", str(head)]

    sentences = [f"{sentence}.", f"What comes next differs by {found.divergence[-1]:.3g} nats."]
    if found.first:
        sentences.insert(0, f"The first tensor that differs: {found.first}.")
    command += sentence_of(found)
    return finding_html(" ".join(sentences), "See that layer", shell_line(command))


def most_moved_head(layer: LayerDiff) -> int | None:
    """The head whose weights have changed most; None where none has."""
    if not any(layer.heads):
        return None
    return max(range(len(layer.heads)), key=layer.heads.__getitem__)


def sentence_of(found: ModelsDiff) -> list[str]:
    """What follows the command: ids that are their own labels, or nothing that is known of the text."""
    if all(token.isdecimal() for token in found.tokens):
        return ["--ids", ",".join(found.tokens)]
    return ["TEXT"]


def layer_words(layer: LayerDiff) -> list[str]:
    """The row of a layer: how much it has changed, in which tensor and head most, and what comes of it."""
    tensor = ""
    of_tensor = ""
    if layer.tensors:
        tensor = max(layer.tensors, key=layer.tensors.__getitem__)
        of_tensor = f"{layer.tensors[tensor]:.3g}"

    head = ""
    of_head = ""
    number = most_moved_head(layer)
    if number is not None:
        head = str(number)
        of_head = f"{layer.heads[number]:.3g}"

    return [
        str(layer.layer),
        f"{layer.weights:.3g}",
        tensor,
        of_tensor,
        head,
        of_head,
        f"{layer.cosine:.5f}",
        f"{layer.last_cosine:.5f}",
        f"{layer.next_divergence:.3g}",
    ]


def tensors_table(found: ModelsDiff) -> str:
    """Every tensor that differs, those outside of layers first."""
    rows = [[name, f"{share:.3g}"] for name, share in found.outside.items()]
    for layer in found.layers:
        rows += [[f"layer {layer.layer}: {name}", f"{share:.3g}"] for name, share in layer.tensors.items()]
    if not rows:
        return "<p>No tensor differs.</p>"
    notes = [CHANGE]
    if len(rows) > MOST_TENSORS:
        notes.append(f"{plural(len(rows) - MOST_TENSORS, 'more tensor')}")
    caption = "1 tensor differs" if len(rows) == 1 else f"{len(rows)} tensors differ"
    return html_table(caption, ["tensor", "change"], rows[:MOST_TENSORS], notes)


def tokens_table(found: ModelsDiff) -> str:
    """How far apart the next tokens are after each token, and the likeliest after the last."""
    by_place = []
    for place, (token, nats) in enumerate(zip(found.tokens, found.divergence, strict=True)):
        by_place.append([str(place), token, f"{nats:.3g}"])
    likeliest = []
    for ours, theirs in zip(found.next_a, found.next_b, strict=True):
        row = [quote(ours.text), f"{ours.probability:.1%}", quote(theirs.text), f"{theirs.probability:.1%}"]
        likeliest.append(row)

    titles = ["A", "probability", "B", "probability"]
    after_last = html_table("The likeliest next tokens", titles, likeliest, words=True)
    after_each = html_table(
        "How far apart the next tokens are", ["position", "after", "nats"], by_place, [NATS]
    )
    return after_last + after_each


# --- a token followed down the layers ---

MOST_OTHERS = 40
"""Other tokens whose pictures a page holds, too."""


def write_followed(found: Sequence[Followed], stream: IO[bytes]) -> None:
    """The picture of the token that is followed, its numbers, and pictures of the others to be opened."""
    (followed,) = found
    token = shown(followed.tokens[followed.place])
    heading = f"“{token}” down the layers"
    sentence = " ".join(map(shown, followed.tokens))
    body = [scrolled(draw_followed(followed).svg, heading)]
    body.append(html_table("Layer by layer", FOLLOWED_TITLES, followed_rows(followed)))
    others = "".join(other_tokens(followed))
    if others:
        body.append(f'<section class="others"><h2>The other tokens</h2>{others}</section>')
    finding = finding_html(followed_words(followed))
    facts = f"{sentence} · {followed.model}"
    stream.write(page_of_tables(f"{heading}: {sentence}", heading, facts, body, finding=finding))


def other_tokens(followed: Followed) -> Iterator[str]:
    """Each other token, whose picture is there to be opened."""
    for place, other in enumerate(followed.tokens[:MOST_OTHERS]):
        if place == followed.place:
            continue
        words = f"{shown(other)}, position {place}"
        drawn = scrolled(draw_followed(followed, place).svg, words)
        yield f"<details><summary>{text(words)}</summary>{drawn}</details>"


FOLLOWED_TITLES = ["layer", "moved most by", "‖A·V·W_O‖", "by head", "network adds", "next token", "p"]


def followed_rows(found: Followed) -> list[list[str]]:
    rows = []
    place = found.place
    for moves in found.layers:
        into = found.into(moves, place)
        source = int(into.argmax())
        following = moves.next[place]

        row = [str(moves.layer), f"{shown(found.tokens[source])} ({source})"]
        row += [f"{into[source]:.3g}", f"{moves.layer}.{moves.heads[place, source]}"]
        row.append(f"{moves.network[place]:.3g}")
        row += [quote(following.text), f"{following.probability:.1%}"]
        rows.append(row)
    return rows


def followed_words(found: Followed) -> str:
    """The layer and the token that move it most, and what comes next in the end."""
    place = found.place
    most = max(found.layers, key=lambda moves: float(found.into(moves, place).max()))
    source = int(found.into(most, place).argmax())
    token = shown(found.tokens[place])
    by = shown(found.tokens[source])
    head = f"{most.layer}.{most.heads[place, source]}"

    last = found.layers[-1].next[place]
    following = f"“{shown(last.text)}” ({last.probability:.0%})"
    return (
        f"“{token}” is moved most in layer {most.layer}, by “{by}” through head {head}. "
        f"After the last layer the likeliest next token is {following}."
    )
