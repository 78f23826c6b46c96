"""Ratios against anchors of the same run: python tests/benchmarks/bench.py [NAME …]

Everything is timed in turn with its anchor (A B A B …) and the median of the pairwise ratios is
printed, so that a machine that drifts or is shared still gives figures that can be compared;
with --processor-time it is processor time, of all threads, that is compared, where others keep it busy.
Whole processes are timed from outside; memory is the peak resident size of the process.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

ATTNCTL = str(Path(sysconfig.get_path("scripts")) / "attnctl")
# Installed packages come compiled; a checkout must be let to keep what Python compiles of it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
ONE_THREAD = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
IMPORT_NUMPY = [sys.executable, "-c", "import numpy"]


def processor():
    """The name that the processor gives itself, and what tells it from others of that name."""
    if not Path("/proc/cpuinfo").exists():
        return "a processor"

    said = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        said.setdefault(name.strip(), value.strip())
    name = said.get("model name", "a processor")
    widest = "AVX-512" if "avx512f" in said.get("flags", "") else "no AVX-512"
    return f"{name}, family {said.get('cpu family')}, model {said.get('model')}, {widest}"


def processor_time():
    """The seconds that every thread of this process, and the processes it waited for, have taken."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


CLOCK = processor_time if "--processor-time" in sys.argv else time.perf_counter


def seconds(work):
    start = CLOCK()
    work()
    return CLOCK() - start


def ratio(work, anchor, pairs=5):
    """The median of work / anchor over pairs taken in turn, after one of each."""
    work(), anchor()
    return statistics.median(seconds(work) / seconds(anchor) for _ in range(pairs))


def command(*args):
    """A whole process, its output thrown away."""
    return lambda: subprocess.run(
        args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ONE_THREAD, check=False
    )


def peak(*args):
    """The peak resident size of a process, in MiB."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, env=ONE_THREAD, check=True
    )
    return int(done.stdout) / 1024


def start_up():
    """Whole processes: what is imported, and little else."""
    with tempfile.TemporaryDirectory() as folder:
        dump, other, page = (str(Path(folder) / name) for name in ("a.json", "b.json", "c.html"))
        run = ["run", "I love AI", "--heads", "2"]
        for path, seed in ((dump, "0"), (other, "1")):
            command(ATTNCTL, *run, "--seed", seed, "-o", path)()
        commands = {
            "run": (run, 1.3),
            "check of a dump": (["check", dump], 1.65),
            "explain of a dump": (["explain", dump, "attention_weights[0,love,AI]"], 1.4),
            "diff of two dumps": (["diff", dump, other], 1.45),
            "learn": (["learn"], 1.6),
            "a page": ([*run, "-o", page], 1.9),
            "--help": (["--help"], 0.75),
            "--version": (["--version"], 0.75),
            "run --no-such-option": (["run", "--no-such-option"], 1.3),
        }
        for what, (args, most) in commands.items():
            found = ratio(command(ATTNCTL, *args), command(*IMPORT_NUMPY), 15)
            yield f"{what} / import numpy", found, most
        yield "run, memory / import numpy", peak(ATTNCTL, *run) / peak(*IMPORT_NUMPY), 1.25


def products(q, k, v):
    """Q Kᵀ and its product with V alone, in the tiles that attention has: nothing can be quicker."""
    import numpy as np

    from attnctl.math.engine.cost import TILE_QUERIES, TILE_SCORES
    from attnctl.math.engine.tiles import cores, results_in_order

    keys = TILE_SCORES // TILE_QUERIES

    def work(task):
        head, row = task
        rows = q[head, row : row + TILE_QUERIES]
        room = np.empty((len(rows), keys), q.dtype)
        for start in range(0, q.shape[1], keys):
            columns = k[head, start : start + keys]
            out = room[:, : len(columns)]
            np.matmul(np.matmul(rows, columns.T, out=out), v[head, start : start + keys])

    tasks = [(head, row) for head in range(len(q)) for row in range(0, q.shape[1], TILE_QUERIES)]
    list(results_in_order(work, tasks, cores()))


def attend():
    import numpy as np

    import attnctl

    try:
        import torch
    except ImportError:
        print("attend: torch is not installed, nothing to hold it against", file=sys.stderr)
        return
    torch.set_num_threads(2)
    for n in (4096, 16384):
        for dtype, most in (("float32", 1.15), ("float64", 0.9)):
            rng = np.random.RandomState(0)
            arrays = {name: rng.randn(8, n, 64).astype(dtype) for name in "QKV"}
            q, k, v = (torch.from_numpy(array)[None] for array in arrays.values())

            def ours(dtype=dtype, arrays=arrays, **options):
                return attnctl.attend(arrays, dtype=dtype, keep=["head_outputs"], **options)

            def theirs(q=q, k=k, v=v):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v)

            pairs = 9 if n == 4096 else 3
            yield f"attend {n} {dtype} / torch", ratio(ours, theirs, pairs), most
            floor = partial(products, *arrays.values())
            yield f"the two products, {n} {dtype} / torch", ratio(floor, theirs, pairs), ""
            yield (
                f"attend {n} {dtype} causal / full",
                ratio(lambda ours=ours: ours(causal=True), ours, pairs),
                0.6,
            )


@contextmanager
def one_core():
    """This process on a core of its own: one thread of ours, and of torch's."""
    import torch

    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def attend_alone():
    """Attention on one core, and what its two products alone would take there."""
    import numpy as np

    import attnctl

    try:
        import torch
    except ImportError:
        print("attend_alone: torch is not installed, nothing to hold it against", file=sys.stderr)
        return
    kinds = {
        "4096 float32": (4096, "float32", 8, {}, 1.25),
        "4096 float64": (4096, "float64", 8, {}, 1.3),
        "4096 float32 causal": (4096, "float32", 8, {"causal": True}, 1.4),
        "4096 float32, two kv heads": (4096, "float32", 2, {}, 1.3),
        "1024 float32": (1024, "float32", 8, {}, 1.4),
    }
    for what, (n, dtype, kv_heads, options, most) in kinds.items():
        rng = np.random.RandomState(0)
        heads = {"Q": 8, "K": kv_heads, "V": kv_heads}
        arrays = {name: rng.randn(count, n, 64).astype(dtype) for name, count in heads.items()}
        q, k, v = (torch.from_numpy(array)[None] for array in arrays.values())
        theirs = partial(
            torch.nn.functional.scaled_dot_product_attention,
            *(q, k, v),
            is_causal=bool(options),
            enable_gqa=kv_heads < 8,
        )
        ours = partial(attnctl.attend, arrays, dtype=dtype, keep=["head_outputs"], **options)
        with one_core():
            yield f"attend {what}, one core / torch", ratio(ours, theirs), most
            by_torch = partial(ours, engine="torch")
            yield f"attend {what}, one core, --engine torch / torch", ratio(by_torch, theirs), 1.2
            if kv_heads == 8 and not options:
                floor = partial(products, *arrays.values())
                yield f"the two products, {what} / torch", ratio(floor, theirs), ""


