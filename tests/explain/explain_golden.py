"""What explanations must look like. Run this file to write the golden files anew, then read the diff."""

from pathlib import Path

import attnctl
from attnctl.drawing.screen import Screen
from attnctl.drawing.screen.output import plain_text
from attnctl.inputs.config.load import load
from attnctl.record.cells import parse_address
from attnctl.verbs.explain import Explainer
from attnctl.verbs.explain.view import Page

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "golden"
TERMINAL, WIDE, PIPE = Screen(80, fits=True), Screen(140, fits=True), Screen()
ASCII = Screen(80, encoding="ascii")


def toy(**options):
    return attnctl.run(
        "the cat saw the dog", **{"heads": 2, "positions": "sinusoidal", "causal": True, **options}
    )


def base():
    return attnctl.run(settings=load(str(ROOT / "configs" / "base-transformer.yaml")))


def shown(trace, cell, screen, *, depth=1, full=False, **view):
    """The lines of an explanation as plain text."""
    explainer = Explainer(trace, full=full)
    page = Page(explainer, screen, depth=depth, full=full, **view)
    lines = page.lines(explainer.root(parse_address(cell), depth))
    return "".join(f"{line}\n" for line in plain_text(lines))


CASES = {
    "score-80.txt": lambda: shown(toy(), "scores[0,saw,the#2]", TERMINAL),
    "score-tree-80.txt": lambda: shown(toy(), "scaled_scores[0,cat,the#1]", TERMINAL, depth=4),
    "weight-80.txt": lambda: shown(toy(), "attention_weights[1,dog,cat]", TERMINAL, depth=2),
    "weight-pipe.txt": lambda: shown(toy(), "attention_weights[1,dog,cat]", PIPE, depth=2),
    "hidden-80.txt": lambda: shown(toy(), "masked_scores[1,cat,dog]", TERMINAL),
    "rotary-ascii.txt": lambda: shown(toy(positions="rope"), "Q_rotated[0,saw,1]", ASCII, depth=3),
    "given-80.txt": lambda: shown(toy(), "W_Q[0,1,1]", TERMINAL),
    "base-80.txt": lambda: shown(base(), "Q[0,0,3]", TERMINAL, depth=2),
    "base-140.txt": lambda: shown(base(), "output[-1,3]", WIDE, depth=2),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        (FOLDER / name).write_text(case(), encoding="utf-8")
