"""Draw the screens that the README shows, for dark paper and for light: python tests/render/picture.py"""

import io
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "samples" / "pictures"

SCREENS = {
    "check": ["check", "samples/attention_with_bugs.py"],
    "first": ["run", "I love AI", "--heads", "2"],
}
"""The name of a picture -> the command whose screen it is."""

WIDTH, HEIGHT = 100, 50

COLOURS = {
    "dark": "#0d1117 #e6edf3 #484f58 #ff7b72 #3fb950 #d29922 #58a6ff #bc8cff #39c5cf #b1bac4",
    "light": "#ffffff #1f2328 #24292f #cf222e #116329 #9a6700 #0969da #8250df #1b7c83 #6e7781",
}
"""The paper, the ink, and the eight colours that a terminal has."""


def theme(background):
    paper, ink, *eight = (
        tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5)) for colour in COLOURS[background].split()
    )
    return TerminalTheme(paper, ink, eight)


def command_line(name):
    return "attnctl " + " ".join(f'"{word}"' if " " in word else word for word in SCREENS[name])


def screen(name, background):
    """What a terminal of 100 columns shows of the command."""
    environ = {
        "ATTNCTL_BACKGROUND": background,
        "COLORTERM": "truecolor",
        "COLUMNS": str(WIDTH),
        "FORCE_COLOR": "1",
        "HOME": os.devnull,
        "LINES": str(HEIGHT),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "TERM": "xterm-256color",
    }
    command = [sys.executable, "-m", "attnctl", *SCREENS[name]]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    ).stdout


def draw(name, background):
    console = Console(
        file=io.StringIO(), record=True, force_terminal=True, width=WIDTH, color_system="truecolor"
    )
    console.print(f"$ {command_line(name)}", highlight=False)
    console.print(Text.from_ansi(screen(name, background)))
    drawn = console.export_svg(title=" ", theme=theme(background), unique_id=f"{name}-{background}")
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    return drawn.replace("Fira Code", "DejaVu Sans Mono")  # no font is fetched


def words_of(drawn):
    """The words of a picture, in their order."""
    return unescape(re.sub(r"<style.*?</style>|<[^>]+>", "\n", drawn, flags=re.DOTALL)).split()


def path_of(name, background):
    return FOLDER / f"{name}-{background}.svg"


if __name__ == "__main__":
    for shown in SCREENS:
        for paper in COLOURS:
            path_of(shown, paper).write_text(draw(shown, paper))