def backward():
    """Both ways: the output and the gradients of Q, K and V."""
    import numpy as np

    import attnctl

    try:
        import torch
    except ImportError:
        print("backward: torch is not installed, nothing to hold it against", file=sys.stderr)
        return
    torch.set_num_threads(2)
    names = ("Q", "K", "V", "d_head_outputs")
    for dtype in ("float32", "float64"):
        rng = np.random.RandomState(0)
        arrays = {name: rng.randn(8, 4096, 64).astype(dtype) for name in names}
        *leaves, d = (torch.from_numpy(array)[None] for array in arrays.values())
        leaves = [each.requires_grad_() for each in leaves]

        def ours(dtype=dtype, arrays=arrays):
            keep = ["head_outputs", "d_Q", "d_K", "d_V"]
            return attnctl.attend(arrays, dtype=dtype, backward=True, keep=keep)

        def theirs(leaves=leaves, d=d):
            return torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(*leaves), leaves, d)

        yield f"attend --backward 4096 {dtype} / torch", ratio(ours, theirs, 3), 1.5
    code = (
        "import numpy as np, attnctl.api\n"
        "from pathlib import Path\n"
        "def high(): return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
        "a = {n: np.ones((8, 4096, 64), 'float32') for n in ('Q', 'K', 'V', 'd_head_outputs')}\n"
        "before = high()\n"
        "attnctl.api.attend(a, dtype='float32', backward=True, keep=['d_Q', 'd_K', 'd_V'])\n"
        "print(high() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    yield "attend --backward 4096 float32, extra MiB", int(done.stdout) / 1024, 100


def memory():
    code = (
        "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n"
        "from pathlib import Path; import numpy as np, attnctl.api\n"
        "a = {n: np.ones((8, 16384, 64), 'float32') for n in 'QKV'}\n"
        "def high(): return int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
        "before = high(); attnctl.api.attend(a, dtype='float32', keep=['head_outputs'])\n"
        "print(high() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    yield "attend 16384 float32, extra MiB", int(done.stdout) / 1024, 100


def weights():
    import numpy as np

    import attnctl

    rng = np.random.RandomState(0)
    q, k, v = (rng.randn(1, 4096, 64) for _ in range(3))

    def textbook():
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(64)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        a = e / e.sum(-1, keepdims=True)
        return a, a @ v

    keep = ["attention_weights", "head_outputs"]
    ours = lambda: attnctl.attend({"Q": q, "K": k, "V": v}, keep=keep)  # noqa: E731
    yield "all weights kept, 4096 / textbook NumPy", ratio(ours, textbook), 0.6


@contextmanager
def without_orjson():
    """The dumps of somebody who has not installed it."""
    from attnctl.store import json_file

    theirs, json_file.find_orjson = json_file.find_orjson, lambda: None
    try:
        yield
    finally:
        json_file.find_orjson = theirs


def dumps():
    import numpy as np

    from attnctl.formats import write
    from attnctl.math.derivation import Step
    from attnctl.math.ops import Unstated
    from attnctl.record import Trace
    from attnctl.store.json_file import write_json

    array = np.random.RandomState(0).randn(8, 1024, 1024)
    step = Step("scores", Unstated(), (), ("head", "query", "key"), "", "S")
    trace = Trace({"scores": step}, {"scores": array}, {})
    folder = Path(tempfile.mkdtemp())
    try:
        savez = lambda: np.savez(folder / "a.npz", scores=array)  # noqa: E731
        yield "NPZ / np.savez", ratio(lambda: write([trace], folder / "b.npz"), savez), 1.1

        def to_json():
            with (folder / "b.json").open("w") as stream:
                write_json([trace], stream)

        yield "JSON, 64 MiB / np.savez", ratio(to_json, savez, 3), 7
        standard = lambda: (folder / "a.json").write_text(json.dumps(array.tolist()))  # noqa: E731
        with without_orjson():
            yield "JSON without orjson / json.dumps", ratio(to_json, standard, 3), 0.95
        script = (
            "import numpy as np, sys; a, b = (np.load(p) for p in sys.argv[1:])\n"
            "d = abs(a['scores'] - b['scores']); print(d.max(), np.unravel_index(d.argmax(), d.shape))"
        )
        paths = [str(folder / "b.npz"), str(folder / "c.npz")]
        shutil.copy(*paths)
        theirs = command(sys.executable, "-c", script, *paths)
        yield "diff of two NPZ / np.load script", ratio(command(ATTNCTL, "diff", *paths), theirs), 1.2
    finally:
        shutil.rmtree(folder)


def yaml():
    import numpy as np
    import yaml as pyyaml

    from attnctl.inputs.config.load import parse_config

    rows = np.random.RandomState(0).randn(1000, 64).tolist()
    text = "embeddings:\n" + "".join(f"  - {row}\n" for row in rows)
    reader = getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader)
    anchor = lambda: pyyaml.load(text, Loader=reader)  # noqa: E731  (a safe loader)
    yield "YAML 1000×64 / CSafeLoader", ratio(lambda: parse_config(text.encode(), "x", Path()), anchor), 0.5


def tables():
    import io

    import numpy as np
    from rich.console import Console
    from rich.table import Table

    import attnctl
    from attnctl.drawing.screen.output import PlainOutput, print_view
    from attnctl.drawing.show.tables import View, lines_of_all

    arrays = {name: np.random.RandomState(0).randn(512, 8) for name in "QKV"}
    trace = attnctl.attend(arrays, keep=["scores"])

    def full_table():
        table = Table(*map(str, range(512)))
        for row in trace["scores"][0]:
            table.add_row(*(f"{value:.4f}" for value in row))
        Console(file=io.StringIO(), width=6000).print(table)

    def show(output, shown):
        print_view(lambda screen: lines_of_all([trace], screen, shown), output)

    def view():
        show(Console(file=io.StringIO(), force_terminal=True, width=120), View())

    yield "default view of 512×512 / a full rich.Table", ratio(view, full_table, 1), 0.02
    savetxt = lambda: np.savetxt(io.StringIO(), trace["scores"][0], fmt="%.4f")  # noqa: E731
    whole = lambda: show(PlainOutput(io.StringIO()), View(full=True))  # noqa: E731
    yield "full print of 512×512 / np.savetxt", ratio(whole, savetxt), 2


def check():
    import numpy as np

    folder = Path(tempfile.mkdtemp())
    try:
        right, wrong = str(folder / "right.npz"), str(folder / "wrong.npz")
        words = folder / "words.txt"
        words.write_text(" ".join(f"w{i}" for i in range(2048)) + "\n")
        options = ["--d-model", "512", "--heads", "8", "--causal", "--dtype", "float32"]
        run = [ATTNCTL, "run", "--file", str(words), *options, "--output", right]
        command(*run)()
        with np.load(right) as arrays:
            steps = {name: arrays[name] for name in arrays}
        s = steps["scores"]  # not scaled
        steps["scaled_scores"] = s
        steps["masked_scores"] = s = np.where(np.tri(2048, dtype=bool), s, np.float32("-inf"))
        weights = np.exp(s - s.max(-1, keepdims=True))
        steps["attention_weights"] = weights = weights / weights.sum(-1, keepdims=True)
        steps["head_outputs"] = z = weights @ steps["V"]
        steps["concat"] = z = z.transpose(1, 0, 2).reshape(2048, -1)
        steps["output"] = z @ steps["W_O"]
        np.savez(wrong, **steps)
        del steps, s, weights
        for what, path, slower, larger in (("agreement", right, 3, 1.3), ("wrong", wrong, 10, 2)):
            found = ratio(command(ATTNCTL, "check", path), command(*run), 3)
            yield f"check, {what} 2048 / run", found, slower
            found = peak(ATTNCTL, "check", path) / peak(*run)
            yield f"check, {what} 2048 / run, memory", found, larger
    finally:
        shutil.rmtree(folder)


WRONG = ("softmax-over-queries", "window-off-by-one", "causal-strict", "no-scale", "dropout-left-on")
SIZES = (512, 1024, 2048)


def wrong_dumps():
    """`check` of wrong dumps beside two checks of the right one and 0.8 s, and beside the run's memory.

    1 is what was aimed at in time, 2 in memory. The growth is the exponent from the least n to the largest.
    """
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parents[1] / "check"))
    import planted

    plain = planted.Kind(heads=4, d_model=256, d=64, dtype="float32", causal=True)
    kept = {"everything": (), "ends": (*planted.INPUTS, "output")}
    with tempfile.TemporaryDirectory() as folder:
        right, wrong, made = (str(Path(folder) / name) for name in ("right.npz", "wrong.npz", "made.npz"))
        for what, names in kept.items():
            for mistake in WRONG:
                window = 128 if mistake.startswith("window") else None
                options = ["--heads", "4", "--causal", *(["--window", "128"] if window else [])]
                took = []
                for n in SIZES:
                    kind = plain.but(n=n, window=window)
                    for path, planted_one in ((right, None), (wrong, mistake)):
                        arrays = planted.attend(kind, planted_one)
                        np.savez(path, **{k: x for k, x in arrays.items() if not names or k in names})
                    right_one, slower = (
                        command(ATTNCTL, "check", path, *options) for path in (right, wrong)
                    )
                    walks = 2 * seconds(right_one) + 0.8
                    took.append(seconds(slower))
                    yield f"check, {mistake}, {what}, {n} / aimed at", took[-1] / walks, 1
                    step = ["--step", "output"] if names else []
                    run = [ATTNCTL, "attend", right, *options, "--dtype", "float32", *step, "-o", made]
                    more = peak(ATTNCTL, "check", wrong, *options) / peak(*run)
                    yield f"check, {mistake}, {what}, {n} / run, memory", more, 2
                growth = np.log(took[-1] / took[0]) / np.log(SIZES[-1] / SIZES[0])
                yield f"check, {mistake}, {what}: grows with n to the power", growth, 2


