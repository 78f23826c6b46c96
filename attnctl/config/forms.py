"""How the models of the schema read values and speak of problems: the part that knows pydantic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from attnctl.config.scalars import MAX_PROBLEMS, BadValueError, Problem, listed, shown
from attnctl.config.settings import Path

Json = dict[str, Any]
Known = dict[int, tuple[str, ...]]
"""The keys that a mapping (or what stands where one should) may have, by its id."""

ENOUGH = 4 * MAX_PROBLEMS
"""How many problems are put in words: more than are listed, since the first lines come first."""

TAG = "\0"
"""Begins the name of a form within a union, to tell it from the keys of a path."""


def tag(name: str) -> Tag:
    """Marks one form of a union."""
    return Tag(TAG + name)


def choice(pick: Callable[[Any], str | None], expected: str) -> Discriminator:
    """Holds a value to the one form that `pick` names; `expected` is said where it names none.

    Only that form's problems are reported, not those of every form that was not meant.
    """

    def tagged(value: Any) -> str | None:
        name = pick(value)
        return None if name is None else TAG + name

    return Discriminator(
        tagged,
        custom_error_type="no_form",
        custom_error_message="{expected}",
        custom_error_context={"expected": expected},
    )


def source(*known: str, by_token: bool = False) -> Callable[[Any], str | None]:
    """Picks among the forms of a source of numbers; `known` are the words that may stand for one.

    With `by_token`, the name of a form is also the name of a token where a list stands behind it.
    """

    def pick(value: Any) -> str | None:
        match value:
            case list():
                return "rows"
            case str():
                return "word" if value in known else None
            case {"random": found} if not (by_token and isinstance(found, list)):
                return "random"
            case {"file": found} if not (by_token and isinstance(found, list)):
                return "file"
        return "by token" if by_token and isinstance(value, dict) else None

    return pick


def word_or_mapping(*known: str) -> Callable[[Any], str | None]:
    """Picks between one of the known words and a mapping."""

    def pick(value: Any) -> str | None:
        if isinstance(value, dict):
            return "mapping"
        return "word" if isinstance(value, str) and value in known else None

    return pick


def checked(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The reader as pydantic wants it: every problem of a BadValueError becomes an error of its own."""

    def validator(value: Any) -> Any:
        try:
            return read(value)
        except BadValueError as wrong:
            errors = [
                InitErrorDetails(
                    type=PydanticCustomError("problem", "{text}", {"text": text}), loc=path, input=None
                )
                for path, text in wrong.problems
            ]
            raise ValidationError.from_exception_data("config", errors) from None

    return validator


@dataclass(frozen=True, eq=False)
class Reads:
    """An annotation: this reader makes the value, and this is its JSON Schema."""

    read: Callable[[Any], Any]
    schema: Json

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(checked(self.read))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return dict(self.schema)


class Form(BaseModel):
    """A mapping of known keys."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def note_known_keys(cls, data: Any, info: ValidationInfo) -> Any:
        """Write down what keys this mapping may have, for whoever finds one that it may not."""
        known: Any = info.context
        known[id(data)] = tuple(cls.model_fields)
        return data

    def given(self) -> Json:
        """What the file says, and nothing that it leaves out."""
        return {
            name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set
        }


def validated(form: type[Form], data: Any) -> Any:
    """The data as this form. Raises BadValueError with every problem in it."""
    known: Known = {}
    try:
        return form.model_validate(data, context=known)
    except ValidationError as errors:
        first = errors.errors(include_url=False)[:ENOUGH]
        raise BadValueError(*(problem(error, data, known) for error in first)) from None


def problem(error: Any, data: Any, known: Known) -> Problem:
    """One of pydantic's errors as a path and a text in our words."""
    path, inside = place_of(error["loc"], data)
    found = shown(error["input"])
    match error["type"]:
        case "problem":
            what = error["ctx"]["text"]
        case "no_form":
            what = f"{found} is not {error['ctx']['expected']}"
        case "extra_forbidden":
            what = unknown_key(str(path[-1]), known.get(id(inside), ()))
        case "list_type":
            what = f"{found} is not a list; write one like [a, b], or a line that begins with - for each"
        case "model_type":
            what = (
                f"{found} is not a mapping; write keys and values, like {known[id(error['input'])][0]}: …"
            )
        case _:  # invalid_key or string_unicode
            what = "a key that is no text; write a word"
    return path, what


def place_of(loc: Path, data: Any) -> tuple[Path, Any]:
    """The path of an error (its `loc` without the names of forms), and what the end of it is in."""
    path: Path = ()
    inside = None
    for part in loc:
        is_key = isinstance(data, dict) and part in data
        if is_key or not str(part).startswith(TAG):
            path, inside = (*path, part), data
            data = data[part] if is_key or isinstance(data, list) else None
    return path, inside


def unknown_key(key: str, known: tuple[str, ...]) -> str:
    """What to say of a key that nobody reads."""
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(key.lower(), by_lower, n=1)
    if near:
        return f"unknown key; did you mean {by_lower[near[0]]}?"
    return f"unknown key; use {listed(known) if known else 'another'}"
