"""Effects over many prompts: a file of them, the mean of each part's effect, and how it spreads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from attnctl.base.dataclass import dataclass
from attnctl.base.errors import AttnError, raise_all
from attnctl.base.files import open_found, refuse_os_errors
from attnctl.base.words import did_you_mean, quote
from attnctl.math import Array
from attnctl.verbs.effect import Effects, rows_without_nan
from attnctl.verbs.effect.parts import POSITION

KEYS = ("prompt", "other", "a", "b")
MOST_PROMPTS = 10_000
LONGEST_FILE = 2**26

EXAMPLE = '{"prompt": "Mary met John, and John thanked", "a": " Mary", "b": " John"}'


class AskedPrompt(NamedTuple):
    """A line of the file: texts, or ids of tokens."""

    prompt: str | tuple[int, ...]
    other: str | tuple[int, ...] | None
    a: str | int | None
    b: str | int | None

    @property
    def between(self) -> tuple[str | int, str | int] | None:
        return None if self.a is None or self.b is None else (self.a, self.b)


@dataclass(frozen=True)
class MeanEffects:
    """The effects of the same parts on several prompts."""

    each: tuple[Effects, ...]

    @property
    def first(self) -> Effects:
        return self.each[0]

    @property
    def by(self) -> str:
        return self.first.by

    @property
    def metric(self) -> str:
        return self.first.metric

    @property
    def how(self) -> str:
        return self.first.how

    @property
    def columns(self) -> list[str]:
        """What each column of the effects is of: of positions their numbers, as the words differ."""
        if self.by == POSITION:
            return list(map(str, range(self.effect.shape[1])))
        return self.first.columns

    @cached_property
    def effect(self) -> Array:
        """The mean over prompts."""
        return np.mean([effects.effect for effects in self.each], axis=0)

    @cached_property
    def spread(self) -> Array:
        """The standard deviation over prompts, of which there are two at least; else 0."""
        if len(self.each) < 2:
            return np.zeros_like(self.effect)
        return np.std([effects.effect for effects in self.each], axis=0, ddof=1)

    @property
    def before(self) -> float:
        return float(np.mean([effects.before for effects in self.each]))

    @property
    def strongest(self) -> tuple[int, int]:
        """The layer and the column with the largest mean effect."""
        largest = int(np.abs(self.effect).argmax())
        return divmod(largest, self.effect.shape[1])

    @property
    def direct(self) -> dict[str, Any]:
        """Shares are those of one prompt."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.first.prompt["model"],
            "by": self.by,
            "metric": self.metric,
            "how": self.how,
            "before": self.before,
            "effect": rows_without_nan(self.effect),
            "spread": rows_without_nan(self.spread),
            "prompts": [effects.to_dict() for effects in self.each],
        }


def mean_effects(each: Sequence[Effects]) -> MeanEffects:
    """Raises AttnError where positions are not the same in all prompts."""
    first = each[0]
    if first.by == POSITION:
        counts = sorted({effects.effect.shape[1] for effects in each})
        if len(counts) > 1:
            raise AttnError(
                f"--prompts: prompts of {counts[0]} to {counts[-1]} tokens; --by position lays them over "
                "each other: give prompts of one length, or --by layer"
            )
    return MeanEffects(tuple(each))


def read_prompts(path: str) -> list[AskedPrompt]:
    """The prompts of a file, a JSON object a line. Raises AttnError naming each line that is none."""
    with refuse_os_errors(f"{path}: cannot be read"), open_found(path) as stream:
        data = stream.read(LONGEST_FILE + 1)
    if len(data) > LONGEST_FILE:
        raise AttnError(f"{path}: longer than {LONGEST_FILE} bytes")

    found: list[AskedPrompt] = []
    problems: list[str] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found.append(read_prompt(line))
        except AttnError as error:
            problems += [f"{path}:{number}: {problem}" for problem in error.problems]
    raise_all(problems)
    if not found:
        raise AttnError(f"{path}: no prompt in it; write one a line, like {EXAMPLE}")
    return refuse_mixed(path, found)


def refuse_mixed(path: str, prompts: list[AskedPrompt]) -> list[AskedPrompt]:
    """The prompts, all with another to patch from or none. Raises AttnError for others, or too many."""
    with_other = sum(asked.other is not None for asked in prompts)
    if with_other not in {0, len(prompts)}:
        raise AttnError(f'{path}: {with_other} of {len(prompts)} have "other"; give it to all, or to none')
    if len(prompts) > MOST_PROMPTS:
        raise AttnError(f"{path}: {len(prompts)} prompts; {MOST_PROMPTS} are the most")
    return prompts


def read_prompt(line: bytes) -> AskedPrompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise AttnError(f"expected a JSON object, like {EXAMPLE}") from None
    if not isinstance(entry, Mapping):
        raise AttnError(f"expected a JSON object, like {EXAMPLE}")
    return prompt_of_entry(entry)


def prompt_of_entry(entry: Mapping[str, Any]) -> AskedPrompt:
    """What a line says. Raises AttnError with every key that is unknown, missing or of another kind."""
    raise_all(problems_of(entry))
    prompt = text_or_ids(entry["prompt"])
    other = None if entry.get("other") is None else text_or_ids(entry["other"])
    return AskedPrompt(prompt, other, entry.get("a"), entry.get("b"))


def problems_of(entry: Mapping[str, Any]) -> Iterator[str]:
    for key in entry:
        if key not in KEYS:
            hint = did_you_mean(str(key), KEYS, "there are prompt, other, a and b")
            yield f"unknown key {quote(str(key))}; {hint}"
    if "prompt" not in entry:
        yield f'no "prompt"; write a line like {EXAMPLE}'
    for key in ("prompt", "other"):
        value = entry.get(key)
        if value is not None and not is_text_or_ids(value):
            yield f'"{key}" is {quote(str(value))}, expected a text or a list of ids'
    for key in ("a", "b"):
        value = entry.get(key)
        if value is not None and not is_token(value):
            yield f'"{key}" is {quote(str(value))}, expected the text or the id of a token'
    if (entry.get("a") is None) != (entry.get("b") is None):
        yield '"a" and "b": give both tokens, or none'


def is_token(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def is_text_or_ids(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(is_token(each) and isinstance(each, int) for each in value)
    return isinstance(value, str) and bool(value)


def text_or_ids(value: str | list[int]) -> str | tuple[int, ...]:
    return value if isinstance(value, str) else tuple(value)
