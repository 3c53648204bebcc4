"""What a run does when there is no room for more open files, and when its own go away."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from judgeq import files
from judgeq.errors import ConnectionFailedError
from tests.cli import command, environment, only_run, query
from tests.mock import mock, stats
from tests.test_openai_chat import ask, backend, saying
from tests.web import answering

pytestmark = pytest.mark.usefixtures("rated_by_elo")

resource = pytest.importorskip("resource", reason="there is no ulimit here")
JOBS = 600


def judging(folder: Path, url: str, *flags: str) -> tuple[str, ...]:
    """The flags of a run of 1,200 texts in 600 pairs, the replies of which aren't kept."""
    (folder / "t.csv").write_text("text\n" + "".join(f"text {i}\n" for i in range(1200)))
    return (
        *("run", "-d", "t.csv", "--prompt", "bias", "--judge", "m", "--base-url", url),
        *("--strategy", "pairwise1", "--no-cache", *flags),
    )


def test_the_soft_limit_is_raised_as_far_as_it_is_needed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))
    try:
        assert files.room_for(100) == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100 + files.RESERVE, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", [pytest.param("-Sn", marks=pytest.mark.long), "-n"])
def test_256_open_files_are_enough_for_the_default_concurrency(tmp_path: Path, kind: str) -> None:
    with mock(tmp_path, "--latency", "1", "--rpm", "100000") as url:
        flags = judging(tmp_path, url)
        done = subprocess.run(
            ["sh", "-c", f'ulimit {kind} 256 && exec "$@"', "sh", *command(*flags)],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        seen = stats(url)
    assert done.returncode == 0, done.stderr
    assert seen["requests"] == JOBS
    assert "retries" not in done.stderr.replace("0 retries", "")
    assert ("few files open at once" in done.stderr) == (kind == "-n")
    assert (seen["most_in_flight"] > 200) == (kind == "-Sn")
    assert 100 < seen["most_in_flight"] <= 256
    assert query(only_run(tmp_path), "SELECT count(*), sum(outcome = 'ok') FROM calls") == [
        (JOBS, JOBS)
    ]


@contextmanager
def full() -> Iterator[None]:
    """No more files can be opened while inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/dev/fd").iterdir())) + 8, hard))
    opened: list[int] = []
    try:
        with suppress(OSError):
            while True:
                opened.append(os.dup(0))
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_no_room_for_a_connection_means_fewer_at_once_and_is_no_failure_of_the_server() -> (
    None
):
    async with answering(saying({})) as url, backend(url) as made:
        with full(), pytest.raises(ConnectionFailedError, match="Too many open") as caught:
            await ask(made)
    assert (caught.value.cost, caught.value.unavailable) == (0.0, True)
    assert caught.value.too_many


# Files that go away
