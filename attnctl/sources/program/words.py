"""What the comments and the strings of a program say of its window."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from attnctl.sources.program.handed import defaults_of

COUNT = r"(?P<count>\(?`?[a-z_]\w*`?\s*-\s*1\)?|`?[a-z_]\w*`?|\d+)"
BETWEEN = r"\s+(?:[^\W\d]+\s+){0,2}?"
BEFORE = (
    "before|previous|preceding|prior|earlier|anteriores|previos|davor|vorher|précédente?s?|avant|"
    "prima|precedenti"
)
ITSELF = r"itself|its own|the own|el propio|la propia|sich selbst|lui-même|elle-même|se stesso"
COUNTED = "including|counting|contando|incluyendo|einschließlich|inklusive|y compris|incluso"
INCLUDED = "included|inclusive|incluido|incluida|eingeschlossen|compris|incluso"

SAYS_BEFORE = re.compile(rf"{COUNT}{BETWEEN}(?:{BEFORE})\b", re.IGNORECASE)
"""`itself and the W - 1 tokens before`."""

SAYS_IN_ALL = re.compile(
    rf"{COUNT}{BETWEEN}(?:\w+,?\s+)?(?:(?:{COUNTED})\s+(?:{ITSELF})|(?:{ITSELF})\s+(?:{INCLUDED}))\b",
    re.IGNORECASE,
)
"""`the last 4 tokens, itself included`."""

WINDOWS = ("window", "window_size", "sliding_window", "WINDOW", "W")
"""What the width of a window is called where its program sets it."""

SHORT = 2
"""Letters of a name that may stand for any of these."""

LESS_ONE = re.compile(r"-\s*1\b")
NAME = re.compile(r"[a-z_]\w*", re.IGNORECASE)


def keys_before_said(text: str, tree: ast.Module) -> set[int]:
    """How many keys before its own a query is said to see; empty where nothing is said."""
    said: set[int] = set()
    for words in spoken(text):
        for pattern, own in ((SAYS_BEFORE, 0), (SAYS_IN_ALL, 1)):
            for match in pattern.finditer(words):
                said |= {number - own for number in numbers_of(match["count"], tree)}
    return {count for count in said if count >= 0}


def spoken(text: str) -> Iterator[str]:
    """The comments and strings of a program."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                yield token.string.lstrip("#").replace("\n", " ")
    except (tokenize.TokenError, SyntaxError, ValueError):
        return


def numbers_of(count: str, tree: ast.Module) -> set[int]:
    """What a count may be: itself, or whatever the program sets the variable to that it names."""
    if count.isdigit():
        return {int(count)}
    name = NAME.search(count)
    if name is None:
        return set()
    less = 1 if LESS_ONE.search(count) else 0
    integers = integers_of(name[0], tree)
    if not integers and len(name[0]) <= SHORT:  # a parameter, perhaps, of what is called a window elsewhere
        integers = {number for window in WINDOWS for number in integers_of(window, tree)}
    return {number - less for number in integers}


def integers_of(name: str, tree: ast.Module) -> set[int]:
    """The integers that a program has for a variable, an argument, a default of a parameter."""
    return {
        value.value
        for node in ast.walk(tree)
        for named, value in bindings(node)
        if named == name and isinstance(value, ast.Constant) and isinstance(value.value, int)
    }


def bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a part of a program binds, with what they are bound to."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            pairs = list(zip(names, values, strict=False))
        case ast.Assign(targets=targets, value=value):
            pairs = [(target, value) for target in targets]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(target, value)]
        case ast.Call(func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=str(option)), *_]):
            values = [each.value for each in node.keywords if each.arg == "default"]
            yield from ((option.lstrip("-").replace("-", "_"), value) for value in values)
            return
        case ast.keyword(arg=str(argument), value=value):
            yield argument, value
            return
        case ast.arguments():
            yield from defaults_of(node)
            return
        case _:
            return
    for bound, value in pairs:
        if isinstance(bound, ast.Name):
            yield bound.id, value
        elif isinstance(bound, ast.Attribute):
            yield bound.attr, value
