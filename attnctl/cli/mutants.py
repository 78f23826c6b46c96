"""attnctl mutants: the wrong kernels of the catalogue, held to a tolerance or to someone's own test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attnctl.base.errors import Exit
from attnctl.base.values import FOUR_SIZES, POSITIVE, SEED, TOLERANCE, whole_number, words
from attnctl.base.workers import ENGINE, Engine
from attnctl.cli.options import (
    BY_WORKERS,
    argument,
    command,
    excludes,
    findings_option,
    needs,
    option,
    renames,
)
from attnctl.verbs.mutants.survey import ASSERT_CLOSE, DRAWS, TYPES, Criterion, Inputs

if TYPE_CHECKING:
    from attnctl.verbs.mutants.tested import OwnTest

OF_TEST = needs("test", "it is of a test of your own; write -- and its command")
NOT_OF_TEST = excludes("test", "your own test says what passes, and on what; leave it out")

NOT_OF_WORKERS = excludes("test", "your own test runs here, -j of them at once; leave it out")

criterion_option = partial(option, section="When an output passes", terms=[NOT_OF_TEST])
test_option = partial(option, section="A test of your own", terms=[OF_TEST])
inputs_option = partial(option, section="What kernels are tried on", terms=[NOT_OF_TEST])


class CriterionOptions(NamedTuple):
    rtol: float | None = criterion_option(
        "Numbers may be off by atol + rtol·|right|. Default: as torch.testing.assert_close, by type.",
        TOLERANCE,
    )
    atol: float | None = criterion_option("Default: 0 beside --rtol.", TOLERANCE)
    ratio: float | None = criterion_option(
        "The share of numbers that has to be within; default: 1.", TOLERANCE
    )
    cosine: float | None = criterion_option("The least cosine of the output and the right one.", TOLERANCE)

    def criterion(self, dtype: str) -> Criterion:
        """What is asked for; without a number by which outputs may be off, that of torch's assert_close."""
        asked = Criterion(self.rtol, self.atol, self.ratio, self.cosine)
        if asked.by_number or (self.cosine is not None and self.ratio is None):
            return asked
        close = ASSERT_CLOSE[dtype]
        return Criterion(close.rtol, close.atol, self.ratio, self.cosine)


class InputOptions(NamedTuple):
    dtype: str | None = inputs_option(
        f"{', '.join(TYPES)}; default: float32.", words(*TYPES), metavar="TYPE"
    )
    shape: tuple[int, int, int, int] | None = inputs_option(
        "Batch, heads, tokens and columns; default: 2,4,128,64.", FOUR_SIZES
    )
    draw: str | None = inputs_option(
        "How Q, K and V are drawn: rand from [0, 1), randn (the default), or activations, as models "
        "have them: columns of other sizes, some scores far above 100.",
        words(*DRAWS),
    )
    backward: bool = inputs_option("Hold gradients by Q, K and V to it, rather than outputs.", terms=[])
    seed: int | None = inputs_option("The seed of what is drawn; default: 0.", SEED)

    def inputs(self) -> Inputs:
        return Inputs(
            self.shape or (2, 4, 128, 64),
            self.draw or "randn",
            self.dtype or "float32",
            self.seed or 0,
            self.backward,
        )


class OwnTestOptions(NamedTuple):
    beside: list[str] | None = test_option(
        "The function that is tested takes this, too: causal, cached (aligned at the bottom right), "
        "mask, padded, window, bias, alibi, softcap, sink, grouped, rope or chunks; may be repeated.",
        "--with",
        metavar="OPTION",
    )
    map: list[str] | None = test_option(
        "A parameter of it has another name than ours (causal, mask, key_lengths, …); may be repeated.",
        metavar="THEIRS=OURS",
    )
    library: str | None = test_option(
        "The arrays that kernels take and give: numpy (the default) or torch.",
        words("numpy", "torch"),
        "--as",
    )
    save: str | None = test_option(
        "The folder of kernels and inputs (attnctl-mutants); a run that was interrupted goes on there.",
        metavar="DIR",
        writes=True,
    )
    jobs: int | None = test_option(
        "How many kernels are tested in parallel; default: 1.", whole_number(1, 64), "--jobs", "-j"
    )
    timeout: float | None = test_option(
        "Seconds after which a test counts as failed; default: 300.", POSITIVE, terms=[OF_TEST]
    )

    def test(self, words: Sequence[str], *, backward: bool) -> OwnTest:
        from attnctl.verbs.mutants.tested import FOLDER, OwnTest

        return OwnTest(
            tuple(words),
            frozenset(self.beside or ()),
            {ours: theirs for theirs, ours in renames(self.map or [], "--map").items()},
            self.library or "numpy",
            backward,
            Path(self.save or FOLDER),
            self.jobs or 1,
            self.timeout or 300.0,
        )


@command(
    "attnctl mutants --rtol 1e-2 --atol 1e-2 --dtype bfloat16",
    "attnctl mutants --atol 1e-2 --draw rand --shape 1,8,64,64",
    "attnctl mutants --cosine 0.99 --backward",
    "attnctl mutants --with causal -j 4 -- ./my_test.sh {kernel}",
)
def mutants(
    *,
    test: list[str] | None = argument(
        "-- and the command of your own test, {kernel} where a file goes.", "CMD"
    ),
    passing: CriterionOptions,
    tried_on: InputOptions,
    own: OwnTestOptions,
    on: Engine | None = option(BY_WORKERS.format("Hold kernels to it"), ENGINE, terms=[NOT_OF_WORKERS]),
    json: bool = option("Print what was found as JSON."),
    output: list[str] | None = findings_option("mutants"),
) -> Exit:
    """Say which wrong kernels a tolerance, or your own test, would let pass, and what tells them apart.

    Every mistake of the catalogue (attnctl mistakes) that a function of Q, K and V can make is a kernel,
    with causal, a mask, a window or what else it takes. Each is held to the criterion on the inputs that
    are asked for: float32 within and rounded at the end, against the right output in float64. NAME-slight
    makes its mistake by little. Right programs that round in their own ways are held to it, too.

    After -- stands the command of a test of your own, which is run on each kernel: a file of NumPy (torch
    with --as torch) with attention(q, k, v), each (batch, head, n, d); with --backward a file with
    attention_backward(d_output, q, k, v). The right kernel has to pass first. Survivors are shown with
    inputs that tell them apart. A run that was interrupted goes on.

    Exit codes: 0 every wrong kernel fails; 1 some pass; 2 the right kernel fails your test.
    """
    from attnctl.cli.output import give, progress
    from attnctl.verbs.mutants.survey import survey
    from attnctl.verbs.mutants.tested import score_test
    from attnctl.verbs.mutants.view import score_lines, survey_lines

    if test:
        own_test = own.test(test, backward=tried_on.backward)
        with progress("kernels") as moved:
            score = score_test(own_test, moved)
        give("mutants", [score], output, partial(score_lines, score), json=json)
        return Exit.of(score.agrees)

    inputs = tried_on.inputs()
    criterion = passing.criterion(inputs.dtype)
    with progress("kernels") as moved:
        found = survey(inputs, criterion, moved, on)
    give("mutants", [found], output, partial(survey_lines, found), json=json)
    return Exit.of(found.agrees)
