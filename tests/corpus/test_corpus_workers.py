"""A corpus measured by workers, a block each: to the last byte what one process gives, whoever is lost."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import lost
import pytest
from corpora import written
from hypothesis import given
from hypothesis import strategies as st

import attnctl
from attnctl.base import workers
from attnctl.base.errors import AttnError
from attnctl.base.workers import Engine, call_each
from attnctl.cli.program import program
from attnctl.inputs.config.flags import settings_from
from attnctl.verbs import corpus
from attnctl.verbs.corpus import Shard, surveyed
from attnctl.verbs.corpus import run as room
from attnctl.verbs.corpus.part import merge_parts
from attnctl.verbs.corpus.run import open_work

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture
def threads(monkeypatch):
    """Workers that are threads of this process, and small blocks."""

    @contextmanager
    def opened(engine):
        with ThreadPoolExecutor(1) as pool:
            yield pool

    monkeypatch.setattr(workers, "open_executor", opened)
    monkeypatch.setattr(corpus, "LEAST_BYTES", 64)


@pytest.fixture
def small_blocks(threads, monkeypatch):
    monkeypatch.setattr(surveyed, "LEAST_BYTES", 64)


def whole_of(path, **more):
    return open_work(str(path), **more).done().to_bytes()


@given(
    lines=st.lists(st.text("ab \u00e9", max_size=9), min_size=1, max_size=20).filter(
        lambda x: any(map(str.strip, x))
    ),
    size=st.integers(1, 40),
    ended=st.booleans(),
)
def test_blocks_are_the_lines_of_a_corpus(tmp_path_factory, lines, size, ended):
    path = tmp_path_factory.mktemp("blocks") / "c.txt"
    path.write_text("\n".join(lines) + "\n" * ended)
    surveyed, plain = corpus.survey_blocks(str(path), size), corpus.survey(str(path))
    assert (surveyed.sha256, surveyed.lines) == (plain.sha256, plain.lines)
    every = range(surveyed.lines)
    in_blocks = [line for block in surveyed.blocks for line in corpus.lines_of(block, every)]
    assert in_blocks == list(corpus.lines_of(str(path), every))
    assert all(block.length >= size for block in surveyed.blocks[:-1])


def test_a_long_line_ends_its_block(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"a\n" + b"b" * (3 * 2**20) + b"\nc\n")
    blocks = corpus.survey_blocks(str(path), 4).blocks
    assert [block.lines for block in blocks] == [2, 1]
    (_, long) = corpus.lines_of(blocks[0], range(2))
    assert len(long[1]) == corpus.LONGEST + 1


def test_a_block_that_was_changed_is_refused(tmp_path):
    path = written(tmp_path / "c.txt")
    block = corpus.survey_blocks(str(path), 50).blocks[1]
    data = bytearray(path.read_bytes())
    data[block.offset] = ord("z")
    path.write_bytes(data)
    with pytest.raises(AttnError, match="changed while it was measured"):
        list(corpus.lines_of(block, range(block.stop)))


def test_a_worker_reads_its_own_bytes(tmp_path, monkeypatch):
    path = written(tmp_path / "c.txt", lines=400)
    blocks = corpus.survey_blocks(str(path), 200).blocks
    read = []
    plain = corpus.read_line
    monkeypatch.setattr(corpus, "read_line", lambda stream: read.append(1) or plain(stream))
    list(corpus.lines_of(blocks[5], range(blocks[5].first, blocks[5].stop)))
    assert len(read) == blocks[5].lines


def test_a_shard_with_a_survey_reads_its_own_bytes(small_blocks, tmp_path, monkeypatch):
    path, survey = written(tmp_path / "c.txt", lines=400), str(tmp_path / "blocks.json")
    open_work(str(path), survey=survey)
    read = []
    plain = corpus.read_line

    def noted(stream):
        read.append(stream.tell())
        return plain(stream)

    monkeypatch.setattr(corpus, "read_line", noted)
    monkeypatch.setattr(corpus, "chunks_of", None)  # of nothing all is read
    parts = [open_work(str(path), shard=Shard(number, 8), survey=survey).done() for number in range(1, 9)]
    assert merge_parts([(str(part.first), part) for part in parts]).to_bytes() == whole_of(
        path, survey=survey
    )

    read.clear()
    open_work(str(path), shard=Shard(3, 8), survey=survey).done()
    size = path.stat().st_size
    assert 0.2 * size < min(read) < max(read) < 0.4 * size


def test_with_a_survey_the_bytes_are_the_same(small_blocks, run, tmp_path):
    path = written(tmp_path / "c.txt", lines=90)
    plain = whole_of(path)
    for _ in range(2):  # made, and read
        assert run("run", "c.txt", "--survey", "blocks.json", "--json") == (0, plain.decode(), "")
        for engine in ([], ["--on", "processes=1"]):
            work = open_work(str(path), in_blocks=bool(engine), survey="blocks.json")
            assert len(work.blocks) > 5
    assert open_work(str(path), survey="blocks.json").done_by(Engine("dask")).to_bytes() == plain


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda path, survey: path.write_text("a b\n"),
            "the survey of a corpus of {} bytes, and {} has 4; ",
        ),
        (lambda path, survey: survey.write_text("{}"), "not a survey of a corpus; remove it"),
        (
            lambda path, survey: survey.write_text(survey.read_text().replace(": 90", ": 91")),
            "not a survey of a corpus; remove it",
        ),
    ],
)
def test_a_survey_of_something_else_is_refused(small_blocks, run, tmp_path, change, said):
    path, survey = written(tmp_path / "c.txt", lines=90), tmp_path / "blocks.json"
    size = path.stat().st_size
    run("run", str(path), "--survey", "blocks.json", "--json")
    change(path, survey)
    code, _, err = run("run", str(path), "--survey", "blocks.json")
    assert code == 2
    assert err.startswith(f"attnctl: blocks.json: {said.format(size, path)}")


def test_a_corpus_that_changed_since_its_survey_is_refused(small_blocks, run, tmp_path):
    path = written(tmp_path / "c.txt", lines=90)
    run("run", str(path), "--survey", "blocks.json", "--json")
    path.write_bytes(path.read_bytes().replace(b"a", b"b"))
    code, _, err = run("run", str(path), "--survey", "blocks.json")
    assert (code, "or since its survey" in err) == (2, True)


@pytest.mark.parametrize("pairs", [False, True])
def test_workers_give_what_one_process_gives(threads, tmp_path, pairs):
    path = written(tmp_path / "c.txt", lines=90)
    work = open_work(str(path), pairs=pairs, in_blocks=True)
    assert len(work.blocks) > 5
    assert work.done_by(Engine("processes", "1")).to_bytes() == whole_of(path, pairs=pairs)


@pytest.mark.parametrize("config", [None, "configs/it-was-tired.yaml"])
def test_workers_are_sent_what_options_say(config):
    settings = settings_from(config and str(ROOT / config), {"heads": 2})
    maker = pickle.loads(pickle.dumps(room.Maker(None, settings)))
    assert maker.settings == settings
    for path in (("heads",), ("rules", 0)):
        assert maker.settings.where(path) == settings.where(path)


def test_workers_go_on_from_what_one_process_left(threads, tmp_path):
    path = written(tmp_path / "c.txt", lines=90)
    begun = open_work(str(path))
    begun.span = range(37)
    part = begun.done()
    work = open_work(str(path), in_blocks=True)
    work.part = part
    assert work.done_by(Engine("processes", "1")).to_bytes() == whole_of(path)


def test_bad_lines_of_workers_are_those_of_one_process(threads, tmp_path):
    path = written(tmp_path / "c.txt", lines=60)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = lines[41] = b"\xff\n"
    path.write_bytes(b"".join(lines))
    engine = Engine("processes", "1")
    with pytest.raises(AttnError) as alone:
        open_work(str(path)).done()
    with pytest.raises(AttnError) as together:
        open_work(str(path), in_blocks=True).done_by(engine)
    assert together.value.problems == alone.value.problems
    work = open_work(str(path), skip_bad=True, in_blocks=True)
    assert work.done_by(engine).to_bytes() == whole_of(path, skip_bad=True)


def test_a_worker_with_another_model_is_refused(threads, tmp_path, monkeypatch):
    path = written(tmp_path / "c.txt")
    work = open_work(str(path), in_blocks=True)
    work.part.about["model"] = {"another": 1}
    with pytest.raises(AttnError, match="a worker has another model than this machine"):
        work.done_by(Engine("processes", "1"))


class Unreliable(Executor):
    """Workers of a large cluster: in any order, and now and then one is lost with what it was told."""

    def __init__(self, seed, lost_every):
        self.drawn, self.lost_every, self.futures = random.Random(seed), lost_every, []

    def submit(self, call, /, task):
        future = Future()
        self.futures.append((future, call, task))
        return future

    def carry_out(self):
        self.drawn.shuffle(self.futures)
        for future, call, task in self.futures:
            if future.cancelled():
                continue
            if self.drawn.random() < 1 / self.lost_every:
                future.set_exception(BrokenExecutor("lost"))
            else:
                future.set_result(call(task))


def unreliable(monkeypatch, lost_every):
    opened_ones = []

    @contextmanager
    def opened(engine):
        pool = Unreliable(len(opened_ones), lost_every)
        opened_ones.append(pool)
        yield pool

    def in_any_order(futures):
        opened_ones[-1].carry_out()
        yield from (future for future, _, _ in opened_ones[-1].futures)

    monkeypatch.setattr(workers, "open_executor", opened)
    monkeypatch.setattr(workers, "as_completed", in_any_order)
    return opened_ones


@pytest.mark.parametrize(
    ("blocks", "lines"), [(300, 300), pytest.param(10_000, 10_000, marks=pytest.mark.slow)]
)
def test_many_workers_some_slow_some_lost(tmp_path, monkeypatch, blocks, lines):
    """What samples/corpus/scale.md says of ten thousand shards: late, twice or lost, the same bytes."""
    path = written(tmp_path / "c.txt", lines=lines)
    monkeypatch.setattr(corpus, "LEAST_BYTES", 1)
    monkeypatch.setattr(corpus, "BLOCKS", 10**9)
    pools = unreliable(monkeypatch, lost_every=blocks)
    work = open_work(str(path), in_blocks=True)
    assert len(work.blocks) > 0.8 * blocks
    monkeypatch.setattr(workers, "TRIES", 50)
    assert work.done_by(Engine("dask")).to_bytes() == whole_of(path)
    assert pools


def test_workers_that_are_lost_again_and_again_are_told(monkeypatch):
    pools = unreliable(monkeypatch, lost_every=1)
    with pytest.raises(AttnError, match="--on dask: workers were lost 3 times"):
        list(call_each(Engine("dask"), str, [1, 2]))
    assert len(pools) == workers.TRIES


def test_what_is_wrong_with_a_call_is_told_and_ends_the_others(threads):
    def call(task):
        raise AttnError(f"wrong {task}")

    with pytest.raises(AttnError, match="wrong"):
        list(call_each(Engine("processes", "1"), call, range(50)))


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("processes=2", Engine("processes", "2")),
        ("dask", Engine("dask")),
        ("dask=tcp://a:1", Engine("dask", "tcp://a:1")),
        ("ray=auto", Engine("ray", "auto")),
    ],
)
def test_an_engine_by_its_name(text, engine):
    assert workers.ENGINE(text) == engine


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--on mpi", "--on: 'mpi' is no engine; there are processes, dask and ray"),
        ("--on processes", "--on: processes: how many? write processes=2"),
        ("--on processes=0", "--on: processes=0: how many? write processes=2"),
        ("--on dask --shard 1/2", "--shard: --on cuts the corpus itself; leave one of them out"),
    ],
)
def test_an_engine_that_is_none_or_goes_with_nothing(run, tmp_path, args, said):
    written(tmp_path / "c.txt")
    assert run("run", "c.txt", *args.split()) == (2, "", f"attnctl: {said}\n")


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_an_engine_that_is_not_installed(run, tmp_path, monkeypatch, name):
    written(tmp_path / "c.txt")
    monkeypatch.setitem(__import__("sys").modules, {"dask": "distributed", "ray": "ray"}[name], None)
    code, _, err = run("run", "c.txt", "--on", name)
    assert code == 2
    assert err.endswith(f"is not installed; pip install 'attnctl[{name}]'\n")


def test_sentences_in_python_are_read_from_no_file():
    with pytest.raises(AttnError, match="an engine reads a file"):
        attnctl.corpus(["a b"], on="processes=1")


def test_a_compressed_corpus_needs_fsspec(run, tmp_path, monkeypatch):
    monkeypatch.setattr("attnctl.store.elsewhere.find_spec", lambda name: None)
    code, _, err = run("run", "c.txt.gz")
    assert (code, err) == (
        2,
        "attnctl: c.txt.gz: fsspec opens it, and is not installed; pip install 'attnctl[remote]'\n",
    )


@pytest.mark.skipif(find_spec("fsspec") is None, reason="fsspec is an extra")
def test_a_compressed_corpus_and_one_elsewhere_are_the_same(threads, tmp_path):
    import fsspec

    path = written(tmp_path / "c.txt", lines=90)
    zipped = tmp_path / "c.txt.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    fsspec.filesystem("memory").pipe("/corpora/c.txt", path.read_bytes())
    for elsewhere in (str(zipped), "memory://corpora/c.txt"):
        assert whole_of(elsewhere) == whole_of(path)
        work = open_work(elsewhere, in_blocks=True)
        assert work.done_by(Engine("processes", "1")).to_bytes() == whole_of(path)
        assert len({block.offset for block in corpus.survey_blocks(elsewhere, 99).blocks}) > 5


@pytest.mark.skipif(find_spec("fsspec") is None, reason="fsspec is an extra")
def test_parts_and_results_elsewhere(run, tmp_path):
    path, folder = written(tmp_path / "c.txt", lines=30), f"memory://{tmp_path.name}"
    for number in (1, 2):
        part = f"{folder}/part-{number}.json"
        assert run("run", str(path), "--shard", f"{number}/2", "-o", part) == (0, "", "")
        _, _, again = run("run", str(path), "--shard", f"{number}/2", "-o", part)
        assert again == f"attnctl: {part}: is complete, and kept\n"
    whole = f"{folder}/whole.json"
    assert run("merge", f"{folder}/part-*.json", "-o", whole) == (0, "", "")
    assert part_bytes(whole) == whole_of(path)
    code, _, err = run("merge", f"{folder}/none-*.json")
    assert (code, err) == (2, f"attnctl: {folder}/none-*.json: no such file there\n")


@pytest.mark.skipif(find_spec("fsspec") is None, reason="fsspec is an extra")
@pytest.mark.parametrize("address", ["nowhere://a/b.json", "memory://none/p.json"])
def test_what_cannot_be_opened_elsewhere_is_said(run, address):
    code, _, err = run("merge", address)
    assert code == 2
    assert err.startswith(f"attnctl: {address}: ")
    assert "Traceback" not in err


def part_bytes(address):
    import fsspec

    with fsspec.open(address, "rb") as stream:
        return stream.read()


ENGINES = [
    Engine("processes", "2"),
    pytest.param(
        Engine("dask"),
        marks=pytest.mark.skipif(find_spec("distributed") is None, reason="dask is an extra"),
    ),
    pytest.param(
        Engine("ray"), marks=pytest.mark.skipif(find_spec("ray") is None, reason="ray is an extra")
    ),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of theirs
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_a_worker_that_is_killed_changes_nothing(tmp_path, monkeypatch, engine):
    """Real workers: the process of one is killed in the middle, and the bytes are those of one process."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    path = written(tmp_path / "c.txt", lines=300)
    monkeypatch.setattr(corpus, "LEAST_BYTES", 256)
    monkeypatch.setattr(room, "measure_block", lost.die_once)
    work = open_work(str(path), in_blocks=True)
    assert len(work.blocks) > 5
    assert work.done_by(engine).to_bytes() == whole_of(path)
    assert path.with_suffix(".killed").exists()


def test_a_survey_is_not_written_where_the_result_is(tmp_path, monkeypatch):
    """In a first run there is no survey yet that could be known as a file that is read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("I love AI\n" * 20)
    said = io.StringIO()
    words = ["corpus", "run", "c.txt", "--survey", "same.json", "-o", "same.json"]
    assert program(words, stderr=said) == 2
    assert "--survey same.json: -o same.json is the same file; give another name" in said.getvalue()
    assert not (tmp_path / "same.json").exists()
    assert program([*words[:-1], "part.json"], stderr=said) == 0
