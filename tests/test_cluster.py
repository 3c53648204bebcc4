"""Workers on a cluster: submitted, watched, stopped; the files that start them elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from judgeq.engine import cluster
from judgeq.engine.cluster import Report
from judgeq.engine.remote_worker import WorkerOptions
from judgeq.settings.run import SETTINGS
from tests.cli import REPO, judgeq, scores
from tests.postgres import new_store
from tests.test_worker_processes import begun, planning, waited_for

STORE = "postgresql://me:hunter2@db.example/judgeq"
DOCS = REPO / "docs"


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a small Dask cluster, in this process."""
    distributed: Any = pytest.importorskip("distributed")
    monkeypatch.delenv("JUDGEQ_STORE", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own libraries
        local = distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        )
        try:
            yield local.scheduler_address
        finally:
            local.close()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a small Ray cluster, where Ray is installed: it isn't by `make test`."""
    ray: Any = pytest.importorskip("ray")
    monkeypatch.delenv("JUDGEQ_STORE", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = ray.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1"
        )
        yield started.address_info["address"]
        ray.shutdown()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_works_on_a_run(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(kind)
    store, flags = new_store(), ("-d", "synthetic:normal", "--n", "40", "-s", "pairwise2")
    alone = json.loads(judgeq(tmp_path, "run", *flags, "--json").stdout)["run"]
    (tmp_path / "many").mkdir()
    with planning(tmp_path / "many", store, *flags) as run:
        how = ("--on", f"{kind}={address}", "-n", "2", "--store", store, "--exit-when", "done")
        done = judgeq(tmp_path, "workers", run, *how, "--json")
    reports = json.loads(done.stdout)
    assert [report["number"] for report in reports] == [1, 2]
    assert sum(report["tally"]["done"] for report in reports) == 40
    assert "worker 1 (process" in done.stderr
    many = scores(tmp_path / "many" / "runs" / run, "--store", store)
    assert many == scores(tmp_path / "runs" / alone)


def test_what_a_worker_there_lacks_is_reported_and_ctrl_c_stops_it(
    tmp_path: Path, dask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store()
    begun(tmp_path, store, "-d", "synthetic:linear", "--n", "20", "-s", "pairwise2")
    how = ("--on", f"dask={dask}", "--store", store)
    without = judgeq(tmp_path, "workers", *how, "-j", "gpt-5-mini", expect=4)
    assert "the environment variable OPENAI_API_KEY is not set" in without.stderr
    reports = dict[int, Report]()
    with cluster.submitted(f"dask={dask}", WorkerOptions({"store": store}), 1) as (tasks, stop):
        waited_for(store, "SELECT (count(*) = 10)::int FROM @.jobs WHERE state = 'done'")
        asked = iter([True])

        def pressed(*tasks: Any, **how: Any) -> Any:
            if next(asked, False):
                raise KeyboardInterrupt
            return wait(*tasks, **how)

        monkeypatch.setattr(cluster, "wait", pressed)
        cluster.watch(tasks, stop, reports.__setitem__)  # it would go on for ever
    assert [(report.exit_code, report.tally["done"]) for report in reports.values()] == [(5, 10)]


def test_a_store_that_only_the_environment_names_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[WorkerOptions] = []

    @contextmanager
    def nowhere(on: str, given: WorkerOptions, n: int) -> Iterator[Any]:
        sent.append(given)
        yield [], lambda: None

    monkeypatch.setattr(cluster, "submitted", nowhere)
    judgeq(tmp_path, "workers", "--on", "dask=x", variables={"JUDGEQ_STORE": STORE})
    judgeq(tmp_path, "workers", "--on", "dask=x", "--store", STORE)
    assert [given.settings.get("store") for given in sent] == [None, STORE]


def test_secrets_are_not_sent(tmp_path: Path) -> None:
    for flag in (("--header", "X-Key: hunter2"), ("--proxy", "http://me:hunter2@proxy")):
        done = judgeq(tmp_path, "workers", "--on", "dask=x", *flag, expect=2)
        assert "env:VARIABLE" in done.stderr
        assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("on", ["slurm", "htcondor", "dask=", "ray"])
def test_a_cluster_that_is_none_is_refused(tmp_path: Path, on: str) -> None:
    assert "give dask=" in judgeq(tmp_path, "workers", "--on", on, expect=2).stderr


def test_the_file_for_slurm_starts_a_worker(tmp_path: Path) -> None:
    script = DOCS / "judgeq.sbatch"
    subprocess.run(["bash", "-n", str(script)], check=True)
    text = script.read_text()
    assert text.index("#SBATCH") < text.index("set -euo") < text.index("exec judgeq")
    (tmp_path / "judgeq").write_text('#!/bin/sh\nprintf "%s\\n" "$JUDGEQ_STORE" "$@"\n')
    (tmp_path / "judgeq").chmod(0o755)

    def ran(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(script)],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    assert "JUDGEQ_STORE: set it" in ran().stderr
    assert "OPENAI_API_KEY: set it" in ran(JUDGEQ_STORE="s").stderr
    words = ran(JUDGEQ_STORE=STORE, OPENAI_API_KEY="k").stdout.rstrip("\n").split("\n")
    assert words[:2] == [STORE, "worker"]
    _is_a_worker(tmp_path, words[2:])
    (time,) = re.findall(r"^#SBATCH --time=(\d+):00:00", text, re.MULTILINE)
    assert 0 < int(time) - float(words[words.index("--max-hours") + 1]) < 0.5


def test_the_file_for_kubernetes_starts_workers(tmp_path: Path) -> None:
    yaml: Any = pytest.importorskip("yaml")
    job = yaml.safe_load((DOCS / "judgeq-workers.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "completions" not in job["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] > SETTINGS["timeout"].default
    assert [*container["command"], container["args"][0]] == ["judgeq", "worker"]
    _is_a_worker(tmp_path, container["args"][1:])
    refs = {one["name"]: one["valueFrom"]["secretKeyRef"]["key"] for one in container["env"]}
    assert refs == {"JUDGEQ_STORE": "JUDGEQ_STORE", "OPENAI_API_KEY": "OPENAI_API_KEY"}


def _is_a_worker(folder: Path, words: list[str]) -> None:
    """Whether `judgeq worker` takes these words: then all that it lacks is its store."""
    assert "--store is missing" in judgeq(folder, "worker", *words, expect=2).stderr
