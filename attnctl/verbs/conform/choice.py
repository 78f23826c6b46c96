"""What a target is held to: its features with their cases, and those that are not tried, with why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from attnctl.base.dataclass import dataclass
from attnctl.inputs.config.settings import NONE
from attnctl.verbs.conform import features, uses
from attnctl.verbs.conform.blocks import BlockSize
from attnctl.verbs.conform.case import Case
from attnctl.verbs.conform.features import (
    BASE,
    REPEATABLE,
    REPEATABLE_GRADIENTS,
    fit_call,
)
from attnctl.verbs.conform.options import OPTIONS
from attnctl.verbs.conform.places import GO_BY_POSITIONS, goes_by_positions
from attnctl.verbs.conform.profile import (
    CORNER,
    FLOAT_MASK,
    LENGTHS,
    Request,
)
from attnctl.verbs.conform.relations import RELATIONS
from attnctl.verbs.conform.stored import INT8
from attnctl.verbs.conform.suite import Suite

NO_POSITIONS = "nothing of it is known to go by them; say --positions rope if it turns Q and K"

NO_DECODE = "it takes no cache, and causal does not end at the last key"

OF_OUTPUTS = "it gives gradients, and this is of outputs"

OF_WHOLE_NUMBERS = "what it stores is whole numbers, which another scale would round"


class Abilities(NamedTuple):
    """The sizes that a target takes beside those of plain attention."""

    lengths: bool
    """Other numbers of queries than of keys."""
    groups: bool
    """Fewer kv heads than heads."""
    widths: bool
    """Values of another width than keys."""


@dataclass
class FeatureChoice:
    """The features of a target that are tried, and what is found out of it for that."""

    suite: Suite
    skips: dict[str, str] = field(default_factory=dict)
    """The features that are not run, each with why."""
    unequal: dict[bool, str] = field(default_factory=dict)
    """More queries than keys (True) or fewer, where the target refuses that, with why."""
    not_taken: list[str] = field(default_factory=list)
    """Why captured calls are none of the target's."""

    @property
    def request(self) -> Request:
        return self.suite.request

    @property
    def block_sizes(self) -> Sequence[int]:
        """Those that are said, or else those that its source has, and the usual ones."""
        usual = uses.QUICK_BLOCKS if self.request.quick else uses.BLOCKS
        read = [block.size for block in self.read_blocks]
        return self.request.block_sizes or tuple(dict.fromkeys([*read, *usual]))

    @property
    def read_blocks(self) -> Sequence[BlockSize]:
        """The sizes of blocks that the target's source has, as far as cases end there."""
        if self.request.block_sizes:
            return ()
        most = uses.MOST_QUICK_BLOCKS if self.request.quick else uses.MOST_BLOCKS
        return self.suite.target.blocks[:most]

    def list_features(self, dtype: str, conventions: Mapping[str, str]) -> dict[str, tuple[Case, ...]]:
        """List the features to run, each with its cases; note which of them are skipped, and why."""
        abilities = self.find_abilities(dtype)
        claimed = self.list_claimed(conventions)
        to_run = self.make_cases(claimed, abilities)
        to_run[features.DECODE] = self.list_decode(claimed, dtype, abilities)
        if self.request.calls:
            to_run |= self.list_captured(claimed, dtype, groups=abilities.groups)
        self.skips = self.list_skipped(claimed, dtype, to_run)

        only = self.request.only
        return {name: cases for name, cases in to_run.items() if not only or name in only}

    def make_cases(self, claimed: Sequence[str], abilities: Abilities) -> dict[str, tuple[Case, ...]]:
        """Make the cases of each feature, in the order in which they are run and shown."""
        quick = self.request.quick
        lengths = abilities.lengths

        to_run = features.list_own_features(self.suite.profile.head_sizes, quick=quick)
        for name in OPTIONS:
            to_run[name] = features.option_cases(name, claimed, lengths=lengths, quick=quick)
        to_run[features.DECODE] = ()
        to_run[features.MANY_KEYS] = uses.many_keys_cases(claimed, lengths=lengths, quick=quick)
        to_run[features.BLOCK_BOUNDARIES] = uses.block_cases(claimed, self.block_sizes, lengths=lengths)
        to_run[features.PAIRS] = features.pairs_cases(claimed)
        to_run[features.RANDOM] = features.random_cases(
            claimed, lengths=lengths, groups=abilities.groups, widths=abilities.widths, quick=quick
        )

        repeated = (features.SMALL, replace(BASE, queries=33, keys=33, seed=1))
        to_run |= dict.fromkeys(repeated_features(self.suite), repeated)
        to_run |= features.relation_cases(claimed, self.request.shape)
        # Every call before it is held to keeping its inputs, too; see `Run.count_all_calls`.
        to_run[features.INPUTS_KEPT] = (BASE,)
        return to_run

    def list_skipped(
        self, claimed: Sequence[str], dtype: str, to_run: Mapping[str, Sequence[Case]]
    ) -> dict[str, str]:
        """List the features that are not run, each with why; of several reasons the last one is said."""
        skips: dict[str, str] = {}
        if not to_run[features.PAIRS]:
            skips[features.PAIRS] = "it has fewer than two options"
        skips |= self.list_unclaimed(claimed)
        if not to_run[features.DECODE]:
            skips[features.DECODE] = NO_DECODE

        skips |= self.suite.profile_in(dtype).lacking
        if INT8 in self.suite.declared.stored.values():
            skips |= dict.fromkeys(RELATIONS, OF_WHOLE_NUMBERS)
        if self.suite.signature.handed:
            skips |= dict.fromkeys(RELATIONS, OF_OUTPUTS)
        return skips | dict(self.suite.target.cannot)

    def find_abilities(self, dtype: str) -> Abilities:
        """Ask in a few calls which sizes the target takes beside the plainest."""
        base = replace(BASE, dtype=dtype)
        self.unequal = self.refuse_unequal(dtype)
        lacks_lengths = LENGTHS in {*self.suite.profile_in(dtype).lacking, *self.suite.declared.without}
        return Abilities(
            lengths=not lacks_lengths and not self.unequal,
            groups=self.suite.takes(replace(base, heads=4, kv_heads=2)),
            widths=self.suite.takes(replace(base, d_v=16)),
        )

    def refuse_unequal(self, dtype: str) -> dict[bool, str]:
        """Ask whether more queries than keys, or fewer, are refused, where its claims say neither."""
        if LENGTHS in {*self.suite.declared.features, *self.suite.declared.without}:
            return {}

        refused = {}
        for case in (replace(BASE, dtype=dtype, keys=5), replace(BASE, dtype=dtype, queries=5)):
            result = self.suite.run(case)
            if self.suite.is_refusal(result.answer):
                refused[case.queries > case.keys] = result.judgement.words
        return refused

    def list_claimed(self, conventions: Mapping[str, str]) -> list[str]:
        """List the options that are tried: those it takes, but a mask of numbers read as truth values."""
        suite = self.suite
        claimed = [name for name in suite.signature.claimed if name not in suite.declared.without]

        # Masks of numbers are added where its claims say so, or where they are called as in libraries.
        is_added = (
            "float_mask" in suite.declared.features
            or suite.signature.keywords.get("float_mask") == "attn_mask"
        )
        if conventions.get(FLOAT_MASK) == "read as truth values" and not is_added:
            claimed.remove("float_mask")
        return claimed

    def list_unclaimed(self, claimed: Sequence[str]) -> dict[str, str]:
        """List the options that are not tried, each with why."""
        suite = self.suite
        skips = {}
        for name in OPTIONS:
            if name in suite.declared.without or name in claimed:
                continue
            skips[name] = suite.target.unclaimed
            if name in suite.signature.claimed:
                skips[name] = "a mask of numbers is read as truth values: it takes boolean masks"
        if "positions" in claimed and not self.goes_by_positions(claimed):
            skips["positions"] = NO_POSITIONS
        return skips | dict.fromkeys(suite.declared.without, "its claims say that it does not have it")

    def goes_by_positions(self, claimed: Sequence[str]) -> bool:
        """Whether anything that is known of the target may go by positions."""
        always = self.suite.profile.always
        has_options = not {*GO_BY_POSITIONS}.isdisjoint(claimed)
        return has_options or always.positions != NONE or any(map(goes_by_positions, always.rules))

    def list_captured(
        self, claimed: Sequence[str], dtype: str, *, groups: bool
    ) -> dict[str, tuple[Case, ...]]:
        """List the cases of captured calls, as far as the target takes them, and of numbers drawn alike."""
        calls = self.request.calls
        profile = self.suite.profile_in(dtype)
        cases: list[Case] = []
        self.not_taken = []
        for call in calls:
            fitted = fit_call(call, claimed, profile)
            if isinstance(fitted, Case):
                cases.append(fitted)
            else:
                self.not_taken.append(fitted)

        alike = features.activation_cases(calls, causal="causal" in claimed, groups=groups)
        return {features.CAPTURED_CALLS: tuple(cases), features.DRAWN_ALIKE: alike}

    def list_decode(self, claimed: Sequence[str], dtype: str, abilities: Abilities) -> tuple[Case, ...]:
        """The cases of a few new queries, where there is a cache or the last query sees every key."""
        is_cached = "cache" in claimed
        ends_last = "causal" in claimed and self.suite.profile_in(dtype)[CORNER] == "bottom-right"
        sees_every_key = abilities.lengths and (ends_last or "pages" in claimed)
        if not is_cached and not sees_every_key:
            return ()

        quick = self.request.quick
        return uses.decode_cases(claimed, cached=is_cached, groups=abilities.groups, quick=quick)


def repeated_features(suite: Suite) -> tuple[str, ...]:
    """The features that make one call again and again."""
    repeated = []
    if not suite.signature.handed:
        repeated.append(REPEATABLE)
    if suite.request.backward:
        repeated.append(REPEATABLE_GRADIENTS)
    return tuple(repeated)
