"""What LaTeX, Typst and Markdown write for the same mathematics: a class for each.

A language is handed words of anyone's, and says how they are written so that nothing in them is a command;
it is handed numbers, names and what is done to them, and says how these are set. What is written, and in
which order, the callers say: `formulas` and `document`.

In mathematics BREAK stands wherever a line may end; `lines_of` makes lines of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import ClassVar

from attnctl.base.namedtuple import NamedTuple
from attnctl.drawing.screen.text import cells, visible
from attnctl.drawing.show.markdown import inline, table_lines

BREAK = "\0"
"""Where a line of mathematics may end. No text has it: what is shown is made visible first."""

WIDEST = 62
"""Characters of a line of mathematics, about as many digits as stand on a line of a page."""

LONG_NAME = 12
"""Characters left of a sign of equality, at most, for what is right of it to stand beside it."""

MOST_ROWS = 36
"""Rows of a matrix that stand on one page."""


class Matrix(NamedTuple):
    """One matrix with what labels it; labels are plain words, and cells are mathematics."""

    caption: str
    rows: Sequence[str]
    columns: Sequence[str]
    cells: Sequence[Sequence[str]]

    def width(self, language: Language) -> int:
        """About how many characters wide it is set."""
        return self.label_width(language) + sum(self.column_widths(language))

    def label_width(self, language: Language) -> int:
        """That of the widest token beside it, and of its brackets."""
        return max((set_width(language.quoted(label)) for label in self.rows), default=0) + 3

    def column_widths(self, language: Language) -> list[int]:
        widths = [set_width(language.quoted(label)) for label in self.columns]
        for row in self.cells:
            widths = [max(width, set_width(cell)) for width, cell in zip(widths, row, strict=True)]
        return [width + 2 for width in widths]

    def parts(self, language: Language) -> Iterator[Matrix]:
        """The matrix in parts that fit on a page, the first columns first."""
        room = WIDEST - self.label_width(language)
        for columns in packed(self.column_widths(language), room):
            for start in range(0, max(len(self.rows), 1), MOST_ROWS):
                rows = slice(start, start + MOST_ROWS)
                yield Matrix(
                    caption=self.caption,
                    rows=self.rows[rows],
                    columns=self.columns[columns],
                    cells=[row[columns] for row in self.cells[rows]],
                )


def packed(widths: Sequence[int], room: int) -> Iterator[slice]:
    """Neighbours that have room beside each other, as slices; one that has none is alone."""
    start = used = 0
    for at, width in enumerate(widths):
        if at > start and used + width > room:
            yield slice(start, at)
            start = at
            used = 0
        used += width
    yield slice(start, len(widths))


def set_width(text: str) -> int:
    """About how many characters wide mathematics is: commands are one, braces and quotes none."""
    plain = re.sub(r"\\unicode{(\w+)}{.}", r"U+\1", text)
    plain = re.sub(r"\\(?:text|mathrm|operatorname|sqrt|phantom)\b", "", plain)
    plain = re.sub(r"\\[a-zA-Z]+ ?|\\.|\b(?:dot|quad|frac|sqrt|thin) ?", "x", plain)
    return cells(re.sub(r'[{}"\0]', "", plain))


class Language:
    """What all three have; the methods without a body are each one's own."""

    name: ClassVar[str]
    symbols: ClassVar[dict[str, str]]
    """Our characters in formulas, and what is written for them."""
    functions: ClassVar[dict[str, str]]
    """Functions that are set upright, where they are not written by their name."""
    indent: ClassVar[str]
    """What moves a line that goes on to the right."""
    thin: ClassVar[str]
    """What stands between two names that would run together."""

    # --- words ---

    def words(self, text: str) -> str:
        """Anyone's words in a paragraph."""
        raise NotImplementedError

    def quoted(self, text: str) -> str:
        """Anyone's words within mathematics."""
        raise NotImplementedError

    # --- mathematics ---

    def variable(self, letter: str, index: str = "") -> str:
        """A letter, with an index below if there is one (which is mathematics)."""
        raise NotImplementedError

    def below(self, base: str, index: str) -> str:
        raise NotImplementedError

    def below_again(self, base: str, index: str) -> str:
        """An index of what has one."""
        raise NotImplementedError

    def power(self, base: str, exponent: str) -> str:
        raise NotImplementedError

    def fraction(self, above: str, below: str) -> str:
        raise NotImplementedError

    def root(self, inside: str) -> str:
        raise NotImplementedError

    def function(self, name: str) -> str:
        raise NotImplementedError

    def bracket(self, sign: str) -> str:
        """One of ( ) [ ] | as it is, whether or not another belongs to it."""
        return sign

    def number(self, text: str) -> str:
        """A number as tables have it: −0.5, 1.25e-07, ∞."""
        mantissa, _, exponent = text.partition("e")
        mantissa = mantissa.replace("−", "-").replace("∞", self.symbols["∞"])
        if mantissa.endswith("inf"):
            mantissa = mantissa.replace("inf", self.symbols["∞"])
        if not exponent or not exponent.lstrip("+-").isdigit():
            return mantissa
        return f"{mantissa} {self.symbols['·']} {self.power('10', str(int(exponent)))}"

    # --- a document ---

    def begin(self, title: str) -> Iterator[str]:
        raise NotImplementedError

    def document(self, body: Sequence[str]) -> Iterator[str]:
        """The whole file, what it begins with and ends with around the lines of its body."""
        yield from body

    def heading(self, title: str) -> Iterator[str]:
        raise NotImplementedError

    def paragraph(self, text: str) -> Iterator[str]:
        yield self.words(text)
        yield ""

    def equation(self, lines: Sequence[str]) -> Iterator[str]:
        """Lines of mathematics; & stands where they are aligned."""
        raise NotImplementedError

    def matrices(self, matrices: Sequence[Matrix]) -> Iterator[str]:
        """Matrices, as many beside each other as there is room for."""
        parts = [part for matrix in matrices for part in matrix.parts(self)]
        for row in packed([part.width(self) + 3 for part in parts], WIDEST + 3):
            yield from self.row_of_matrices(parts[row])

    def row_of_matrices(self, matrices: Sequence[Matrix]) -> Iterator[str]:
        raise NotImplementedError


