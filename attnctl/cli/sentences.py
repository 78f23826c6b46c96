"""Sentences from wherever they were pointed to."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.base.errors import AttnError
from attnctl.base.files import open_input
from attnctl.base.words import quote


def gather_sentences(sentences: Sequence[str], file: str | None) -> list[str]:
    """Every sentence: the arguments (- is stdin, one a line), then those of a file."""
    out = [each for text in sentences for each in (lines(text) if text == "-" else [text])]
    return out + (lines(file) if file is not None else [])


def hint_at_quotes(sentences: Sequence[str]) -> None:
    """Say on stderr that words without quotes are sentences of their own."""
    if len(sentences) > 1 and all(len(each.split()) == 1 and each != "-" for each in sentences):
        from attnctl.cli.program import complain

        whole = quote(" ".join(sentences))
        complain(f"note: {len(sentences)} sentences of one word each; for one sentence write {whole}")


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
