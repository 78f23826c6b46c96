"""The sizes of a target's blocks, as far as its source says them: constants that are called so.

`BLOCK_M = 64`, `def attention(q, k, v, block=16)`, `kernel[grid](…, BLOCK_N=32)` or
`triton.Config({"BLOCK_M": 128})` in Python, `#define TILE 32` or `constexpr int kBlockN = 64;` elsewhere.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from attnctl.base.files import open_found
from attnctl.base.words import all_of

LEAST, LARGEST = 2, 2048
"""Sizes that blocks have."""

MOST_BYTES = 2**20
"""A file that is longer is no kernel."""

CALLED_SO = re.compile(r"block|tile|chunk|blk", re.IGNORECASE)
OTHERWISE = re.compile(
    r"^n_|num|count|max|index|idx|stride|start|first|last|thread|warp|stage", re.IGNORECASE
)
"""Names of a block's size have the first in them, and not the second."""

SHORT = {"Br", "Bc", "BM", "BN", "BQ", "BK", "BKV", "B_r", "B_c", "bq", "bkv"}
"""What papers and kernels call them in short."""

IN_TEXT = re.compile(r"\b(k?[A-Za-z_]\w*)\s*(?::\s*\w+\s*)?[=\s]\s*(\d{1,5})\b")
"""`#define TILE 32`, `constexpr int kBlockM = 64` or `const BLOCK: usize = 64`."""

OF_TEXT = {
    ".c",
    ".cc",
    ".cpp",
    ".cu",
    ".cuh",
    ".h",
    ".hpp",
    ".rs",
    ".jl",
    ".go",
    ".metal",
    ".wgsl",
    ".mojo",
}


class BlockSize(NamedTuple):
    size: int
    name: str
    """What the source calls it."""
    place: str
    """kernel.py:4"""


def is_size(name: str, value: Any) -> bool:
    if type(value) is not int or not LEAST <= value <= LARGEST:
        return False
    return name in SHORT or bool(CALLED_SO.search(name) and not OTHERWISE.search(name))


def find_in_files(paths: Iterable[str]) -> tuple[BlockSize, ...]:
    """The sizes that these files have; one that cannot be read has none."""
    found: list[BlockSize] = []
    for path in paths:
        suffix = Path(path).suffix
        if suffix != ".py" and suffix not in OF_TEXT:
            continue
        try:
            with open_found(path) as stream:
                text = stream.read(MOST_BYTES).decode("utf-8", errors="replace")
            if suffix == ".py":
                found += find_in_python(text, Path(path).name)
            else:
                found += find_in_text(text, Path(path).name)
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
    return one_of_each(found)


def find_in_function(function: Callable[..., Any]) -> tuple[BlockSize, ...]:
    """The sizes in a function, and those of its module that it reads."""
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = Path(inspect.getsourcefile(function) or "").name
        found = list(find_in_python(dedent("".join(lines)), file, first))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    own = getattr(function, "__globals__", {})
    read = getattr(getattr(function, "__code__", None), "co_names", ())
    found += [BlockSize(own[name], name, file) for name in read if is_size(name, own.get(name))]
    return one_of_each(found)


def one_of_each(found: Sequence[BlockSize]) -> tuple[BlockSize, ...]:
    """The first of each size."""
    return tuple({each.size: each for each in reversed(found)}[size] for size in sizes_of(found))


def sizes_of(found: Iterable[BlockSize]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(each.size for each in found))


def find_in_python(text: str, file: str, first: int = 1) -> Iterator[BlockSize]:
    for node in ast.walk(ast.parse(text)):
        for name, value in constants_of(node):
            if not isinstance(value, ast.Constant):
                continue
            size = value.value
            if isinstance(size, int) and is_size(name, size):
                yield BlockSize(size, name, f"{file}:{value.lineno + first - 1}")


Named = Iterator[tuple[str, ast.expr | None]]


def constants_of(node: ast.AST) -> Named:
    """The names that an expression or statement gives values, with these."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from assigned(target, value)
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.arguments():
            yield from defaults_of(node)
        case ast.Call(keywords=keywords):
            yield from ((keyword.arg, keyword.value) for keyword in keywords if keyword.arg)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def assigned(target: ast.expr, value: ast.expr) -> Named:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, own in zip(target.elts, value.elts, strict=False):
            yield from assigned(each, own)


def defaults_of(arguments: ast.arguments) -> Named:
    by_place = [*arguments.posonlyargs, *arguments.args]
    with_default = by_place[len(by_place) - len(arguments.defaults) :]
    for arg, default in zip(with_default, arguments.defaults, strict=True):
        yield arg.arg, default
    for arg, by_name in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield arg.arg, by_name


def find_in_text(text: str, file: str) -> Iterator[BlockSize]:
    for number, line in enumerate(text.splitlines(), 1):
        for name, digits in IN_TEXT.findall(line):
            if is_size(name, int(digits)):
                yield BlockSize(int(digits), name, f"{file}:{number}")


def say_sizes(found: Sequence[BlockSize]) -> str:
    each = all_of([f"{block.size} ({block.name}, {block.place})" for block in found])
    return f"Its source has blocks of {each}: cases end there, and beside; --block-sizes says others."
