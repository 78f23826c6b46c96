"""Wrong kernels of decode, caches and pages: each is wrong, and shows on inputs of its kind."""

from __future__ import annotations

import pytest

from attnctl.verbs.mutants.kernel import Kernel, make_mutants
from attnctl.verbs.mutants.serving import make_serving
from attnctl.verbs.mutants.survey import Criterion, Inputs, hold_kernel, tell
from attnctl.verbs.mutants.tested import OwnTest, mutants_for

SERVING = {kernel.name: kernel for kernel in make_serving()}


@pytest.mark.parametrize("name", SERVING)
def test_small_inputs_show_what_is_wrong(name):
    kernel = SERVING[name]
    compile(kernel.text(Kernel(kernel.options)), name, "exec")
    assert tell(kernel) is not None


@pytest.mark.parametrize("options", {kernel.options for kernel in SERVING.values()}, ids=sorted)
def test_the_right_one_of_each_kind_is_right(options):
    inputs = Inputs((2, 4, 37, 16))
    outcome = hold_kernel("right", Kernel(options, meant=options), inputs, Criterion(0.0, 1e-5))
    assert outcome.passes


def test_only_tests_of_serving_are_held_to_them():
    def names_with(*options):
        return {kernel.name for kernel in mutants_for(OwnTest(("true",), frozenset(options)))}

    assert not names_with("causal") & SERVING.keys()
    assert len(names_with("cached") & SERVING.keys()) >= 9
    assert names_with("cached", "paged", "padded") >= SERVING.keys()


def test_they_have_names_of_their_own():
    assert not SERVING.keys() & {kernel.name for kernel in make_mutants()[0]}