def lines_of(sides: Sequence[str], language: Language) -> list[str]:
    """`left = right = …` as lines, broken where they may be; what stands right of & is aligned."""
    left, *others = sides
    if not others:
        return [left]
    start = left
    sign = "&="
    lines: list[str] = []
    if set_width(left) > LONG_NAME:  # it would leave no room behind it
        lines.append(f"& {left}")
        start = ""
        sign = f"& {language.indent} ="

    for side in others:
        line = f"{start} {sign} ".lstrip()
        start = ""
        is_empty = True
        for piece in side.split(BREAK):
            if not is_empty and set_width(line + piece) > WIDEST:
                lines.append(line.rstrip())
                line = f"& {language.indent} {language.indent} "
            line += piece
            is_empty = False
        lines.append(line.rstrip())
    return lines


# --- LaTeX ---

LATEX_SIGNS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\`{}", "'": "'",
    "–": r"\textendash{}", "—": r"\textemdash{}", "‘": "`", "’": "'", "“": "``", "”": "''", "…": r"\dots{}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}",
    "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "¡": "!`", "¿": "?`", "£": r"\pounds{}",
    "§": r"\S{}", "¶": r"\P{}", "©": r"\copyright{}", "†": r"\dag{}", "•": r"\textbullet{}",
    "\N{NO-BREAK SPACE}": "~", "√": r"$\sqrt{}$", "∞": r"$\infty$", "·": r"$\cdot$", "−": "$-$",
    "×": r"$\times$", "Σ": r"$\Sigma$", "θ": r"$\theta$", "σ": r"$\sigma$", "δ": r"$\delta$",
    "→": r"$\to$", "␣": r"\textvisiblespace{}",
}  # fmt: skip
"""What a bare article takes for a character; any other of ASCII is itself."""

