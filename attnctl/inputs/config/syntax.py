"""What to say of a text that is not YAML: where, what is wrong, what to write instead."""

from __future__ import annotations

import yaml
from yaml.reader import Reader as YamlReader

NOT_ALLOWED = YamlReader.NON_PRINTABLE

TABS = "a tab where YAML wants spaces; indent with spaces"
INDENTED = "indented unlike the lines before it; begin lines that belong together in the same column"
BEHIND = "text behind a value that has ended; put the whole value in double quotes"

COLON = 'a colon where no key may stand; put text with ": " in quotes, and begin keys that belong'
DASH = "a list begins behind its key; write [1, 2], or each - on a line of its own below the key"

SAID = (
    ("mapping values are not allowed", f"{COLON} together in the same column"),
    ("',' or ']'", "a comma or ] is missing; write a list like [1, 2]"),
    ("',' or '}'", "a comma or } is missing; write a mapping like {a: 1, b: 2}"),
    ("unexpected end of stream", "a quote is not closed; end the text with the quote that it begins with"),
    ("unknown escape", "no escape of YAML; write \\\\ for a backslash, or use single quotes"),
    ("hex", "an escape is cut short; write \\u and four hexadecimal digits"),
    ("cannot start any token", "a text may not begin with this character; put it in quotes"),
    ("alphabetic or numeric", "a name is missing behind & or *; put a text that begins so in quotes"),
    ("sequence entries are not allowed", DASH),
    ("node content", "a value is missing before this; write one, or remove the comma or bracket"),
    ("could not find expected ':'", "a key without its colon; write it like key: value"),
    ("'-' indicator", "a line without - among those of a list; begin each item with -"),
    ("comment or line break", "text behind | or >; begin it on the next line"),
    ("chomping or indentation", "text behind | or >; begin it on the next line"),
    ("tag handle", "a text that begins with !; put it in quotes"),
    ("expected '>'", "a text that begins with !; put it in quotes"),
    ("document start", "text behind the end of the document (...); remove that line"),
    ("directive", "a line that begins with %; remove it"),
    ("incompatible YAML", "a %YAML line of another version; remove it"),
)
"""What libyaml or PyYAML says, in part, and what a person is told."""


def syntax_error(error: yaml.YAMLError, text: str, name: str) -> str:
    """``file:line: what; what to write instead`` for a text that is not YAML."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return control_character(text, name)
    mark, began = error.problem_mark, error.context_mark
    what = in_words(error, text)
    if error.context and began is not None and began.line != mark.line and what not in {TABS, BEHIND}:
        what += f" (in what begins on line {1 + began.line})"
    return f"{name}:{1 + mark.line}: {what}"


def in_words(error: yaml.MarkedYAMLError, text: str) -> str:
    """The problem, and what to write instead."""
    mark, problem = error.problem_mark, error.problem or ""
    assert mark is not None
    content = "".join(text.split("\n")[mark.line : mark.line + 1])
    if content[mark.column : mark.column + 1] == "\t":
        return TABS
    known = next((ours for theirs, ours in SAID if theirs in problem), None)
    if known is None and any(each in problem for each in ("expected key", "<block end>")):
        known = BEHIND if content[: mark.column].strip() else INDENTED
    return known or f"not YAML: {problem or error.context}"


def control_character(text: str, name: str) -> str:
    """``file:line: …`` for a character that may stand nowhere in YAML."""
    found = NOT_ALLOWED.search(text)
    at = found.start() if found else 0
    line, code = 1 + text.count("\n", 0, at), ord(text[at])
    return f'{name}:{line}: U+{code:04X} may not stand in YAML; remove it, or write "\\u{code:04x}"'
