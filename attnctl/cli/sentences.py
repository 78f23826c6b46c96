"""Sentences from wherever they were pointed to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.files import STANDARD_INPUT, open_input
from attnctl.base.words import quote
from attnctl.cli.source import CONFIG, DUMP, SENTENCE, NamedInput, kind_of, source_of


class RunRequest(NamedTuple):
    """A run as `run` is asked for it: the source of its settings, and the sentences beside it."""

    source: NamedInput
    sentences: list[str]
    joined: list[str]
    """The words that were taken as one sentence."""


def find_run(words: Sequence[str], file: str | None, config: str | None) -> RunRequest:
    """The run that these words ask for: a config or example before sentences, a dump alone, or sentences.

    Words without quotes are one sentence where none of them has a space.
    """
    kind = kind_of(words[0]) if words and words[0] != STANDARD_INPUT else SENTENCE
    named = kind == CONFIG or (kind == DUMP and len(words) == 1)
    source = source_of(words[0] if named else None, config)
    if source.kind == DUMP and (config or file):
        raise AttnError(f"{source.text}: a dump says itself what was run; leave out -c and --file")
    given = list(words[1:] if named else words)
    joined = [] if file else join_words(given)
    return RunRequest(source, gather_sentences([" ".join(joined)] if joined else given, file), joined)


def join_words(words: Sequence[str]) -> list[str]:
    """The words of a sentence that was given without quotes, or none."""
    several = len(words) > 1 and all(len(each.split()) == 1 and each != STANDARD_INPUT for each in words)
    return list(words) if several else []


def note_joined(asked: RunRequest) -> None:
    """Say on stderr that words were taken as one sentence, and how to ask for several."""
    if asked.joined:
        from attnctl.cli.program import complain
        from attnctl.drawing.screen.text import shell_line

        several = f"printf '%s\\n' {shell_line(asked.joined)} | attnctl run -"
        complain(
            f"note: read as one sentence, {quote(' '.join(asked.joined))}; for a sentence each: {several}"
        )


def gather_sentences(sentences: Sequence[str], file: str | None) -> list[str]:
    """Every sentence: the arguments (- is stdin, one a line), then those of a file."""
    out = [each for text in sentences for each in (lines(text) if text == STANDARD_INPUT else [text])]
    return out + (lines(file) if file is not None else [])


def lines(source: str) -> list[str]:
    """The lines of a file (- is stdin) that hold more than space. Raises AttnError for none."""
    try:
        with open_input(source) as stream:
            data = stream.read()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise AttnError(f"{source}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AttnError(f"{source}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    # A line ends at a newline (or \r\n) only: form feeds and U+2028 are part of a sentence.
    found = [line.removesuffix("\r") for line in text.split("\n") if line.strip()]
    if not found:
        raise AttnError(f"{source}: no sentence in it; write one a line")
    return found
