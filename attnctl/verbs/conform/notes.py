"""The sentences below the table of a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnctl.base.words import all_of, plural
from attnctl.drawing.show.headline import kind_words, positions
from attnctl.verbs.conform import features
from attnctl.verbs.conform.blocks import BlockSize, say_sizes
from attnctl.verbs.conform.call import CALLS, MISSED, RATE, chance_missed
from attnctl.verbs.conform.choice import repeated_features
from attnctl.verbs.conform.declared import list_unusual
from attnctl.verbs.conform.report import MOST_SAID, FeatureResult
from attnctl.verbs.conform.suite import Suite

SPREAD_NOTE = (
    "jax compiles for every size: of features with many sizes each type has its part of the cases, and "
    "the function is compiled whole (jax.jit); without --quick it has all, op by op."
)


def list_notes(suite: Suite, runs: Sequence[FeatureResult], blocks: Sequence[BlockSize]) -> tuple[str, ...]:
    """The sentences below the table."""
    notes = []
    config = list_unusual(suite.declared.always)
    always_on = [*positions(config.get("positions")), *kind_words(config)]
    if always_on:
        notes.append(f"Always on: {', '.join(always_on)}.")

    for own, stored in suite.declared.stored.items():
        notes.append(f"K, V and caches are stored in {stored}, beside Q in {own}.")
    if suite.request.quick and suite.request.framework == "jax" and len(suite.request.dtypes) > 1:
        notes.append(SPREAD_NOTE)
    notes += describe_calls(runs)
    ran = {run.feature for run in runs if run.cases}
    if blocks and features.BLOCK_BOUNDARIES in ran:
        notes.append(say_sizes(blocks))
    notes += describe_signature(suite)

    if suite.adds_truths:
        notes.append(
            "Its mask is numbers that are added: a boolean one would be added as 1 and 0, and hide "
            "nothing. To hold it to boolean masks, say conventions: {mask: boolean} in --claims."
        )
    lost = suite.target.lost
    if lost:
        made_again = f"{plural(lost, 'call')} {'was' if lost == 1 else 'were'} made again"
        notes.append(f"Its process was ended by something else (SIGKILL or the like): {made_again}.")

    notes += describe_repeats(suite, runs)
    notes += dict.fromkeys(run.differs for run in runs if run.differs)
    if suite.request.backward:
        notes += describe_gradients(runs, suite)
    return tuple(notes)


def describe_signature(suite: Suite) -> Iterator[str]:
    """Say which of its parameters are never passed, or always the same."""
    signature = suite.signature
    if signature.untried:
        named = f"--map {signature.untried[0]}=OURS says what it is"
        names = ", ".join(signature.untried)
        yield f"Not tried: {names}: left at the default in every call ({named})."
    if signature.random:
        yield f"Not tried: {', '.join(signature.random)}: what is left out at random is not known."

    off = [f"{name}={value}" for name, value in signature.off.items() if name not in signature.used]
    if off:
        yield f"In every call: {', '.join(off)}."


def describe_repeats(suite: Suite, runs: Sequence[FeatureResult]) -> Iterator[str]:
    """Say how many calls were made again, and what a rare fault had as a chance to be missed."""
    calls = [run.calls for run in runs if run.feature in repeated_features(suite) and run.calls]
    if not calls:
        return
    least = min(calls)
    too_few = ""
    if least < CALLS:
        too_few = f" ({CALLS} would make that {MISSED:g}, but take too long)"
    missed = f"would be missed with a chance of {chance_missed(least):.2g}"
    yield (
        f"Repeated: {least} calls with the same inputs in each type: "
        f"a fault in {RATE * 100:g} % of calls {missed}{too_few}."
    )


def describe_calls(runs: Sequence[FeatureResult]) -> Iterator[str]:
    """Name the captured calls that are answered wrongly."""
    names: dict[str, None] = {}
    for run in runs:
        if run.feature == features.CAPTURED_CALLS:
            names |= dict.fromkeys(result.case.call.name for result in run.wrong if result.case.call)
    if not names:
        return

    more = f"; and {len(names) - MOST_SAID} more" if len(names) > MOST_SAID else ""
    yield f"Wrong in captured {'; '.join(list(names)[:MOST_SAID])}{more}."


def describe_gradients(runs: Sequence[FeatureResult], suite: Suite) -> Iterator[str]:
    """Say how far off each output is, and which gradients and options nobody judged."""
    worst: dict[str, float] = {}
    for run in runs:
        for name, ratio in run.ratios.items():
            worst[name] = max(ratio, worst.get(name, 0.0))
    if worst:
        yield f"Largest by output: {', '.join(f'{name} {ratio:.3g}' for name, ratio in worst.items())}."

    # Numbers to learn, whose gradients no case asks for.
    others = [f"by {name}" for name in ("bias", "sinks") if name in suite.signature.claimed]
    if others:
        held = "attnctl check holds them in a dump that has d_output"
        yield f"Judged: gradients by Q, K and V. Not judged: {all_of(others)}; {held}."

    back = suite.signature.claimed if suite.apart is None else suite.apart[1].claimed
    forward_only = [name for name in suite.signature.claimed if name not in back or name == "out"]
    if forward_only:
        yield f"Of its output alone, as its backward pass does not take it: {', '.join(forward_only)}."