LATEX_SIGNS['"'] = "''"  # \textquotedbl is not in the fonts of a bare article

ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
    "\u0323": "d", "\u0331": "b",
}  # fmt: skip
"""Combining marks, and the command that sets one above or below a letter."""

OTHER = "\\unicode"
OF_OTHERS = (
    r"\newcommand{\unicode}[2]{\ifdefined\Umathchar #2\else"
    r"{\ttfamily\footnotesize U+#1}\fi} % pdfLaTeX has no fonts for these characters"
)


PLAIN_NAME = re.compile(r"\w+", re.ASCII)
"""A name that LaTeX takes as it is, but for its underscores."""


class Latex(Language):
    name = "latex"
    symbols: ClassVar[dict[str, str]] = {
        "−": "-", "·": r"\cdot", "∘": r"\circ", "×": r"\times", "∞": r"\infty", "Σ": r"\sum",
        "ᵀ": r"\top", "δ": r"\delta", "θ": r"\theta", "λ": r"\lambda", "γ": r"\gamma", "β": r"\beta",
        "ℓ": r"\ell", "⌊": r"\lfloor", "⌋": r"\rfloor", "²": "2", "…": r"\dots",
    }  # fmt: skip
    functions: ClassVar[dict[str, str]] = {
        "exp": r"\exp", "ln": r"\ln", "log": r"\ln", "tanh": r"\tanh", "max": r"\max", "sin": r"\sin",
        "cos": r"\cos", "σ": r"\sigma",
    }  # fmt: skip
    indent = r"\quad"
    thin = r"\,"

    def words(self, text: str) -> str:
        return "".join(map(self.character, visible(text))).replace("--", "-{}-")

    def character(self, char: str) -> str:
        if char in LATEX_SIGNS:
            return LATEX_SIGNS[char]
        if char.isascii():
            return char
        letter, *marks = list(unicodedata.normalize("NFD", char))
        if len(marks) == 1 and marks[0] in ACCENTS and letter.isascii():
            return f"\\{ACCENTS[marks[0]]}{{{letter}}}"
        return f"{OTHER}{{{ord(char):04X}}}{{{char}}}"

    def quoted(self, text: str) -> str:
        return f"\\text{{{self.words(text)}}}"

    def variable(self, letter: str, index: str = "") -> str:
        own = letter in self.symbols.values() or (len(letter) == 1 and letter.isalnum())
        base = letter if own else self.upright(letter)
        return self.below(base, index) if index else base

    def upright(self, name: str) -> str:
        if not PLAIN_NAME.fullmatch(name):
            return self.quoted(name)  # a file may call a step anything
        return f"\\mathrm{{{name.replace('_', chr(92) + '_')}}}"

    def below(self, base: str, index: str) -> str:
        return f"{base}_{{{index}}}"

    def below_again(self, base: str, index: str) -> str:
        return f"{{{base}}}_{{{index}}}"

    def power(self, base: str, exponent: str) -> str:
        return f"{base}^{{{exponent}}}"

    def fraction(self, above: str, below: str) -> str:
        return f"\\frac{{{above}}}{{{below}}}"

    def root(self, inside: str) -> str:
        return f"\\sqrt{{{inside}}}"

    def function(self, name: str) -> str:
        return self.functions.get(name) or f"\\operatorname{{{name}}}"

    def begin(self, title: str) -> Iterator[str]:
        yield f"\\section*{{{self.words(title)}}}"
        yield ""

    def document(self, body: Sequence[str]) -> Iterator[str]:
        """The whole file: an article, and amsmath."""
        yield from ("\\documentclass{article}", "\\usepackage{amsmath}", "\\allowdisplaybreaks")
        yield "\\setlength{\\parindent}{0pt}"
        if any(OTHER in line for line in body):
            yield OF_OTHERS
        yield from ("\\begin{document}", "", *body, "\\end{document}")

    def heading(self, title: str) -> Iterator[str]:
        yield f"\\subsection*{{{self.words(title)}}}"
        yield ""

    def equation(self, lines: Sequence[str]) -> Iterator[str]:
        if len(lines) == 1:
            yield f"\\[ {lines[0].replace('&', '')} \\]"
        else:
            yield "\\begin{align*}"
            yield " \\\\\n".join(lines)
            yield "\\end{align*}"
        yield ""

    def row_of_matrices(self, matrices: Sequence[Matrix]) -> Iterator[str]:
        yield "\\["
        yield "\n\\qquad\n".join(map(self.matrix, matrices))
        yield "\\]"
        yield ""

    def matrix(self, matrix: Matrix) -> str:
        """A matrix of TeX's own with a border: tokens stand outside of the brackets."""
        titles = "".join(f" & {self.quoted(label)}" for label in matrix.columns)
        lines = [f"{titles} \\cr"]
        for label, row in zip(matrix.rows, level_signs(matrix.cells), strict=True):
            lines.append(f"{self.quoted(label)}{''.join(f' & {cell}' for cell in row)} \\cr")
        body = "\n".join(lines)
        text = f"\\bordermatrix{{\n{body}\n}}"
        return f"\\underset{{{self.quoted(matrix.caption)}}}{{{text}}}" if matrix.caption else text


