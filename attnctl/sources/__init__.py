"""Where numbers come from, however a person names them: a line for each kind, and a class in its file.

Help, messages, completion and the tests iterate KINDS. A format of dumps is a reader and its line in
`attnctl.store.DUMPS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import STANDARD_INPUT
from attnctl.base.format import function
from attnctl.base.namedtuple import NamedTuple
from attnctl.base.plugins import added
from attnctl.base.words import one_of
from attnctl.inputs.config.settings import EXAMPLE
from attnctl.store import DUMPS

if TYPE_CHECKING:
    from attnctl.sources.sentence import Arguments, Source

DUMP, CONFIG, SENTENCE = "dump", "config", "sentence"


class SourceKind(NamedTuple):
    """A kind of source that one word of a command line names."""

    kind: str
    source: str
    """``module:name`` of a class or function, imported when one is opened."""
    signs: tuple[str, ...]
    """What tells it: the suffix of a file, a prefix with a colon at its end, or a sign of `sign_of`."""
    name: str = ""
    """As messages offer it; as `help` does where that says more."""
    help: str = ""
    trial: str = ""
    """A word of it for the tests, where the sign alone makes none: a prefix wants a name behind it."""


FILE = "/"
"""The sign of a file whose suffix says nothing, or of a word that nobody means as a sentence."""

FOLDER = "//"
"""The sign of a folder that is named as one: A/, ./A, /A."""

LAST = "last"
OF_CONFIG, OF_DUMP = "attnctl.sources.sentence:of_config", "attnctl.sources.dump:Dump"

OWN_KINDS = (
    SourceKind(DUMP, OF_DUMP, (FILE, *chain(*(reader.suffixes for reader in DUMPS))), "a dump"),
    SourceKind(DUMP, OF_DUMP, (FOLDER,), "a folder", "a folder/ of .npy or .pt"),
    SourceKind(
        DUMP, "attnctl.sources.program:Script", (".py", ".ipynb"), "a program", "a program (.py, .ipynb)"
    ),
    SourceKind(CONFIG, OF_CONFIG, (".yaml", ".yml"), "a config", "a config (.yaml)"),
    SourceKind(CONFIG, OF_CONFIG, (EXAMPLE,), f"{EXAMPLE}NAME", trial=f"{EXAMPLE}one-matrix"),
    SourceKind(DUMP, "attnctl.sources.dump:Last", (LAST,), LAST, "last (the run before)", trial=LAST),
    SourceKind(DUMP, OF_DUMP, (STANDARD_INPUT,), help="- for stdin", trial=STANDARD_INPUT),
    SourceKind(SENTENCE, "attnctl.sources.sentence:Sentence", ("",), "a sentence", trial="sun melts snow"),
)
*OF_FILES_AND_WORDS, OF_SENTENCES = OWN_KINDS
KINDS = (*OF_FILES_AND_WORDS, *added("sources", SourceKind, named=False).values(), OF_SENTENCES)
"""In the order in which help lists them."""

PREFIXED = tuple(sign for kind in KINDS for sign in kind.signs if sign.endswith(":"))
"""Signs that stand before a name: `example:NAME`."""

OF_SIGN = {sign: kind for kinds in (KINDS, OWN_KINDS) for kind in kinds for sign in kind.signs}
"""A plug-in takes no sign of ours away."""

NAMES = one_of([kind.name for kind in KINDS if kind.name])
*OTHERS, FINAL = (kind.help or kind.name for kind in KINDS)
LIST = f"{', '.join(OTHERS)}, or {FINAL}."
HELP = LIST[0].upper() + LIST[1:]
HELP_OF_SEVERAL = f"Each is {LIST}"


TEXT = ".txt"
NO_DUMPS = (TEXT, ".csv", ".md", ".svg", ".png")
"""Suffixes of files that hold no dump and no config: a word with one of them is no sentence."""

SELECTION = r"\[[^]]*\]$"
"""Which trace of a file is meant: s.jsonl[3]."""


def sign_of(text: str) -> str:
    """What tells the kind of a SOURCE: the word it is, its suffix, that it is a file's name, or nothing."""
    if text == STANDARD_INPUT:
        return STANDARD_INPUT
    if text == LAST or (text.startswith("last[") and re.sub(SELECTION, "", text) == LAST):
        return LAST
    path = text if is_file(text) or not text.endswith("]") else re.sub(SELECTION, "", text)
    suffix = os.path.splitext(path)[1].lower()  # noqa: PTH122  (a text, perhaps of any length)
    known = suffix if suffix in OF_SIGN else ""
    if is_file(path):
        return known or FILE
    begun = path in {".", ".."} or path.startswith(("/", "./", "../", "~/"))  # as nobody begins a sentence
    if (begun or path.endswith("/")) and os.path.isdir(path):  # noqa: PTH112  (never raise)
        return FOLDER
    if any(character.isspace() for character in path):
        return ""
    prefix = next((sign for sign in PREFIXED if text.startswith(sign)), None)
    if prefix is not None:
        return prefix
    return known or (FILE if begun or text.lower().endswith(NO_DUMPS) else "")