def lines():
    """A corpus by its lines, and by workers."""
    import random

    drawn = random.Random(0)
    words = [f"w{i}" for i in range(400)]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for count in (500, 2000):
            path = Path(folder) / f"{count}.txt"
            path.write_text("".join(" ".join(drawn.choices(words, k=16)) + "\n" for _ in range(count)))
            paths.append(str(path))
        few, many = (command(ATTNCTL, "corpus", "run", path, "--json") for path in paths)
        yield "stats, 2,000 lines / 500", ratio(many, few, 3), 4
        by_two = command(ATTNCTL, "corpus", "run", paths[1], "--on", "processes=2", "--json")
        yield "stats, 2,000 lines, --on processes=2 / alone", ratio(by_two, many, 3), 1.1


ATTENTION = """
import numpy as np
def attend(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
CALLS = """
import sys
import numpy as np
from attention import attend
draw = np.random.RandomState(0)
for _ in range(int(sys.argv[1])):
    attend(*draw.standard_normal((3, 4, 256, 64)).astype("float32"))
"""


def captures():
    """What a check of many calls holds at once, and how its time grows with their number."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "attention.py").write_text(ATTENTION)
        (folder / "calls.py").write_text(CALLS)
        checks = []
        for count in (40, 160):
            path = folder / f"{count}.npz"
            words = [ATTNCTL, "capture", "-o", path.name, "--function", "attention:attend", "calls.py"]
            subprocess.run([*words, str(count)], cwd=name, check=True, capture_output=True)
            mib = path.stat().st_size / 2**20
            yield f"check of {count} calls, {mib:.0f} MiB: its MiB", peak(ATTNCTL, "check", str(path)), 150
            checks.append(command(ATTNCTL, "check", str(path)))
        few, many = checks
        yield "check of 160 calls / 40", ratio(many, few, 1), 4


