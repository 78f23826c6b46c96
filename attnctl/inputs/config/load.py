"""A config file to Settings: every problem at once, each with its line; its JSON Schema; the examples."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any

from attnctl.base import files
from attnctl.base.errors import AttnError
from attnctl.base.setting import Form, definitions
from attnctl.base.values import MAX_PROBLEMS, BadValueError, Json, Path, Problem, flow, json_path
from attnctl.base.words import did_you_mean, dims, one_of, plural, quote
from attnctl.inputs.config import yaml
from attnctl.inputs.config.fields import FIELDS, ROPE_OPTIONS, RULE_SETTINGS, TOKENIZER, lay_over
from attnctl.inputs.config.settings import EXAMPLE, FromFile, Settings, Weights
from attnctl.inputs.config.tensors import WEIGHTS
from attnctl.math.kind import QK_NORM_OPTIONS
from attnctl.math.names import MEMORY, TABLE, X
from attnctl.math.rules import RULES
from attnctl.record import SCHEMA


def load(path: str | pathlib.Path) -> Settings:
    """The settings of a file, stdin (``-``) or ``example:NAME``. Raises AttnError with every problem."""
    if str(path).startswith(EXAMPLE):
        path = example_file(str(path).removeprefix(EXAMPLE))
    name = "<stdin>" if str(path) == files.STANDARD_INPUT else str(path)
    try:
        with files.open_input(str(path)) as file:
            raw = file.read(yaml.MAX_BYTES + 1)
    except FileNotFoundError:
        instead = f"did you mean {EXAMPLE}{path}?" if path in example_names() else ""
        init = f"`attnctl config init -o {path}` writes one"
        raise AttnError(f"{path}: no such file; {instead or init}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise AttnError(f"{name}: {reason}; give the path of a YAML file") from None
    return parse_config(raw, name, pathlib.Path(path).parent)


def parse_config(text: bytes, name: str, base: pathlib.Path) -> Settings:
    """The settings of a text called `name`, with files in `base`. Raises AttnError with every problem."""

    def read(data: Any) -> Settings:
        if isinstance(data, dict) and data.get("schema") == SCHEMA:
            raise AttnError(f"{name}: a dump, not a config; attnctl show, explain and check read it")
        return settings_of(data, "" if base == pathlib.Path() else str(base))

    try:
        decoded = yaml.decode(text, name)
        settings = read_as(decoded, name, read)
    except MemoryError:
        raise AttnError(f"{name}: more than fits into memory; keep matrices in a .npz file") from None
    return replace(settings, where=partial(place_in, decoded, name))


def read_as(text: str, name: str, form: Callable[[Any], Any]) -> Any:
    """What a form makes of a YAML text. Raises AttnError with every problem, in the order of the lines."""
    data, problems = yaml.read(text, name)
    try:
        made = form(data)
    except BadValueError as bad:
        lines = yaml.line_numbers(text, [path for path, _ in bad.problems])
        problems += (
            (lines[path], f"{name}:{lines[path]} {json_path(path)}: {what}") for path, what in bad.problems
        )
    if problems:
        raise AttnError(list_problems(problems))
    return made


def list_problems(problems: list[tuple[int, str]]) -> Iterable[str]:
    """The problems in the order of their lines; of very many the first ones."""
    shown = [text for _, text in sorted(problems, key=lambda problem: problem[0])]
    return shown if len(shown) <= MAX_PROBLEMS else [*shown[:MAX_PROBLEMS], "… and more like these"]


def place_in(text: str, name: str, path: Path) -> str:
    """The line of a path in the text of a file, and the path as it is written there."""
    written = as_written(text, path)
    return f"{name}:{yaml.line_numbers(text, [written])[written]} {json_path(written)}"


def as_written(text: str, path: Path) -> Path:
    """The path as the text has it: rules.mask -> rules[2].mask, weights.heads[1].W_Q -> weights.W_Q[1]."""
    match path:
        case ("rules", str(kind), *rest):
            rules = yaml.read(text, "")[0].get("rules", [])
            places = (i for i, rule in enumerate(rules) if isinstance(rule, dict) and kind in rule)
            return next((("rules", i, kind, *rest) for i in places), path)
        case ("weights", "heads", int(head), str(name)):
            return path if "heads" in yaml.read(text, "")[0]["weights"] else ("weights", name, head)
        case _:
            return path


# --- the configs that are installed with attnctl: the `configs/` of its repository ---


def examples_folder() -> pathlib.Path:
    """The folder of the examples: in the installed package, or beside it in a checkout."""
    package = pathlib.Path(__file__).parents[2]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "configs"


def example_names() -> list[str]:
    return sorted(path.stem for path in examples_folder().glob("*.yaml"))


def example_file(name: str) -> pathlib.Path:
    known = example_names()
    if name not in known:
        instead = did_you_mean(name, known, f"there are {one_of(known, 'and')}")
        raise AttnError(f"no example {quote(name)}; {instead}")
    return examples_folder() / f"{name}.yaml"


def example_summary(name: str) -> str:
    """The first sentence of an example's comment that is not for an editor: what it shows."""
    comments = takewhile(lambda line: line.startswith("#"), example_text(name).splitlines())
    ours = (line[1:].strip() for line in comments if "yaml-language-server" not in line)
    return re.split(r"(?<=\.) ", " ".join(ours), maxsplit=1)[0]


