"""Workers for calls that can be made apart: processes here, or those of an engine on many machines.

Whatever makes the calls is a `concurrent.futures.Executor`: that of the standard library, that of Dask, and
a small one over Ray. A call whose worker is lost is made again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from logging import ERROR
from multiprocessing import get_context
from typing import Any, NamedTuple

from attnctl.base.errors import AttnError
from attnctl.base.values import BadValueError, Reader
from attnctl.base.words import one_of, quote

TRIES = 3
"""How often a call may lose its worker: what costs three of them would cost all."""

SECONDS = 10.0
"""How long an address may take to answer."""

PROCESSES, DASK, RAY = ENGINES = ("processes", "dask", "ray")


class Engine(NamedTuple):
    name: str
    at: str = ""
    """How many processes, or the address of a cluster that runs; left out, one here that ends with us."""


def read_engine(text: str) -> Engine:
    """processes=4, dask, dask=tcp://host:8786, ray=auto."""
    name, _, at = text.partition("=")
    if name not in ENGINES:
        raise BadValueError(f"{quote(name)} is no engine; there are {one_of(ENGINES, 'and')}")
    if name == PROCESSES and not (at.isascii() and at.isdecimal() and 0 < int(at[:4]) < 1000):
        raise BadValueError(f"{text}: how many? write processes=2")
    return Engine(name, at)


ENGINE = Reader(read_engine, {}, "ENGINE[=…]")


class Result(NamedTuple):
    number: int
    value: Any


def call_each(engine: Engine, call: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Result]:
    """Call a function with each of these, by the workers of an engine; results as they come, with numbers.

    Raises AttnError where workers are lost again and again.
    """
    waiting = dict(enumerate(tasks))
    for _ in range(TRIES):
        # Of processes here all end with one that is killed; what they have not done is begun anew.
        with open_executor(engine) as executor, suppress(BrokenExecutor):
            futures: dict[Future[Any], int] = {}
            try:
                for number, task in waiting.items():
                    futures[executor.submit(call, task)] = number
                for future in as_completed(list(futures)):
                    value = future.result()
                    del waiting[futures[future]]
                    yield Result(futures[future], value)
            finally:
                for future in futures:
                    future.cancel()
        if not waiting:
            return
    raise AttnError(f"--on {engine.name}: workers were lost {TRIES} times; do they have enough memory?")


@contextmanager
def open_executor(engine: Engine) -> Iterator[Executor]:
    """The executor of an engine; one that is begun here is ended here."""
    opened = {PROCESSES: open_processes, DASK: open_dask, RAY: open_ray}[engine.name]
    try:
        with opened(engine.at) as executor:
            yield executor
    except ImportError:
        package = {DASK: "dask.distributed", RAY: "ray"}[engine.name]
        install = f"pip install 'attnctl[{engine.name}]'"
        raise AttnError(f"--on {engine.name}: {package} is not installed; {install}") from None


@contextmanager
def open_processes(count: str) -> Iterator[Executor]:
    # Begun anew: a fork would have the locks of our threads, and what they hold.
    with ProcessPoolExecutor(int(count), mp_context=get_context("spawn")) as pool:
        yield pool


@contextmanager
def open_dask(address: str) -> Iterator[Executor]:
    from distributed import Client, LocalCluster

    with ExitStack() as begun:
        try:
            # No dashboard: what is begun for one command listens on this machine alone.
            cluster = address or begun.enter_context(
                LocalCluster(
                    n_workers=os.cpu_count(), threads_per_worker=1, host="127.0.0.1", dashboard_address=None
                )
            )
            client = begun.enter_context(Client(cluster, timeout=SECONDS))
        except (OSError, ValueError) as error:
            begins = "`dask scheduler` begins one; --on dask alone begins one for this command"
            raise AttnError(f"--on dask={address}: no scheduler there ({error}); {begins}") from None
        yield client.get_executor(retries=TRIES, pure=False)


@contextmanager
def open_ray(address: str) -> Iterator[Executor]:
    import ray

    begins = "`ray start --head` begins one; --on ray alone begins one for this command"
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    try:
        if colon:  # Ray itself would try for ten minutes
            socket.create_connection((host, int(port)), SECONDS).close()
        dashboard = None if address else False
        ray.init(address or "local", include_dashboard=dashboard, log_to_driver=False, logging_level=ERROR)
    except (OSError, ValueError) as error:
        raise AttnError(f"--on ray={address}: no cluster there ({error}); {begins}") from None
    try:
        yield RayExecutor(ray.remote(num_cpus=1, max_retries=TRIES)(make_call))
    finally:
        ray.shutdown()


class RayExecutor(Executor):
    def __init__(self, remote: Any) -> None:
        self.remote = remote

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = self.remote.remote(call, args, named).future()
        return future


def make_call(call: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
    return call(*args, **named)
