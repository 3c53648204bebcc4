"""Workers on a running cluster, Dask's or Ray's: submitted, watched, stopped.

What is sent there is what the workers' user gave, as plain data, and this module's name. Keys never are:
they come from the environment of the cluster's own machines, as does a store's password that doesn't
stand in its address.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from judgeq.config import Settings
from judgeq.engine import joining, session
from judgeq.engine.joining import Given
from judgeq.engine.stopping import Interrupts
from judgeq.engine.working import Tally
from judgeq.errors import JudgeqError, UsageError
from judgeq.events import Event, Notice
from judgeq.runs import whoami

POLL = 1.0
"""Seconds between two looks, of a worker whether it is to stop, and of us whether one has ended."""
CONNECTING = 30
"""Seconds that a cluster may take to answer."""
NOTICES = 20
"""Warnings of a worker that are sent back, the last ones."""
VARIABLE = "JUDGEQ_STORE"


class Report(NamedTuple):
    """How a worker ended: its number and process, what it did, its last warnings; `error` says why it
    ended, if not because there was no more to do, and `exit_code` what its command would end with."""

    number: int
    where: str
    tally: Mapping[str, int | float]
    warnings: Sequence[str] = ()
    error: str = ""
    exit_code: int = 0


class Cluster(Protocol):
    """A running cluster."""

    def submit(self, given: Given, n: int) -> None:
        """Have n workers begin, as soon as there is room for each."""

    def ended(self) -> list[Report]:
        """Those that have ended since this was called last; waits a moment if none has."""

    def stop(self) -> None:
        """Ask all of them to stop as a signal does: calls in flight are let finish."""

    def close(self) -> None:
        """Let go of the cluster, which runs on."""


def check(settings: Settings) -> None:
    """Raise UsageError for settings that hold a secret, which would be sent or printed."""
    kept = settings.kept()
    for name, flag in (("headers", "--header"), ("proxy", "--proxy")):
        if getattr(kept, name) != getattr(settings, name):
            raise UsageError(
                f"{flag} holds what may be a secret, which is never sent to other machines: give it "
                "as env:VARIABLE, and set the variable there."
            )


def serve(given: Mapping[str, Any], stopped: Callable[[float], bool]) -> dict[str, Any]:
    """Be a worker, on a machine of the cluster; `stopped` waits up to so many seconds for the wish that
    it stops. What is returned is plain data, of which `Report` is made."""
    settings = dict(given["settings"])
    if "store" not in settings and os.environ.get(VARIABLE):
        settings["store"] = os.environ[VARIABLE]
    mine = Given(**{**given, "settings": settings})
    tally, interrupts, warnings = Tally(), Interrupts(), list[str]()

    def emit(event: Event) -> None:
        if isinstance(event, Notice) and event.warning:
            warnings.append(event.text)

    error: JudgeqError | None = None
    with _watching(stopped, interrupts):
        try:
            session.run_loop(joining.join(mine, emit, tally, interrupts=interrupts))
        except JudgeqError as ended:
            error = ended
    counted = ("done", "invalid", "failed", "given_back", "calls", "cached", "cost", "unpriced")
    return {
        "where": whoami(),
        "tally": {name: getattr(tally, name) for name in counted},
        "warnings": warnings[-NOTICES:],
        "error": "" if error is None else str(error),
        "exit_code": 0 if error is None else error.exit_code,
    }


@contextmanager
def _watching(stopped: Callable[[float], bool], interrupts: Interrupts) -> Iterator[None]:
    """While inside, a thread waits for the wish to stop."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if stopped(POLL):
                interrupts.interrupt()
                return

    thread = threading.Thread(target=watch, name="judgeq-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def on(where: str) -> Cluster:
    """The running cluster that "dask=ADDRESS" or "ray=ADDRESS" names. Raises UsageError for one that
    can't be reached, and without the package that it needs."""
    kind, _, address = where.partition("=")
    if kind == "dask" and address:
        return _Dask(address)
    if kind == "ray":
        return _Ray(address or "auto")
    raise UsageError(
        f"--on {where}: give dask=tcp://HOST:8786, ray=auto or ray=ray://HOST:10001; slurm and "
        "kubernetes go with --print."
    )


class _Dask:
    def __init__(self, address: str) -> None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            raise UsageError("--on dask needs distributed: pip install 'judgeq[dask]'") from error
        self._distributed = distributed
        try:
            self._client = distributed.Client(address, timeout=CONNECTING)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            raise UsageError(f"--on dask={address} can't be reached: {error}.") from error
        self._token = f"judgeq-{secrets.token_hex(6)}"
        self._stop = distributed.Event(self._token, client=self._client)
        self._futures: dict[Any, int] = {}

    def submit(self, given: Given, n: int) -> None:
        """See Cluster. Dask runs a worker anew where the machine that had it is lost."""
        for number in range(1, n + 1):
            key = f"{self._token}-{number}"
            future = self._client.submit(on_dask, asdict(given), self._token, key=key, pure=False)
            self._futures[future] = number

    def ended(self) -> list[Report]:
        """See Cluster."""
        try:
            done = self._distributed.wait(
                list(self._futures), timeout=POLL, return_when="FIRST_COMPLETED"
            ).done
        except TimeoutError:
            return []
        reports = []
        for future in done:
            number = self._futures.pop(future)
            if future.status == "finished":
                reports.append(Report(number, **future.result()))
            else:
                reports.append(
                    _lost(number, future.exception() if future.status == "error" else "")
                )
        return reports

    def stop(self) -> None:
        """See Cluster."""
        self._stop.set()

    def close(self) -> None:
        """See Cluster."""
        self._client.close()


def on_dask(given: Mapping[str, Any], token: str) -> dict[str, Any]:
    """What a thread of the Dask cluster does."""
    distributed: Any = import_module("distributed")
    event = distributed.Event(token, client=distributed.get_client())
    return serve(given, lambda seconds: bool(event.wait(seconds)))


class _Ray:
    def __init__(self, address: str) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise UsageError("--on ray needs ray: pip install 'judgeq[ray]'") from error
        self._ray = ray
        try:
            ray.init(address=address, log_to_driver=False, ignore_reinit_error=True)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"--on ray={address} can't be reached: {error}.") from error
        self._flag = ray.remote(num_cpus=0, max_concurrency=100)(Flag).remote()
        self._refs: dict[Any, int] = {}

    def submit(self, given: Given, n: int) -> None:
        """See Cluster. Ray runs a worker anew where the machine that had it is lost."""
        worker = self._ray.remote(num_cpus=1, max_retries=-1)(on_ray)
        for number in range(1, n + 1):
            self._refs[worker.remote(asdict(given), self._flag)] = number

    def ended(self) -> list[Report]:
        """See Cluster."""
        done, _ = self._ray.wait(list(self._refs), num_returns=1, timeout=POLL)
        reports = []
        for ref in done:
            number = self._refs.pop(ref)
            try:
                reports.append(Report(number, **self._ray.get(ref)))
            except self._ray.exceptions.RayError as error:
                reports.append(_lost(number, error))
        return reports

    def stop(self) -> None:
        """See Cluster."""
        self._ray.get(self._flag.set.remote())

    def close(self) -> None:
        """See Cluster."""
        self._ray.shutdown()


class Flag:
    """What an actor of Ray holds: whether the workers are to stop."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        """They are."""
        self._set = True

    def is_set(self) -> bool:
        """Whether they are."""
        return self._set


def on_ray(given: Mapping[str, Any], flag: Any) -> dict[str, Any]:
    """What a process of the Ray cluster does."""
    ray: Any = import_module("ray")

    def stopped(seconds: float) -> bool:
        time.sleep(seconds)
        return bool(ray.get(flag.is_set.remote()))

    return serve(given, stopped)


def _lost(number: int, why: object) -> Report:
    """A worker that the cluster has no result of."""
    said = " ".join(str(why).split()) or "cancelled"
    return Report(number, "the cluster", {}, (), f"it was lost: {said}", 1)


def watch(cluster: Cluster, n: int, report: Callable[[Report], None]) -> list[Report]:
    """Wait until n workers that were submitted have ended; `report` is called with each. Ctrl-C asks
    them to stop, and is raised when it comes again."""
    reports: list[Report] = []
    stopping = False
    while len(reports) < n:
        try:
            for ended in cluster.ended():
                reports.append(ended)
                report(ended)
        except KeyboardInterrupt:
            if stopping:
                raise
            stopping = True
            cluster.stop()
    return reports
