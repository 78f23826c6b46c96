"""The shards of a corpus over the workers of Dask's distributed scheduler, merged as they come."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnctl.base.errors import AttnError
from attnctl.verbs.corpus.lines import Shard, source_name
from attnctl.verbs.corpus.part import CorpusPart, different, part_of_bytes
from attnctl.verbs.corpus.run import Job, Moved, Save, Work, bad_lines, measure_shard

if TYPE_CHECKING:
    from distributed import Client

LOCAL = "local"
"""A cluster on this machine, with a worker for each processor."""


ANSWER, PATIENCE = 10, 60
"""Seconds to wait for a scheduler, and for its first worker."""


def bytes_of(job: Job) -> bytes:
    """Measure one shard in a worker; its part goes back as bytes."""
    return measure_shard(job).to_bytes()


def over_cluster(
    work: Work, where: str, moved: Moved | None = None, save: Save | None = None
) -> CorpusPart:
    """Measure the lines of a corpus that are left on a cluster, and `save` the part as it grows.

    The cluster is LOCAL, a number of local workers, or a scheduler's address. A worker that is lost
    has its shards done by others. Raises AttnError for every line that is no sentence, and where the
    workers see another corpus or model than this process does.
    """
    whole, done = work.part, work.part.stop
    left = whole.lines - done
    if not left:
        return whole
    if where == LOCAL:
        from attnctl.math.engine.tiles import cores

        where = str(cores())
    later: dict[int, CorpusPart] = {}
    with client_of(where) as client:
        workers = max(1, sum(client.nthreads().values()))
        # So that a worker that is lost costs little, and the last ones end together.
        count = min(left, 8 * workers)
        shards = [Shard(number + 1, count, whole.stop) for number in range(count)]
        for part in gather_parts(client, [replace(work.job, shard=shard) for shard in shards]):
            differs = different(whole.about, part.about)
            if differs:
                seen = f"another {differs[0]} under {source_name(work.job.source)} or the model's name"
                raise AttnError(f"--dask: a worker sees {seen}")
            done += part.stop - part.first
            if moved:
                moved(done, whole.lines)
            later[part.first] = part
            reached = whole.stop
            while whole.stop in later:  # it goes on from where the one before ends
                following = later.pop(whole.stop)
                whole.add(following)
                whole.stop = following.stop
            if save and whole.stop > reached:
                save(whole)
    return whole


def gather_parts(client: Client, jobs: list[Job]) -> Iterator[CorpusPart]:
    """The parts in whatever order they come. Raises AttnError in the end for those that failed."""
    from distributed import as_completed

    futures = {client.submit(bytes_of, job, pure=False): job.shard for job in jobs}
    problems: dict[Shard, list[str]] = {}
    try:
        for future in as_completed(futures, loop=client.loop):
            shard = futures[future]
            try:
                part = part_of_bytes(result_of(future), f"shard {shard}")
            except AttnError as error:
                problems[shard] = list(error.problems)
                continue
            future.release()
            yield part
    finally:
        client.cancel(list(futures))
    if problems:
        raise bad_lines([each for _, own in sorted(problems.items()) for each in own])


def result_of(future: Any) -> bytes:
    """The result of a worker. Raises AttnError for what it found wrong, or what went wrong with it."""
    try:
        found: bytes = future.result()
    except AttnError:
        raise
    except Exception as error:  # whatever happened there
        raise AttnError(f"--dask: a worker failed: {type(error).__name__}: {error}") from error
    return found


@contextmanager
def client_of(where: str) -> Iterator[Client]:
    """A client of a scheduler that answers and has a worker, or of a local cluster of so many workers."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise AttnError("--dask: dask's scheduler is not installed; pip install 'attnctl[dask]'") from None
    with ExitStack() as stack:
        name, options = where, {"address": where, "timeout": ANSWER}
        if where.isdigit():
            cluster = LocalCluster(
                n_workers=int(where),
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            name, options = "the local cluster", {"address": stack.enter_context(cluster)}
        try:
            client = stack.enter_context(Client(**options, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as error:
            raise AttnError(f"--dask: no scheduler at {name}: {error}") from None
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise AttnError(f"--dask: {name} has no worker; start one: dask worker {name}") from None
        yield client
