"""Keys of a config.json: what they are called, what each may say, and what follows from several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.base.words import quote

Config = Mapping[str, Any]
"""A config.json, or the part of one that is about a stack of layers."""

LARGEST, LARGEST_NUMBER = 2**31, 1e30
MOST_TIMES = 10_000


class KeyKind(NamedTuple):
    expected: str
    fits: Callable[[Any], bool]


def is_count(value: Any, least: int = 1) -> bool:
    """True if it is a whole number from `least` on that a model can have of anything."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < LARGEST


def is_number(value: Any) -> bool:
    """True if it is a number that float32 holds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER


COUNT = KeyKind("a whole number from 1", is_count)
INDEX = KeyKind("a whole number from 0", lambda value: is_count(value, 0))
EVEN = KeyKind("an even number from 2", lambda value: is_count(value, 2) and value % 2 == 0)
NUMBER = KeyKind("a number above 0", lambda value: is_number(value) and value > 0)
AMOUNT = KeyKind("a number from 0", lambda value: is_number(value) and value >= 0)
EPSILON = KeyKind("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
FLAG = KeyKind("true or false", lambda value: isinstance(value, bool))
TEXT = KeyKind("a text", lambda value: isinstance(value, str))
TABLE = KeyKind("an object", lambda value: isinstance(value, Mapping))
UNTYPED = KeyKind(
    "an object with rope_type, not type", lambda value: TABLE.fits(value) and "type" not in value
)
BY_TYPE = KeyKind(
    "an object by type of layer",
    lambda value: (
        TABLE.fits(value)
        and all(name.endswith("_attention") for name in value)
        and all(part is None or TABLE.fits(part) for part in value.values())
    ),
)


def read_list(expected: str, kind: KeyKind) -> KeyKind:
    return KeyKind(expected, lambda value: isinstance(value, list) and all(map(kind.fits, value)))


TEXTS = read_list("a list of texts", TEXT)
INDICES = read_list("a list of whole numbers", INDEX)
NUMBERS = read_list("a list of numbers above 0", NUMBER)
COUNT_LIST = read_list("a list of whole numbers from 1", COUNT)
COUNTS = KeyKind(f"{COUNT.expected}, or a list", lambda value: COUNT.fits(value) or COUNT_LIST.fits(value))
SHARE = KeyKind("a number from 0 to below 1", lambda value: EPSILON.fits(value) and value < 1)
SHARES = read_list("a list of numbers from 0 to below 1", SHARE)

TYPES_TIMES = KeyKind(
    "a list of types of layers, and how many times",
    lambda value: (
        isinstance(value, list)
        and all(isinstance(part, list) and len(part) == 2 for part in value)
        and all(TEXTS.fits(names) and is_count(times) and times < MOST_TIMES for names, times in value)
    ),
)
PLAIN_ALIBI = KeyKind(
    "an object with softmax_scale, ALiBi as it is by default, and nothing else",
    lambda value: (
        TABLE.fits(value)
        and all(name in OF_MPT or name.startswith("_") for name in value)
        and all(value[name] in known for name, known in OF_MPT.items() if known and name in value)
        and (value.get("softmax_scale") is None or NUMBER.fits(value["softmax_scale"]))
    ),
)
OF_MPT: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("softmax_scale", "attn_pdrop", "attn_impl", "transformers_version", "model_type"), ()),
    **dict.fromkeys(("dtype", "return_dict", "architectures", "chunk_size_feed_forward", "id2label"), ()),
    **dict.fromkeys(("label2id", "is_encoder_decoder", "problem_type", "output_attentions"), ()),
    "output_hidden_states": (),
    "attn_type": ("multihead_attention",),
    **dict.fromkeys(("attn_uses_sequence_id", "prefix_lm", "qk_ln"), (False,)),
    "alibi": (True,),
    "alibi_bias_max": (8,),
    "clip_qkv": (None,),
}
"""What the object of MPT may say; () is anything."""


@dataclass(frozen=True)
class Key:
    """A setting that config.json gives under the first of these names that it has.

    null is as good as nothing where nothing stands for nothing; where it is `nullable`, null says
    that there is none, although nothing stands for something.
    """

    names: tuple[str, ...]
    kind: KeyKind
    default: Any = None
    nullable: bool = False

    def given(self, config: Config) -> dict[str, Any]:
        return {name: config[name] for name in self.names if config.get(name) is not None}

    def value(self, config: Config) -> Any:
        for found in self.given(config).values():
            return found
        return None if self.nullable and any(name in config for name in self.names) else self.default

    def problems(self, config: Config) -> Iterator[str]:
        """Values that it cannot have, and names that say different things."""
        given = self.given(config)
        for name in self.names if self.default and not self.nullable else ():
            if name in config and config[name] is None:
                yield f"{name}: null, expected {self.kind.expected}"
        for name, value in given.items():
            if not self.kind.fits(value):
                yield f"{name}: {quote(str(value))}, expected {self.kind.expected}"
            elif value != self.value(config):
                (first, other), *_ = given.items()
                yield f"{name}: {quote(str(value))}, but {first} is {quote(str(other))}; leave one out"


@dataclass(frozen=True)
class Derived:
    rule: Callable[..., Any]
    keys: tuple[Key, ...]

    def value(self, config: Config) -> Any:
        return self.rule(*(key.value(config) for key in self.keys))


Setting = Any
"""A `Key`, what is `Derived` from some, or a value."""


def setting_value(setting: Setting, config: Config) -> Any:
    return setting.value(config) if isinstance(setting, (Key, Derived)) else setting


def keys_of_setting(setting: Setting) -> tuple[Key, ...]:
    if isinstance(setting, Derived):
        return setting.keys
    return (setting,) if isinstance(setting, Key) else ()


def from_keys(rule: Callable[..., Any], *keys: Key) -> Derived:
    return Derived(rule, keys)


def by_layer(rule: Callable[..., bool], *keys: Key) -> Derived:
    """Apply a rule to the number of each layer and to these keys."""
    return Derived(lambda *said: lambda layer: rule(layer, *said), keys)


def count(*names: str, default: int | None = None, kind: KeyKind = COUNT, nullable: bool = False) -> Key:
    return Key(names, kind, default, nullable)


def real(*names: str, default: float | None = None, nullable: bool = False) -> Key:
    return Key(names, NUMBER, default, nullable)


def epsilon(name: str, default: float) -> Key:
    return Key((name,), EPSILON, default)


def flag(name: str, *, default: bool | None = False) -> Key:
    return Key((name,), FLAG, default)


def word(*names: str, default: str | None = None) -> Key:
    return Key(names, TEXT, default)
