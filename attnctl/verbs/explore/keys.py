"""The keys of the explorer, said once: for the program, for the line at its foot and for its help."""

from __future__ import annotations

from typing import NamedTuple


class KeyBinding(NamedTuple):
    """A key's names, its action, and its words in the foot and in the help."""

    keys: str
    action: str
    sign: str = ""
    foot: str = ""
    help: str = ""


KEYS = (
    KeyBinding("up", "move(-1,0)", "arrows", "", "move from cell to cell"),
    KeyBinding("down", "move(1,0)"),
    KeyBinding("left", "move(0,-1)"),
    KeyBinding("right", "move(0,1)"),
    KeyBinding("pageup", "page(-1)", "PgUp PgDn", "", "a page of rows up or down"),
    KeyBinding("pagedown", "page(1)"),
    KeyBinding("home", "edge(0)", "Home End", "", "the first or the last column of the row"),
    KeyBinding("end", "edge(1)"),
    KeyBinding(
        "ctrl+home", "corner(0)", "Ctrl-Home Ctrl-End", "", "the first or the last cell of the matrix"
    ),
    KeyBinding("ctrl+end", "corner(1)"),
    KeyBinding(
        "enter",
        "follow",
        "Enter",
        "follow",
        "go to the cell of the chosen operand: where its number came from",
    ),
    KeyBinding("backspace", "return", "Backspace", "back", "go back to where you were"),
    KeyBinding(
        "tab", "operand(1)", "Tab", "operand", "choose the next operand (Shift-Tab: the one before)"
    ),
    KeyBinding("shift+tab", "operand(-1)"),
    KeyBinding("1,2,3,4,5,6,7,8,9", "nth", "1-9", "", "choose an operand by its number"),
    KeyBinding("left_square_bracket", "step(-1)", "[", "", "the step before"),
    KeyBinding("right_square_bracket", "step(1)", "[ ]", "step", "the step before, the next step"),
    KeyBinding("h", "head(1)", "h", "head", "the next head (H: the one before)"),
    KeyBinding("H", "head(-1)"),
    KeyBinding("b", "member(1)", "b", "", "the next member of a batch (B: the one before)"),
    KeyBinding("B", "member(-1)"),
    KeyBinding(
        "l", "layer(1)", "l", "", "the next layer or trace, where there are several (L: the one before)"
    ),
    KeyBinding("L", "layer(-1)"),
    KeyBinding(
        "slash",
        "ask('find')",
        "/",
        "find",
        "find a token: love, or love,AI for row and column, or a whole cell",
    ),
    KeyBinding(
        "e",
        "ask('edit')",
        "e",
        "edit",
        "edit the number: 0.5, +=1, *=2; every later step shows what changed",
    ),
    KeyBinding("u", "undo", "u", "", "take the last edit back"),
    KeyBinding(
        "d",
        "mode('difference')",
        "d",
        "",
        "show what the edits added to each number, and the numbers again",
    ),
    KeyBinding("m", "rules", "m", "rules", "switch rules on and off: causal, window, ..."),
    KeyBinding("s", "ask('seed')", "s", "seed", "draw everything from another seed"),
    KeyBinding("t", "mode('heat')", "t", "heat", "a heat map, and the numbers again"),
    KeyBinding(
        "w",
        "write",
        "w",
        "shell",
        "write the shell commands that give what is seen; they are printed at the end, too",
    ),
    KeyBinding("shift+up", "scroll(-1)", "Shift-Up Shift-Down", "", "scroll the arithmetic"),
    KeyBinding("shift+down", "scroll(1)"),
    KeyBinding("question_mark", "help", "?", "help", "this help"),
    KeyBinding("q", "leave", "q", "quit", "leave"),
)
"""Every key, in the order of the help."""