NEXT = """
import sys, torch
from transformers import AutoModelForCausalLM
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
with torch.inference_mode():
    logits = model(torch.arange(1, int(sys.argv[2]) + 1)[None]).logits[0, -1]
print(logits.topk(5))
"""


def next_tokens():
    """The next token of a random Llama of 600 M parameters: whole processes, by tokens and by layers."""
    from importlib.util import find_spec

    from layer import LAYERS, write_checkpoint

    has_theirs = find_spec("transformers") is not None and find_spec("torch") is not None
    if not has_theirs:
        print("next_tokens: torch and transformers are not installed", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        for tokens, most in ((16, 0.25), (128, 0.4), (512, 0.7)):
            ids = ",".join(map(str, range(1, tokens + 1)))
            ours = command(ATTNCTL, "run", "--model", folder, "--ids", ids, "--next", "5")
            theirs = command(sys.executable, "-c", NEXT, folder, str(tokens))
            yield f"run --next, {tokens} tokens / transformers", ratio(ours, theirs, 1), most

        layers = [
            command(ATTNCTL, "run", "--model", folder, "--ids", ids, "--layer", layer, "--brief")
            for layer in (str(LAYERS // 2 - 1), str(LAYERS - 1))
        ]
        yield f"run --layer {LAYERS - 1} / {LAYERS // 2 - 1}, 512 tokens", ratio(*layers[::-1], 1), 2


def page_sizes():
    """A page of a model's layers."""
    import numpy as np

    import attnctl
    from attnctl.formats import write

    traces = []
    for layer in range(6):
        draw = np.random.RandomState(layer)
        arrays = {name: draw.standard_normal((12, 14, 64)).astype(np.float32) for name in "QKV"}
        traces.append(attnctl.attend(arrays, dtype="float32"))
        traces[-1].header["layer"] = layer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.html"
        write(traces, path)
        yield "a page, 6 layers of 12 heads, 14 tokens: MB", path.stat().st_size / 1e6, 0.5


def effects():
    """`effect` over all heads of a random Llama of 600 M parameters, beside a pass for each by hooks."""
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError:
        print("effects: torch and transformers are not installed", file=sys.stderr)
        return
    from layer import HEADS, LAYERS, WIDTH, write_checkpoint

    import attnctl

    tokens, size = list(range(1, 17)), WIDTH // HEADS
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        mixed = model.model.layers[LAYERS // 2].self_attn.o_proj

        def by_hooks():
            """The heads of one layer: each costs what those of any other cost."""
            for head in range(HEADS):

                def zeroed(_, given, head=head):
                    own = given[0].clone()
                    own[..., head * size : (head + 1) * size] = 0
                    return (own,)

                hook = mixed.register_forward_pre_hook(zeroed)
                with torch.inference_mode():
                    model(torch.tensor([tokens])).logits[0, -1].numpy()
                hook.remove()

        ours = partial(attnctl.effect, model=folder, ids=tokens, between=(5, 4))
        yield "effect, 480 heads, 16 tokens / hooks", ratio(ours, by_hooks, 3) / LAYERS, 0.5


GROUPS = (
    start_up,
    wrong_dumps,
    lines,
    captures,
    next_tokens,
    page_sizes,
    effects,
    attend_alone,
    attend,
    backward,
    memory,
    weights,
    dumps,
    yaml,
    tables,
    check,
)


def main():
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    names = [name for name in sys.argv[1:] if name != "--processor-time"]
    print(f"On {processor()}, {os.cpu_count()} of its cores, by {CLOCK.__name__.replace('_', ' ')}:\n")
    print(f"| {'what / anchor':48} | ratio | at most |\n|---|---:|---:|")
    for group in GROUPS:
        if not names or group.__name__ in names:
            for what, found, most in group():
                print(f"| {what:48} | {found:.3g} | {most} |", flush=True)
    print(f"\npeak of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
