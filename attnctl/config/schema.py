"""From plain data to Settings, and the format of a config as a JSON Schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from attnctl.config.fields import FIELDS, laid
from attnctl.config.forms import Form
from attnctl.config.settings import FromFile, Settings
from attnctl.errors import AttnError
from attnctl.values import BadValueError, Json, Path, json_path

CONFIG = Form(
    "attnctl config",
    "A run of attnctl: what to attend to, with which weights. Every key may be left out.",
    FIELDS.values(),
    lambda given: laid(Settings(), given),
)


def validate(data: Any, where: Callable[[Path], str] = json_path) -> Settings:
    """The settings that plain data describe, such as `Settings.to_dict` makes.

    Raises AttnError with every problem, each at `where(path)`.
    """
    try:
        return replace(settings_of(data), where=where)
    except BadValueError as bad:
        raise AttnError(f"{where(path)}: {text}" for path, text in bad.problems) from None


def settings_of(data: Any, folder: str = "") -> Settings:
    """The settings that plain data describe; relative files are looked for in `folder`.

    Raises BadValueError with every problem and its path.
    """
    return beside(CONFIG(data), folder)


def beside(settings: Settings, folder: str) -> Settings:
    """The settings, their relative files looked for in this folder."""

    def join(file: str) -> str:
        return os.path.join(folder, file)  # noqa: PTH118  pathlib would rewrite ./x

    def placed(tensors: Mapping[str, Any]) -> Json:
        return {
            name: replace(each, path=join(each.path)) if isinstance(each, FromFile) else each
            for name, each in tensors.items()
        }

    weights = settings.weights
    return replace(
        settings,
        **placed({"embeddings": settings.embeddings}),
        weights=replace(
            weights,
            tensors=placed(weights.tensors),
            heads=tuple(map(placed, weights.heads)),
            file=join(weights.file) if weights.file else None,
        ),
    )


def json_schema() -> Json:
    """The format of a config as a JSON Schema, for an editor's completion and checks."""
    schema = CONFIG.definition
    for name, default in Settings().to_dict().items():
        schema["properties"][name]["default"] = default
    forms = dict(CONFIG.definitions())
    del forms[CONFIG.name]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": dict(sorted(forms.items())),
        **schema,
    }
