"""The kernels that mutants are made of: right ones compute attention, wrong ones are other programs."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

import attnctl
from attnctl.mistakes import CATALOGUE
from attnctl.mistakes.examples import RIGHT
from attnctl.verbs.mutants.kernel import OPTIONS, Kernel, make_mutants
from attnctl.verbs.mutants.survey import Inputs

SMALL = (2, 4, 12, 6)

SETTINGS = {
    "causal": {"causal": True},
    "cached": {"causal": True, "causal_offset": 3},
    "window": {"window": (1, 1)},
    "documents": {"documents": [0, 3, 7]},
    "softcap": {"softcap": 3.0},
    "alibi": {"positions": "alibi"},
    "rope": {"positions": "rope"},
    "chunks": {"chunks": 2},
}
GIVEN = {
    "mask": "mask",
    "bias": "bias",
    "sinks": "sink",
    "key_lengths": "key_lengths",
    "page_table": "page_table",
}


def option_sets(*, backward):
    """The options of the kernels that there are, but for the rule that only the examples have."""
    made, _ = make_mutants(backward=backward)
    found = dict.fromkeys(mutant.options for mutant in made)
    return [options for options in found if "strided" not in options]


def attended(arguments, options, *, backward):
    """What attnctl itself makes of the arguments of a kernel."""
    settings = {"logsumexp": False}
    for name in options:
        settings |= SETTINGS.get(name, {})
    arrays = {name.upper(): arguments[name] for name in "qkv"}
    if "paged" in options:
        arrays = {"Q": arguments["q"], "key_pages": arguments["k"], "value_pages": arguments["v"]}
        settings |= {"layout": "bhnd"}
    arrays |= {ours: arguments[theirs] for theirs, ours in GIVEN.items() if theirs in arguments}
    if backward:
        arrays["d_head_outputs"] = arguments["d_output"]
    trace = attnctl.attend(arrays, backward=backward, **settings)
    return [trace[name] for name in (("d_Q", "d_K", "d_V") if backward else ("head_outputs",))]


@pytest.mark.parametrize("whole", [True, False], ids=["asked for", "may be asked for"])
@pytest.mark.parametrize(
    ("backward", "options"),
    [
        pytest.param(back, options, id=f"{'back ' * back}{'+'.join(sorted(options))}")
        for back in (False, True)
        for options in option_sets(backward=back)
    ],
)
def test_a_right_kernel_is_attention(backward, options, whole):
    """Of the options that are always asked for, and of those that it could be called without."""
    arguments = Inputs(SMALL, dtype="float64", backward=backward).arrays(options)
    kernel = Kernel(options, meant=options if whole else frozenset(), backward=backward)
    found = kernel.made()(**arguments)
    for array, expected in zip(
        found if backward else [found], attended(arguments, options, backward=backward), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", option_sets(backward=False), ids=lambda names: "+".join(sorted(names)))
def test_a_kernel_that_is_not_asked_is_plain_attention(options):
    asked = options - {"grouped", "rope", "chunks"}
    arguments = Inputs(SMALL, dtype="float64").arrays(frozenset())
    expected = attended(arguments, (), backward=False)[0]
    np.testing.assert_allclose(Kernel(asked).made()(**arguments), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("backward", [False, True])
def test_a_right_program_is_attention(name, backward):
    inputs = Inputs((2, 4, 200, 6), dtype="float64", backward=backward)
    arguments = inputs.arrays(frozenset())
    found = Kernel(lines=RIGHT[name], backward=backward).made(near=lambda x: x)(**arguments)
    for array, expected in zip(
        found if backward else [found], attended(arguments, (), backward=backward), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=1e-11, atol=1e-12)


def test_each_entry_of_the_catalogue_is_a_kernel_or_it_is_said_why_not():
    names = {mistake.name for mistake in CATALOGUE}
    for backward in (False, True):
        made, left_out = make_mutants(backward=backward)
        assert {mutant.mistake.name for mutant in made} | {*left_out} == names
        assert all(left_out.values())
        assert len(made) > 90
        assert not {"softmax-plus-one", "scale-by-d_k", "keys-dropped", "query-key-swapped"} & {*left_out}


def test_a_wrong_kernel_is_a_file_of_its_own(tmp_path):
    """Its text runs with NumPy alone, and says what it is."""
    (mutant,) = [each for each in make_mutants()[0] if each.name == "causal-strict"]
    path = tmp_path / "kernel.py"
    lines = [
        "import numpy as np",
        "q = k = v = np.eye(3)[None, None]",
        "print(np.isfinite(attention(q, k, v)).all(), attention(q, k, v, causal=True)[0, 0, 0].tolist())",
    ]
    right = Kernel(mutant.options)
    path.write_text("\n".join([mutant.text(right), *lines]))
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "True [0.0, 0.0, 0.0]\n"
    assert "causal-strict" in path.read_text().splitlines()[0]
    assert "attnctl" not in mutant.text(right)


@pytest.mark.parametrize("backward", [False, True])
def test_a_wrong_kernel_beside_more_options_is_as_wrong(backward):
    """A function that could be asked for a mask makes the same mistake where it is not."""
    for mutant, option in product(make_mutants(backward=backward)[0][::7], ("mask", "causal")):
        options = mutant.options
        if {option, "cached", "chunks"} & options or mutant.batched:
            continue
        more = Kernel(options | {option}, mutant.lines, options, backward=backward)
        arguments = Inputs(SMALL, backward=backward).arrays(options)
        found, expected = more.made()(**arguments), mutant.made()(**arguments)
        for array, alone in zip(found, expected, strict=True):
            np.testing.assert_array_equal(array, alone, err_msg=mutant.name)


def test_options_have_parameters_of_one_name():
    assert {*OPTIONS.values()} >= {"causal", "mask", "window", "sinks"}
