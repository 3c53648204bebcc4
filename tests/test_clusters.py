"""Workers on a cluster: submitted, watched, stopped; the scripts that start them elsewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judgeq.engine import clusters, scripts
from judgeq.engine.clusters import Report
from judgeq.engine.joining import Given
from judgeq.errors import UsageError
from tests.cli import judgeq
from tests.postgres import new_store
from tests.test_joining import begun, planning, scores, waited_for

STORE = "postgresql://me:hunter2@db.example/judgeq"


@pytest.fixture
def dask(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a small Dask cluster, in this process."""
    distributed: Any = pytest.importorskip("distributed")
    monkeypatch.delenv("JUDGEQ_STORE", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own libraries
        cluster = distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
        )
        try:
            yield cluster.scheduler_address
        finally:
            cluster.close()


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
    json.loads(done.stdout)
    reports = json.loads(done.stdout)
    assert [report["number"] for report in reports] == [1, 2]
    assert sum(report["tally"]["done"] for report in reports) == 40
    assert "worker 1 (process" in done.stderr
    assert scores(tmp_path / "many", run) == scores(tmp_path, alone)


def test_what_a_worker_there_lacks_is_reported_and_ctrl_c_stops_it(
    tmp_path: Path, dask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store()
    begun(tmp_path, store, "-d", "synthetic:linear", "--n", "20", "-s", "pairwise2")
    how = ("--on", f"dask={dask}", "--store", store)
    without = judgeq(tmp_path, "workers", *how, "-j", "gpt-5-mini", expect=4)
    assert "the environment variable OPENAI_API_KEY is not set" in without.stderr
    reports: list[Report] = []
    cluster = clusters.on(f"dask={dask}")
    try:
        cluster.submit(Given({"store": store}), 1)  # it would go on for ever
        waited_for(store, "SELECT (count(*) = 10)::int FROM @.jobs WHERE state = 'done'")
        asked, ended = iter([True]), cluster.ended

        def pressed() -> list[Report]:
            if next(asked, False):
                raise KeyboardInterrupt
            return ended()

        monkeypatch.setattr(cluster, "ended", pressed)
        clusters.watch(cluster, 1, reports.append)
    finally:
        cluster.close()
    assert [(report.exit_code, report.tally["done"]) for report in reports] == [(5, 10)]


def test_a_store_that_only_the_environment_names_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Given] = []

    class Nowhere:
        def submit(self, given: Given, n: int) -> None:
            sent.append(given)

        def ended(self) -> list[Report]:
            return [Report(1, "there", {})]

        def close(self) -> None:
            pass

    monkeypatch.setattr(clusters, "on", lambda where: Nowhere())
    judgeq(tmp_path, "workers", "--on", "dask=x", variables={"JUDGEQ_STORE": STORE})
    judgeq(tmp_path, "workers", "--on", "dask=x", "--store", STORE)
    assert [given.settings.get("store") for given in sent] == [None, STORE]


def test_secrets_are_neither_sent_nor_printed(tmp_path: Path) -> None:
    for on in (("--on", "dask=x"), ("--on", "slurm", "--print")):
        for flag in (("--header", "X-Key: hunter2"), ("--proxy", "http://me:hunter2@proxy")):
            done = judgeq(tmp_path, "workers", *on, *flag, expect=2)
            assert "env:VARIABLE" in done.stderr
            assert "hunter2" not in done.stdout + done.stderr
    for name in ("slurm", "kubernetes"):
        text = judgeq(tmp_path, "workers", "--on", name, "--print", "--store", STORE).stdout
        assert "hunter2" not in text


def test_a_cluster_that_is_none_is_refused(tmp_path: Path) -> None:
    for flags, said in (
        (("--on", "slurm"), "--print"),
        (("--on", "dask=x", "--print"), "--print goes with"),
        (("--on", "htcondor"), "give dask="),
        (("--on", "slurm", "--print", "--time", "soon"), "--time soon"),
    ):
        assert said in judgeq(tmp_path, "workers", *flags, expect=2).stderr


NASTY = ("-d", "my $(touch x)'s `y`.csv", "-j", 'a"b', "--extra-body", '{"a": "x: y\\n- z"}')


def test_the_script_for_slurm_is_one_and_quotes_everything(tmp_path: Path) -> None:
    flags = ("-n", "7", "--time", "1-12:00:00", "-j", "gpt-5-mini", "--store", STORE, *NASTY)
    text = judgeq(tmp_path, "workers", "--on", "slurm", "--print", *flags).stdout
    script = tmp_path / "judgeq.sbatch"
    script.write_text(text)
    subprocess.run(["bash", "-n", str(script)], check=True)
    for line in ("array=1-7", "time=1-12:00:00", "signal=B:TERM@120"):
        assert f"#SBATCH --{line}\n" in text
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

    assert "OPENAI_API_KEY: set it" in ran().stderr
    done = ran(OPENAI_API_KEY="k")
    words = done.stdout.rstrip("\n").split("\n")
    assert words[:2] == ["postgresql://me@db.example/judgeq", "worker"]
    for word in ("gpt-5-mini", 'a"b', NASTY[1], "done"):
        assert word in words
    assert float(words[words.index("--max-hours") + 1]) == pytest.approx(36 - 300 / 3600, abs=0.001)
    assert not (tmp_path / "x").exists()


def test_the_manifest_for_kubernetes_is_one_and_quotes_everything(tmp_path: Path) -> None:
    flags = ("-n", "7", "-j", "gpt-5-mini", "--image", "a: b", "--timeout", "100", *NASTY)
    text = judgeq(tmp_path, "workers", "--on", "kubernetes", "--print", *flags).stdout
    yaml: Any = pytest.importorskip("yaml")
    job = yaml.safe_load(text)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (job["kind"], job["spec"]["parallelism"]) == ("Job", 7)
    assert "completions" not in job["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 130)
    assert (container["image"], container["args"][0]) == ("a: b", "worker")
    for word in ("gpt-5-mini", 'a"b', NASTY[1], '{"a":"x: y\\n- z"}'):
        assert word in container["args"]
    refs = {one["name"]: one["valueFrom"]["secretKeyRef"]["key"] for one in container["env"]}
    assert refs == {"JUDGEQ_STORE": "JUDGEQ_STORE", "OPENAI_API_KEY": "OPENAI_API_KEY"}


def test_the_words_of_a_worker_are_read_as_they_were_given(tmp_path: Path) -> None:
    given = Given(
        {
            "judge": ("a", "b"),
            "headers": ("X: env:Y",),
            "cache": False,
            "extra_body": {"x": [1]},
            "rpm": 5.0,
            "api_key_file": Path("key"),
        },
        ["t.csv"],
        ["run-1"],
    )
    line = shlex.join(scripts.words(given))
    assert line == (
        "run-1 --judge a --judge b --header 'X: env:Y' --no-cache --extra-body '{\"x\":[1]}' "
        "--rpm 5.0 --api-key-file key --dataset t.csv --exit-when done"
    )
    assert not re.search("postgres", line)
    with pytest.raises(UsageError):
        scripts.hours("00:00:10")
