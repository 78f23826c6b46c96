"""The shell commands that give what is seen: the matrix as a table, and the arithmetic of the cell."""

from __future__ import annotations

import json

from attnctl.drawing.screen.text import shell_line
from attnctl.drawing.show.sheet import heads_of
from attnctl.inputs.config.settings import Settings
from attnctl.inputs.config.write import flags
from attnctl.sources.model import Layers
from attnctl.sources.sentence import Config
from attnctl.store.files import encode_json
from attnctl.verbs.explore.layer import Made
from attnctl.verbs.explore.remake import here
from attnctl.verbs.explore.walk import ExplorerState


def commands(walk: ExplorerState) -> list[str]:
    """The commands to type for the matrix that is shown, and for the arithmetic of the cell."""
    made = walk.layer.made
    if made is None:
        return of_file(walk)
    words, config = run_words(walk, made)
    again = [*words, "--step", walk.step, *head_words(walk)]
    out = [line(again, config=config)]
    if not walk.empty:
        second = made.settings.edits and walk.place.layer != made.edited_in
        explain = line(["attnctl", "explain", "-", here(walk), *["--trace", "1"] * bool(second)])
        out.append(line([*words, "--json"], f" | {explain}", config))
    return out


def of_file(walk: ExplorerState) -> list[str]:
    """The commands for a trace that was read and not changed."""
    path, *options = walk.layer.words
    meant = [] if walk.layer.meant is None else flags(walk.layer.meant, Settings()) or []
    explain = ["attnctl", "explain", path, here(walk), *options, *meant]
    out = [] if walk.empty else [line(explain)]
    if not options and not meant and walk.step in walk.layer.recorded:
        out.insert(0, line(["attnctl", "show", path, "--step", walk.step, *head_words(walk)]))
    return out


def head_words(walk: ExplorerState) -> list[str]:
    """The option that picks the matrix that is shown, where its head does."""
    if walk.axes[:-2] != ("head",) or len(walk.axes) < 3:
        return []
    total, size = heads_of(walk.trace), walk.array.shape[0]
    return ["--head", str(-(-walk.place.cell[0] * total // size))] if size > 1 else []


def run_words(walk: ExplorerState, made: Made) -> tuple[list[str], str]:
    """The command that carries out the run, and the config that it reads from standard input, if any."""
    source, settings = made.source, made.settings
    match source:
        case Layers():
            return model_words(walk, source, made), ""
        case Config():
            config, base = source.config, source.base
            (sentence,) = source.sentences or (None,)
            if sentence is not None and "\0" in sentence:  # no word of a shell can hold it
                return ["attnctl", "run", "-c", "-"], document(settings.with_(sentence=sentence))
            start = ["attnctl", "run", *([sentence] if sentence is not None else [])]
            options = ["-c", config] if config else []
        case _:
            start, options, base = ["attnctl", "attend", *source.words], [], Settings()
    given = flags(settings, base)
    if given is not None:
        return [*start, *options, *given], ""
    return [*start, "-c", "-"], document(settings)


def document(settings: Settings) -> str:
    """The settings as a config of one line."""
    return encode_json(json.dumps(settings.to_dict(), ensure_ascii=False)).decode()


def model_words(walk: ExplorerState, source: Layers, made: Made) -> list[str]:
    """The command that runs the layer that is shown, and the one that is edited before it."""
    at = walk.place.layer
    layers = sorted({made.edited_in, at}) if made.settings.edits else [at]
    words = ["attnctl", "run"]
    given = source.input
    words += [] if given.text is None else [given.text]
    words += ["--model", source.model, "--layer", ",".join(source.names[each] for each in layers)]
    for flag, value in (("--pair", given.pair), ("--context", given.context)):
        words += [] if value is None else [flag, value]
    for flag, ids in (("--ids", given.ids), ("--context-ids", given.context_ids)):
        words += [] if ids is None else [flag, ",".join(map(str, ids))]
    return words + (flags(made.settings, Settings(dtype="float32")) or [])


# --- words as a shell reads them ---


def line(words: list[str], pipe: str = "", config: str = "") -> str:
    """The words as a line of shell and what it is piped to; a config that it reads stands below."""
    start, below = (" <<'CONFIG'", f"\n{config}\nCONFIG") if config else ("", "")
    return shell_line(guard_dash(words)) + start + pipe + below


def guard_dash(words: list[str]) -> list[str]:
    sentence = words[2:3]
    if words[1:2] == ["run"] and sentence and sentence[0].startswith("-") and sentence[0] not in KNOWN:
        return [*words[:2], *words[3:], "--", *sentence]
    return words


KNOWN = {"-c", "--model"}
"""What may follow `run` where there is no sentence."""
