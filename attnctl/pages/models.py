"""Pages of models: two beside each other, and a token followed down the layers of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from attnctl.base.words import plural, quote
from attnctl.drawing.screen.text import shell_line, visible
from attnctl.pages import image, page_of_tables
from attnctl.pages.html import finding_html, html_table, text
from attnctl.verbs.models.compare import LayerDiff, ModelsDiff
from attnctl.verbs.models.compared import models_picture
from attnctl.verbs.models.follow import Followed
from attnctl.verbs.models.followed import draw_followed, shown

HEADING = "Two models"
TITLES = ["layer", "weights", "most in", "by", "head", "by", "cosine", "at the last", "next token, nats"]
NOTES = [
    "weights: ‖B − A‖ / ‖A‖ of all tensors of the layer",
    "cosine: of the rows that leave it, the mean over positions",
    "next token: Kullback–Leibler of what each would say were this its last layer",
]
MOST_TENSORS = 200


def write_models(found: ModelsDiff, stream: IO[bytes]) -> None:
    names = f"{visible(found.a)} and {visible(found.b)}"
    body = [f"<p>A: {text(found.a)}</p><p>B: {text(found.b)}</p>"]
    if not found.same:
        drawn = models_picture([found])
        words = "How far each head's matrices, and each layer's rows, have moved"
        body.append(f'<div class="scroll">{image(drawn.svg, words)}</div>')
    rows = [layer_words(layer) for layer in found.layers]
    body.append(html_table("Layer by layer", TITLES, rows, NOTES))
    body.append(tensors_table(found))
    body.append(tokens_table(found))
    finding = finding_html(*finding_words(found))
    page = page_of_tables(f"{HEADING}: {names}", HEADING, names, body, finding=finding)
    stream.write(page)


def finding_words(found: ModelsDiff) -> tuple[str, str, str]:
    """Where the two differ most, and the command that shows it."""
    if found.same:
        return "The same weights, and the same logits.", "", ""

    last = found.divergence[-1]
    first = f"The first tensor that differs: {found.first}. " if found.first else ""
    most = max(found.layers, key=lambda layer: layer.weights)
    sentence = f"{first}Layer {most.layer} has moved most, by {most.weights:.2%} of its weights"
    command = ["attnctl", "run", "--model", found.b, "--layer", str(most.layer)]
    if any(most.heads):
        head = max(range(len(most.heads)), key=lambda head: most.heads[head])
        sentence += f", head {head} of its heads by {most.heads[head]:.2%}"
        command += ["--head", str(head)]
    sentence += f"; the next token is {last:.3g} nats away."
    return sentence, "See that layer", shell_line([*command, *sentence_of(found)])


def sentence_of(found: ModelsDiff) -> list[str]:
    """What follows the command: ids that are their own labels, or nothing that is known of the text."""
    if all(token.isdecimal() for token in found.tokens):
        return ["--ids", ",".join(found.tokens)]
    return ["TEXT"]


def layer_words(layer: LayerDiff) -> list[str]:
    worst = max(layer.tensors, key=lambda name: layer.tensors[name], default="")
    head = ""
    of_head = ""
    if any(layer.heads):
        number = max(range(len(layer.heads)), key=lambda each: layer.heads[each])
        head = str(number)
        of_head = f"{layer.heads[number]:.3g}"
    return [
        str(layer.layer),
        f"{layer.weights:.3g}",
        worst,
        f"{layer.tensors[worst]:.3g}" if worst else "",
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
    notes = [f"{len(rows) - MOST_TENSORS} more"] if len(rows) > MOST_TENSORS else []
    caption = f"{plural(len(rows), 'tensor')} that differ"
    return html_table(caption, ["tensor", "‖B − A‖ / ‖A‖"], rows[:MOST_TENSORS], notes)


def tokens_table(found: ModelsDiff) -> str:
    """How far apart the next tokens are after each token, and the likeliest after the last."""
    by_place = []
    for place, (token, nats) in enumerate(zip(found.tokens, found.divergence, strict=True)):
        by_place.append([str(place), token, f"{nats:.3g}"])
    likeliest = []
    for ours, theirs in zip(found.next_a, found.next_b, strict=True):
        row = [quote(ours.text), f"{ours.probability:.1%}", quote(theirs.text), f"{theirs.probability:.1%}"]
        likeliest.append(row)

    after = html_table("Kullback–Leibler of the next token, B from A", ["after", "token", "nats"], by_place)
    return html_table("The likeliest after the last", ["A", "p", "B", "p"], likeliest, words=True) + after


# --- a token followed down the layers ---

MOST_OTHERS = 40
"""Other tokens whose pictures a page holds, too."""


def write_followed(found: Sequence[Followed], stream: IO[bytes]) -> None:
    """The picture of the token that is followed, its numbers, and pictures of the others to be opened."""
    (followed,) = found
    token = shown(followed.tokens[followed.place])
    heading = f"“{token}” down the layers"
    sentence = " ".join(map(shown, followed.tokens))
    body = [f'<section class="scroll" tabindex="0">{draw_followed(followed).svg}</section>']
    body.append(html_table("Layer by layer", FOLLOWED_TITLES, followed_rows(followed)))
    for place, other in enumerate(followed.tokens[:MOST_OTHERS]):
        if place == followed.place:
            continue
        drawn = draw_followed(followed, place).svg
        summary = f"{text(shown(other))}, position {place}"
        body.append(f'<details><summary>{summary}</summary><div class="scroll">{drawn}</div></details>')
    finding = finding_html(followed_words(followed))
    facts = f"{sentence} · {followed.model}"
    stream.write(page_of_tables(f"{heading}: {sentence}", heading, facts, body, finding=finding))


FOLLOWED_TITLES = ["layer", "moved most by", "‖A·V·W_O‖", "by head", "network adds", "next token", "p"]


def followed_rows(found: Followed) -> list[list[str]]:
    rows = []
    for moves in found.layers:
        into = found.into(moves, found.place)
        source = int(into.argmax())
        following = moves.next[found.place]
        rows.append(
            [
                str(moves.layer),
                f"{shown(found.tokens[source])} ({source})",
                f"{into[source]:.3g}",
                f"{moves.layer}.{moves.heads[found.place, source]}",
                f"{moves.network[found.place]:.3g}",
                quote(following.text),
                f"{following.probability:.1%}",
            ]
        )
    return rows


def followed_words(found: Followed) -> str:
    """The layer and the token that move it most, and what comes next in the end."""
    most = max(found.layers, key=lambda moves: float(found.into(moves, found.place).max()))
    source = int(found.into(most, found.place).argmax())
    token = shown(found.tokens[found.place])
    last = found.layers[-1].next[found.place]
    return (
        f"“{token}” is moved most in layer {most.layer}, by “{shown(found.tokens[source])}”, there by "
        f"head {most.layer}.{most.heads[found.place, source]}; {quote(last.text)} comes next in the end, "
        f"{last.probability:.0%}."
    )