def level_signs(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Numbers that stand beneath each other: where one has a sign, the others have its room."""
    signed = [any(cell.startswith("-") for cell in column) for column in zip(*rows, strict=True)]
    return [
        [
            f"\\phantom{{-}}{cell}" if has_signs and not cell.startswith("-") else cell
            for cell, has_signs in zip(row, signed, strict=True)
        ]
        for row in rows
    ]


# --- Typst ---

TYPST_SIGNS = re.compile(r"[\\#$*_`<>@\[\]=+\-/~'\"(){}&:.]")
"""What may mean something in a paragraph of Typst; a backslash before it makes it itself."""


class Typst(Language):
    name = "typst"
    symbols: ClassVar[dict[str, str]] = {
        "−": "-", "·": "dot", "∘": "compose", "×": "times", "∞": "infinity", "Σ": "sum", "ᵀ": "top",
        "δ": "delta", "θ": "theta", "λ": "lambda", "γ": "gamma", "β": "beta", "ℓ": "ell",
        "⌊": "\\⌊", "⌋": "\\⌋", "²": "2", "…": "dots",
    }  # fmt: skip
    functions: ClassVar[dict[str, str]] = {
        "exp": "exp", "ln": "ln", "log": "ln", "tanh": "tanh", "max": "max", "sin": "sin", "cos": "cos",
        "σ": "sigma",
    }  # fmt: skip
    indent = "quad"
    thin = "thin"

    def words(self, text: str) -> str:
        return TYPST_SIGNS.sub(lambda found: f"\\{found[0]}", visible(text))

    def quoted(self, text: str) -> str:
        plain = visible(text).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{plain}"'

    def variable(self, letter: str, index: str = "") -> str:
        own = letter in self.symbols.values() or (len(letter) == 1 and letter.isalnum())
        base = letter if own else self.quoted(letter)
        return self.below(base, index) if index else base

    def below(self, base: str, index: str) -> str:
        return f"{base}_({index})"

    def below_again(self, base: str, index: str) -> str:
        return f"attach({base}, br: #$ {index} $)"

    def power(self, base: str, exponent: str) -> str:
        return f"{base}^({exponent})"

    def fraction(self, above: str, below: str) -> str:
        return f"frac({above}, {below})"

    def root(self, inside: str) -> str:
        return f"sqrt({inside})"

    def function(self, name: str) -> str:
        return self.functions.get(name) or f'op("{name}")'

    def bracket(self, sign: str) -> str:
        return f"\\{sign}"

    def begin(self, title: str) -> Iterator[str]:
        yield f"= {self.words(title)}"
        yield ""

    def heading(self, title: str) -> Iterator[str]:
        yield f"== {self.words(title)}"
        yield ""

    def equation(self, lines: Sequence[str]) -> Iterator[str]:
        yield f"$ {f' {chr(92)}{chr(10)}  '.join(lines)} $"
        yield ""

    def row_of_matrices(self, matrices: Sequence[Matrix]) -> Iterator[str]:
        yield "$"
        yield " quad\n".join(map(self.matrix, matrices))
        yield "$"
        yield ""

    def matrix(self, matrix: Matrix) -> str:
        """Tokens beside and above the numbers, a line between."""
        rows = [['""', *map(self.quoted, matrix.columns)]]
        rows += [[self.quoted(label), *row] for label, row in zip(matrix.rows, matrix.cells, strict=True)]
        body = ";\n".join("  " + ", ".join(row) for row in rows)
        sides = "hline: 1, vline: 1" if any(matrix.rows) else "hline: 1"
        if not any(matrix.rows):
            body = ";\n".join("  " + ", ".join(row[1:]) for row in rows)
        gaps = "row-gap: #0.4em, column-gap: #0.8em"
        text = f"mat(delim: #none, align: #right, {gaps}, augment: #({sides}),\n{body}\n)"
        return f"limits({text})_({self.quoted(matrix.caption)})" if matrix.caption else text


# --- Markdown, as GitHub and most notebooks read it: formulas in LaTeX, matrices as tables ---


class Markdown(Latex):
    name = "markdown"

    def words(self, text: str) -> str:
        return inline(visible(text))

    def quoted(self, text: str) -> str:
        return f"\\text{{{''.join(map(self.character, visible(text)))}}}"

    def character(self, char: str) -> str:
        """What reads the formula has the characters of the page, and few commands."""
        return MARKDOWN_SIGNS.get(char, char)

    def document(self, body: Sequence[str]) -> Iterator[str]:
        return iter(body)

    def begin(self, title: str) -> Iterator[str]:
        yield f"# {self.words(title)}"
        yield ""

    def heading(self, title: str) -> Iterator[str]:
        """The name of a step as it is; an address has tokens, which are anyone's."""
        yield f"## {title if title.isidentifier() else self.words(title)}"
        yield ""

    def equation(self, lines: Sequence[str]) -> Iterator[str]:
        yield "```math"
        if len(lines) == 1:
            yield lines[0].replace("&", "")
        else:
            yield from ("\\begin{aligned}", " \\\\\n".join(lines), "\\end{aligned}")
        yield "```"
        yield ""

    def matrices(self, matrices: Sequence[Matrix]) -> Iterator[str]:
        for matrix in matrices:
            if matrix.caption:
                yield f"### {self.words(matrix.caption)}"
                yield ""
            shown = [[self.in_cell(cell) for cell in row] for row in matrix.cells]
            yield from table_lines(matrix.columns, matrix.rows, shown)
            yield ""

    def in_cell(self, cell: str) -> str:
        """A number as a cell of a table has it, where no formula is needed."""
        return f"${cell}$" if "\\" in cell else cell


MARKDOWN_SIGNS = {
    **{sign: LATEX_SIGNS[sign] for sign in "{}$&#%_"},
    "\\": "\\backslash ", "^": "\\wedge ", "~": "\\sim ", "`": "'", "<": "\\lt ", ">": "\\gt ",
}  # fmt: skip

LANGUAGES: dict[str, Language] = {each.name: each for each in (Latex(), Typst(), Markdown())}