def is_file(path: str) -> bool:
    """True for anything that can be read: a file, a pipe, a device."""
    return os.path.exists(path) and not os.path.isdir(path)  # noqa: PTH110, PTH112  (never raise)


def open_source(text: str | None, beside: Arguments | None = None, *, lone_word: bool = True) -> Source:
    """The source that a word names; left out, it is the sentence of the config.

    Raises AttnError for a config beside another one, and, for a verb that is of files first, for a
    `lone_word` that may be a file's name.
    """
    kind = OF_SIGN[EXAMPLE if text is None else sign_of(text)]
    if text is not None and kind.kind == CONFIG and beside is not None and beside.config is not None:
        raise AttnError(f"{text}: a config beside -c {beside.config}; give one of them")
    if text is not None and kind.kind == SENTENCE and not lone_word and len(text.split()) == 1:
        if not os.path.isdir(re.sub(SELECTION, "", text)):  # noqa: PTH112  (never raise)
            raise AttnError(f"{text}: no such file; {NAMES}")
        kind = OF_SIGN[FOLDER]
    source: Source = function(kind.source)(text, beside)
    source.kind = kind.kind
    return source


def open_dump(text: str, beside: Arguments) -> Source:
    """The dump or the program that a word names, whatever its suffix."""
    kind = OF_SIGN[sign_of(text)]
    source: Source = function(kind.source if kind.kind == DUMP else OF_DUMP)(text, beside)
    return source


def open_run(words: Sequence[str], file: str | None, beside: Arguments, *, padded: bool = False) -> Source:
    """The run that these words ask for: a config or example before sentences, a dump alone, or sentences.

    Words without quotes are one sentence where none of them has a space. Raises AttnError for what does
    not go together.
    """
    from attnctl.sources.sentence import gather_sentences, join_words

    sign = sign_of(words[0]) if words and words[0] != STANDARD_INPUT else ""
    kind = OF_SIGN[sign].kind
    if kind == DUMP and words[0].lower().endswith(TEXT):
        raise AttnError(f"{words[0]}: text, no dump; --file {words[0]} reads sentences from it, one a line")
    named = kind == CONFIG or (kind == DUMP and len(words) == 1)
    source = open_source(words[0] if named else None, beside)
    if not source.is_run and (beside.config or file):
        raise AttnError(f"{source.text}: a dump says itself what was run; leave out -c and --file")
    given = words[1:] if named else words
    raise_all(
        f"{word}: a config after other words; give one config, before its sentences"
        for word in given
        if OF_SIGN[sign_of(word)].kind == CONFIG
    )
    source.joined = [] if file else join_words(given)
    source.sentences = gather_sentences([" ".join(source.joined)] if source.joined else given, file)
    source.padded = padded
    return source
