"""The keys of the explorer, said once: for the program, for the line at its foot and for its help."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """What a key does: the names of the keys, the action, how the foot and the help say it."""

    keys: str
    action: str
    sign: str
    foot: str
    help: str


KEYS = (
    Key("up", "move(-1,0)", "arrows", "", "move from cell to cell"),
    Key("down", "move(1,0)", "", "", ""),
    Key("left", "move(0,-1)", "", "", ""),
    Key("right", "move(0,1)", "", "", ""),
    Key("pageup", "page(-1)", "PgUp PgDn", "", "a page of rows up or down"),
    Key("pagedown", "page(1)", "", "", ""),
    Key("home", "edge(0)", "Home End", "", "the first or the last column of the row"),
    Key("end", "edge(1)", "", "", ""),
    Key("ctrl+home", "corner(0)", "Ctrl-Home Ctrl-End", "", "the first or the last cell of the matrix"),
    Key("ctrl+end", "corner(1)", "", "", ""),
    Key(
        "enter",
        "follow",
        "Enter",
        "follow",
        "go to the cell of the chosen operand: where its number came from",
    ),
    Key("backspace", "return", "Backspace", "back", "go back to where you were"),
    Key("tab", "operand(1)", "Tab", "operand", "choose the next operand (Shift-Tab: the one before)"),
    Key("shift+tab", "operand(-1)", "", "", ""),
    Key("1,2,3,4,5,6,7,8,9", "nth", "1-9", "", "choose an operand by its number"),
    Key("left_square_bracket", "step(-1)", "[", "", "the step before"),
    Key("right_square_bracket", "step(1)", "[ ]", "step", "the step before, the next step"),
    Key("h", "head(1)", "h", "head", "the next head (H: the one before)"),
    Key("H", "head(-1)", "", "", ""),
    Key("b", "member(1)", "b", "", "the next member of a batch (B: the one before)"),
    Key("B", "member(-1)", "", "", ""),
    Key("l", "layer(1)", "l", "", "the next layer or trace, where there are several (L: the one before)"),
    Key("L", "layer(-1)", "", "", ""),
    Key(
        "slash",
        "ask('find')",
        "/",
        "find",
        "find a token: love, or love,AI for row and column, or a whole cell",
    ),
    Key(
        "e",
        "ask('edit')",
        "e",
        "edit",
        "edit the number: 0.5, +=1, *=2; every later step shows what changed",
    ),
    Key("u", "undo", "u", "", "take the last edit back"),
    Key(
        "d",
        "mode('difference')",
        "d",
        "",
        "show what the edits added to each number, and the numbers again",
    ),
    Key("m", "rules", "m", "rules", "switch rules on and off: causal, window, ..."),
    Key("s", "ask('seed')", "s", "seed", "draw everything from another seed"),
    Key("t", "mode('heat')", "t", "heat", "a heat map, and the numbers again"),
    Key(
        "w",
        "write",
        "w",
        "shell",
        "write the shell commands that give what is seen; they are printed at the end, too",
    ),
    Key("shift+up", "scroll(-1)", "Shift-Up Shift-Down", "", "scroll the arithmetic"),
    Key("shift+down", "scroll(1)", "", "", ""),
    Key("question_mark", "help", "?", "help", "this help"),
    Key("q", "leave", "q", "quit", "leave"),
)
"""Every key, in the order of the help."""
