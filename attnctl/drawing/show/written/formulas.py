"""Formulas of steps and the arithmetic of cells as mathematics of a language.

A formula is the line that tables show: names of steps, signs, functions, and a few words. An expression
is what `explain` works out. Neither is said anew here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from attnctl.base.namedtuple import NamedTuple
from attnctl.drawing.show.written.languages import BREAK, Language, set_width
from attnctl.math.arithmetic import Expr, Number, Operation
from attnctl.math.names import DELTA, TABLE, is_gradient

WIDEST_FRACTION = 40
"""Characters above or below the bar of a fraction; longer ones are written as a quotient."""

# --- names ---

INDEXED = re.compile(r"([A-Za-z])_([A-Za-z]+)")


def name_of(name: str, language: Language) -> str:
    """The name of a step or a size: W_Q with its index, dQ of a gradient, masked_scores upright."""
    if name == DELTA:
        return language.symbols["δ"]
    if is_gradient(name) and name.startswith("d_"):
        of = name[2:]
        apart = f" {language.thin}" if len(of) > 1 else ""  # dQ, but d scores
        return f"{language.variable('d')}{apart} {name_of(of, language)}"
    if name in language.symbols:
        return language.variable(language.symbols[name])
    if found := INDEXED.fullmatch(name):
        letter, index = found.groups()
        return language.variable(letter, language.variable(index))
    return language.variable(name)


def has_index(name: str) -> bool:
    """True of a name that is written with an index."""
    return INDEXED.fullmatch(name.removeprefix("d_") if is_gradient(name) else name) is not None


def symbol_of(symbol: str, language: Language) -> str:
    """The symbol of a step; dS of a gradient."""
    if len(symbol) > 1 and symbol[0] == "d" and symbol[1:] in SYMBOLS:
        return f"{language.variable('d')} {name_of(symbol[1:], language)}"
    return name_of(symbol, language)


SYMBOLS = {row.symbol for row in TABLE.values()}


# --- formulas ---

FUNCTIONS = ("softmax", "exp", "ln", "tanh", "max", "sin", "cos", "silu", "RMSNorm", "LayerNorm")
SIZES = ("d_k", "d_v", "d_model", "L_c", "Z_c", "w_c", "C_Q", "C_KV")
LETTERS = "ABCEFGHKLMNPQRSUVXYZ"
SMALL = "idc"
"""Letters of an exponent; others alone are words, like a."""

TOKEN = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?|[A-Za-zδθλγβσℓ][A-Za-z0-9_]*(?:'s|s')?|\s+|.", re.DOTALL)

SUM_OVER = re.compile(r"Σ over (?:the )?([\w ]+?) of ")


class Piece(NamedTuple):
    """A piece of a formula: what kind it is, its text, and what was written for it."""

    kind: str
    """name, number, function, words, sign, blank."""
    text: str
    written: str


def formula(text: str, language: Language) -> str:
    """A formula as tables have it as mathematics of a language."""
    pieces = join_words(list(read_pieces(text, language)), language)
    return write_pieces(pieces, language).strip()


def read_pieces(text: str, language: Language) -> Iterator[Piece]:
    start = 0
    for found in SUM_OVER.finditer(text):
        yield from plain_pieces(text[start : found.start()], language)
        along = name_of(found[1], language) if found[1] in SIZES else language.quoted(found[1])
        over = language.below(language.symbols["Σ"], along)
        yield Piece("function", "Σ", f"{over} ")
        start = found.end()
    yield from plain_pieces(text[start:], language)


def plain_pieces(text: str, language: Language) -> Iterator[Piece]:
    for found in TOKEN.finditer(text):
        token = found[0]
        before = text[: found.start()]
        after = text[found.end() :]
        yield piece_of(token, before, after, language)


def piece_of(word: str, before: str, after: str, language: Language) -> Piece:
    if word.isspace():
        return Piece("blank", " ", " ")
    if word in FUNCTIONS or word == "σ":
        return Piece("function", word, language.function(word))
    if word[0].isdigit():
        return Piece("number", word, language.number(word))
    if is_name(word) or (word in SMALL and is_exponent(before, after)):
        return Piece("name", word, name_of(word, language))
    if word[0].isalpha() and word not in language.symbols:
        return Piece("words", word, word)
    if word in "()[]|":
        return Piece("sign", word, language.bracket(word))
    if word == "/":
        # Typst would make a fraction of what stands around it.
        return Piece("sign", word, language.bracket("/") if language.name == "typst" else "/")
    if word in language.symbols:
        kind = "name" if word.isalpha() else "sign"
        return Piece(kind, word, language.symbols[word])
    if word in "+=,^√":
        return Piece("sign", word, word)
    return Piece("words", word, word)


def is_name(token: str) -> bool:
    return token in TABLE or token in SIZES or token in LETTERS or is_gradient(token)


def is_exponent(before: str, after: str) -> bool:
    return before[-1:].isdigit() or before[-1:] == "/" or after[:1] == "/"


def join_words(pieces: list[Piece], language: Language) -> list[Piece]:
    """Words with the blanks and commas between them as one piece."""
    joined: list[Piece] = []
    run = ""

    def close() -> None:
        nonlocal run
        if run:
            joined.append(Piece("words", run, language.quoted(run)))
            run = ""

    for at, piece in enumerate(pieces):
        following = pieces[at + 1].kind if at + 1 < len(pieces) else ""
        goes_on = run and (piece.kind == "blank" or piece.text == ",")
        if piece.kind == "words" or goes_on:
            run += piece.text
        elif piece.kind == "blank" and following == "words":
            run = " "
        else:
            close()
            joined.append(piece)
    close()
    return joined


def write_pieces(pieces: Sequence[Piece], language: Language) -> str:
    """The pieces one behind the other: ᵀ and ² raised, a root over what follows, fractions as such."""
    atoms = list(read_atoms([piece for piece in pieces if piece.kind != "blank"], language))
    out: list[str] = []
    at = 0
    while at < len(atoms):
        atom = atoms[at]
        before = atoms[at - 1] if at else None

        # A fraction only where nothing stands before it: of a · b / c the first is not above the line.
        begins = before is None or before.text in {"(", "+", "−", "="}
        if begins and is_quotient(atoms[at : at + 3]):
            below = atoms[at + 2]
            out.append(language.fraction(atom.written, below.written))
            at += 3
            continue

        if before is not None and before.kind == atom.kind == "name":
            out.append(language.thin)
        out.append(atom.written)
        at += 1
    return " ".join(out)


def is_quotient(atoms: Sequence[Piece]) -> bool:
    """True of an operand, a slash and an operand."""
    if len(atoms) < 3:
        return False
    above, sign, below = atoms
    return sign.text == "/" and above.kind in OPERANDS and below.kind in OPERANDS


OPERANDS = {"name", "number"}


def read_atoms(pieces: Sequence[Piece], language: Language) -> Iterator[Piece]:
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        at += 1
        if piece.text == "√" and at < len(pieces):
            piece = Piece("name", f"√{pieces[at].text}", language.root(pieces[at].written))
            at += 1
        elif piece.text == "^" and at < len(pieces):
            inside, at = exponent_from(pieces, at, language)
            piece = Piece("sign", "^", language.power("", inside))
        while at < len(pieces) and pieces[at].text in {"ᵀ", "²"}:
            raised = language.power(piece.written, language.symbols[pieces[at].text])
            piece = Piece(piece.kind, piece.text, raised)
            at += 1
        yield piece


def exponent_from(pieces: Sequence[Piece], at: int, language: Language) -> tuple[str, int]:
    """What stands in the parentheses behind ^, and where these end."""
    if pieces[at].text != "(":
        return pieces[at].written, at + 1
    end = at + 1
    while end < len(pieces) and pieces[end].text != ")":
        end += 1
    return write_pieces(pieces[at + 1 : end], language), end + 1


# --- the arithmetic of a cell ---


def expression(  # noqa: C901  (a case for each kind)
    expr: Expr, language: Language, text_of: Callable[[Number], str], *, top: bool = True
) -> str:
    """An expression as mathematics; each number as `text_of` has it, BREAK where a line may end."""

    def inner(part: Expr) -> str:
        return expression(part, language, text_of, top=False)

    def first(part: Expr) -> str:
        return text_of(part) if isinstance(part, Number) else inner(part)

    def in_brackets(text: str) -> str:
        return f"{language.bracket('(')}{text}{language.bracket(')')}"

    match expr:
        case Number():
            text = text_of(expr)
            return text if top or not text.startswith("-") else in_brackets(text)
        case Operation("+", parts):
            text = f"{BREAK} + ".join([*map(first, parts[:1]), *map(inner, parts[1:])]) or "0"
            return text if top or len(parts) == 1 else in_brackets(text)
        case Operation("-", (left, right)):
            text = f"{first(left)} - {inner(right)}"
            return text if top else in_brackets(text)
        case Operation("*", parts):
            return f" {language.symbols['·']} ".join(map(inner, parts))
        case Operation("/", (above, below)):
            over = expression(above, language, text_of), expression(below, language, text_of)
            if max(map(set_width, over)) <= WIDEST_FRACTION:
                return language.fraction(*(part.replace(BREAK, "") for part in over))
            sign = language.bracket("/") if language.name == "typst" else "/"
            return f"{inner(above)}{BREAK} {sign} {inner(below)}"
        case Operation("sqrt", (inside,)):
            return language.root(expression(inside, language, text_of).replace(BREAK, ""))
        case Operation(name, parts):
            return f"{language.function(name)} {in_brackets(expression(parts[0], language, text_of))}"
