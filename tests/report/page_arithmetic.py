"""What a page says of every cell, worked out by its own script in Node; and what explain says."""

import json
import shutil
import subprocess
from pathlib import Path

import attnctl.pages
from attnctl.base.errors import AttnError
from attnctl.drawing.screen import Screen
from attnctl.pages import pieces
from attnctl.pages.describe import explainer_of
from attnctl.verbs.explain.view import Page

HERE = Path(__file__).parent
SCRIPTS = Path(attnctl.pages.__file__).parent / "page"
NODE = shutil.which("node")


def write(traces, path):
    path.write_bytes(b"".join(pieces(traces)))
    return path


def said_by_pages(paths, most=0):
    """What the script of the pages says of each of their cells."""
    command = [NODE, HERE / "explain.mjs", SCRIPTS, str(most), *paths]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Said:
    """What explain says of cells of one trace."""

    def __init__(self, trace, most=0):
        self.explainer = explainer_of(trace)
        self.view = Page(self.explainer, Screen(80))
        self.most = most or None

    def __call__(self, step, cell):
        """{symbols, figures, notes} of a cell, or {why} where explain refuses."""
        try:
            found = self.explainer.explain(step, tuple(cell))
        except AttnError as error:
            return {"why": str(error)}
        return {
            "symbols": self.view.symbols(found, self.most) if found.inputs else None,
            "figures": self.view.figures(found, self.most),
            "notes": list(self.view.notes(found)),
        }


def as_said(found):
    """What a page says, in the form of Said."""
    if found.get("why"):
        return {"why": found["why"]}
    return {name: found[name] for name in ("symbols", "figures", "notes")}