def example_text(name: str) -> str:
    with files.open_found(example_file(name)) as stream:
        return stream.read().decode("utf-8")


# --- from plain data to Settings, and the form of a config as a JSON Schema ---

ELSEWHERE = {
    **{setting.name: f"rules: [{flow(setting.in_config)}]" for setting in RULE_SETTINGS},
    **{name: f"weights: {{{name}: …}}" for name in WEIGHTS.keys if name not in FIELDS},
    **{name: f"positions: {{rope: {{{name}: …}}}}" for name in ROPE_OPTIONS.keys},
    **{name: f"tokenizer: {{{name}: …}}" for name in TOKENIZER.keys},
    **{name: f"qk_norm: {{{name}: …}}" for name in QK_NORM_OPTIONS.keys},
}
"""What to write for keys that stand at the top and belong below another one."""


def elsewhere(key: str, value: Any) -> str | None:
    rule = isinstance(value, str) and value in RULES  # mask: causal
    return f"rules: [{value}]" if rule and key in ELSEWHERE else ELSEWHERE.get(key)


def weight_misfits(given: Json) -> Iterator[Problem]:
    """Weights of X without a row for each dimension of the embeddings; a plan compares every shape."""
    embeddings = given.get("embeddings")
    first = list(embeddings.values()) if isinstance(embeddings, Mapping) else embeddings
    width = given.get("d_model") or (len(first[0]) if isinstance(first, list) and first else None)
    for path, rows in given.get("weights", Weights()).written():
        of_rows = path[-1] == "W" or TABLE[str(path[-1])].of in {X, MEMORY}
        if width and of_rows and isinstance(rows, list) and len(rows) != width:
            yield path, f"{dims((len(rows), len(rows[0])))}, expected {plural(width, 'row')} (d_model)"


CONFIG = Form(
    "attnctl config",
    "A run of attnctl: what to attend to, with which weights. Every key may be left out.",
    FIELDS.values(),
    lambda given: lay_over(Settings(), given),
    elsewhere=elsewhere,
    misfits=weight_misfits,
)


def validate(data: Any, where: Callable[[Path], str] = json_path) -> Settings:
    """The settings that plain data describe. Raises AttnError with every problem, each at `where(path)`."""
    try:
        return replace(settings_of(data), where=where)
    except BadValueError as bad:
        raise AttnError(f"{where(path)}: {text}" for path, text in bad.problems) from None


def settings_of(data: Any, folder: str = "") -> Settings:
    """The settings of plain data, with files in `folder`. Raises BadValueError with every problem."""
    # pathlib would rewrite ./x
    return with_files(CONFIG(data), lambda file: os.path.join(folder, file))  # noqa: PTH118


def with_files(settings: Settings, path_of: Callable[[str], str]) -> Settings:
    """The settings, `path_of(file)` in place of each file that they name."""

    def resolve_files(tensors: Mapping[str, Any]) -> Json:
        return {
            name: replace(tensor, path=path_of(tensor.path)) if isinstance(tensor, FromFile) else tensor
            for name, tensor in tensors.items()
        }

    weights = replace(
        settings.weights,
        tensors=resolve_files(settings.weights.tensors),
        heads=tuple(map(resolve_files, settings.weights.heads)),
        file=path_of(settings.weights.file) if settings.weights.file else None,
    )
    return replace(settings, **resolve_files({"embeddings": settings.embeddings}), weights=weights)


def json_schema() -> Json:
    schema = CONFIG.definition
    for name, default in Settings().to_dict().items():
        schema["properties"][name]["default"] = default
    forms = {name: form for name, form in sorted(dict(definitions(CONFIG)).items()) if name != CONFIG.name}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": forms, **schema}
