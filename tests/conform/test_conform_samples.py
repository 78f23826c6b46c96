"""The samples of conform: programs in other languages, and what is said of the attention of libraries."""

import shutil
import subprocess
from pathlib import Path

import pytest

import attnctl

SAMPLES = Path(__file__).parents[2] / "samples" / "conform"


def conform(workplace, *args):
    done = workplace.run("conform", "--quick", "--dtype", "float32", *args)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_a_program_in_c_conforms(workplace, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    program, source = tmp_path / "attention", SAMPLES / "attention.c"
    warnings = ["-Wall", "-Wextra", "-Werror", "-std=c99"]
    subprocess.run([compiler, "-O2", *warnings, "-o", program, source, "-lm"], check=True)
    features = [word for name in ("attention", "grouped heads", "causal") for word in ("--feature", name)]
    command = ["--", str(program), "{in.safetensors}", "{out.safetensors}"]
    claims = ["--claims", "samples/conform/causal.yaml"]
    code, said = conform(workplace, *features, *claims, *command)
    assert code == 0, said
    assert all(f"│ {name} " in said for name in ("attention", "grouped heads", "causal"))
    assert len(source.read_text().splitlines()) < 60


@pytest.mark.slow
def test_attnctl_itself_conforms_by_a_shell_script(workplace):
    claims = ["--claims", "samples/conform/attend.yaml", "--feature", "cache", "--feature", "key_lengths"]
    code, said = conform(workplace, *claims, "--", "samples/conform/attend.sh", "{in}", "{out}")
    assert code == 0, said
    assert "│ key_lengths " in said


LIBRARIES = {
    "onnx_attention": ("onnx", {"like": "onnx"}),
    "torch_sdpa": ("torch", {"like": "sdpa", "framework": "torch", "backward": True}),
    "torch_flex": ("torch", {"framework": "torch", "backward": True}),
    "torch_multi_head": ("torch", {"layout": "bnd", "framework": "torch", "backward": True}),
    "jax_attention": ("jax", {"like": "jax", "framework": "jax", "backward": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_what_is_said_of_a_library_is_what_was_recorded(name):
    package, options = LIBRARIES[name]
    pytest.importorskip(package)
    found = attnctl.conform(f"{SAMPLES / name}.py:attention", quick=True, dtypes=["float32"], **options)
    recorded = (SAMPLES / f"{name}.txt").read_text()
    assert found.agrees is ("\nIt conforms: " in recorded)
    for convention, kind in found.conventions.items():
        assert f"Convention: {convention}: {kind}." in recorded


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_library_has_its_record(name):
    recorded = (SAMPLES / f"{name}.txt").read_text()
    assert recorded.startswith(f"$ attnctl conform samples/conform/{name}.py:attention ")
    assert recorded.splitlines()[0].removeprefix("$ ") in (SAMPLES / f"{name}.py").read_text()
