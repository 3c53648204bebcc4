"""Scripts by which SLURM and Kubernetes start workers: complete, commented, and without a secret.

Everything that a user gave is quoted for the shell or for YAML.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from judgeq.engine.joining import Given
from judgeq.errors import UsageError
from judgeq.settings import SETTINGS

EARLY = 300.0
"""Seconds before a job's time is over by which its worker has left; a tenth of it at most."""
_TIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")


class Plan(NamedTuple):
    """How many workers, with which words after `judgeq worker`; the store's address without its
    password (None: it comes from the environment there), and the names of the variables
    with keys. `grace` seconds are enough for a call in flight to end."""

    n: int
    words: Sequence[str]
    store: str | None
    keys: Sequence[str]
    grace: float


def words(given: Given) -> list[str]:
    """The arguments of `judgeq worker` that say what was given, but for the store's address and
    --max-hours."""
    said = list(given.runs)
    for name, value in given.settings.items():
        if name != "store":
            said += _flag(name, value)
    for path in given.datasets:
        said += ["--dataset", path]
    return [*said, "--exit-when", given.exit_when or "done"]


def _flag(name: str, value: Any) -> list[str]:
    setting = SETTINGS[name]
    if setting.type is bool:
        return [setting.flag] if value != setting.default else []
    if isinstance(value, Mapping):
        return [setting.flag, orjson.dumps(value).decode()]
    if isinstance(value, tuple) and setting.repeatable:
        return [word for part in value for word in (setting.flag, part)]
    if isinstance(value, tuple):
        return [setting.flag, ",".join(value)]
    return [setting.flag, str(value)]


def hours(time: str) -> float:
    """The hours that a worker may take of a job's time, [DAYS-]HH:MM:SS: it leaves before that is over.

    Raises UsageError for what is no time.
    """
    given = _TIME.fullmatch(time)
    seconds = 0
    if given is not None:
        days, *rest = (int(part or 0) for part in given.groups())
        seconds = days * 86_400 + rest[0] * 3600 + rest[1] * 60 + rest[2]
    if seconds < 60:
        raise UsageError(f"--time {time}: give [DAYS-]HH:MM:SS, of a minute at least.")
    return round((seconds - min(EARLY, seconds / 10)) / 3600, 3)


def slurm(plan: Plan, time: str) -> str:
    """A script for `sbatch`: an array job of which each task is a worker."""
    line = shlex.join(["judgeq", "worker", *plan.words, "--max-hours", f"{hours(time):g}"])
    store = ': "${JUDGEQ_STORE:?set it to the store: postgresql://user@host/database}"'
    if plan.store is not None:
        store = f'[ -n "${{JUDGEQ_STORE:-}}" ] || export JUDGEQ_STORE={shlex.quote(plan.store)}'
    key = "".join(f': "${{{key}:?set it to the key of the server}}"\n' for key in plan.keys)
    return f"""#!/bin/bash
# {plan.n} workers of judgeq, as the tasks of one array job.
#
#   sbatch judgeq.sbatch                    starts them; again, when their time was over: they go on
#   scancel --signal=TERM --full JOB_ID     lets the calls in flight finish and gives the jobs back
#   judgeq status RUN --store …             shows how far the run is
#
# They answer what `judgeq run --store … --workers 0` plans: start that anywhere, for instance on the
# login node or in a job of its own. Each exits when the runs are finished. A task that is preempted
# gives its jobs back, and begins anew.
#SBATCH --job-name=judgeq
#SBATCH --array=1-{plan.n}
#SBATCH --time={time}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --output=judgeq-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
# SIGTERM to the worker itself, if it should still be there two minutes before the time is over.
#SBATCH --signal=B:TERM@120

set -euo pipefail

# The environment in which judgeq is installed (pip install 'judgeq[postgres]'):
# source /path/to/venv/bin/activate

# sbatch hands your environment on. Nothing secret stands in this file: the store's password comes
# from ~/.pgpass, $PGPASSFILE or $PGPASSWORD, the key from the variable that is checked here.
{store}
{key}
# exec: the signal reaches the worker. It leaves by itself before the time is over (--max-hours).
exec {line}
"""


def kubernetes(plan: Plan, image: str) -> str:
    """A manifest for `kubectl apply`: a Job of which each pod is a worker."""
    arguments = "\n".join(f"            - {_yaml(word)}" for word in ("worker", *plan.words))
    secrets = "".join(
        f"""
            - name: {key}
              valueFrom:
                secretKeyRef: {{name: judgeq, key: {key}}}"""
        for key in plan.keys
    )
    literal = "".join(f" \\\n#     --from-literal={key}=…" for key in plan.keys)
    return f"""# {plan.n} workers of judgeq, as the pods of one Job.
#
#   kubectl create secret generic judgeq \\
#     --from-literal=JUDGEQ_STORE=postgresql://user:password@host/database{literal}
#   kubectl apply -f judgeq-workers.yaml
#   kubectl delete job judgeq-workers       stops them: calls in flight finish, jobs are given back
#
# They answer what `judgeq run --store … --workers 0` plans: start that anywhere.
apiVersion: batch/v1
kind: Job
metadata:
  name: judgeq-workers
spec:
  # No `completions`: a pod that exits with 0 says that the runs are finished, and no other is started.
  parallelism: {plan.n}
  backoffLimit: {max(6, 5 * plan.n)}
  # What is kept of the Job when it is over, in seconds.
  ttlSecondsAfterFinished: 86400
  podFailurePolicy:
    rules:
      # A pod that was preempted, or whose node is drained, is no failure: another takes its place.
      - action: Ignore
        onPodConditions:
          - {{type: DisruptionTarget, status: "True"}}
      # 2 and 3: flags, or texts that don't fit, which another try doesn't mend.
      - action: FailJob
        onExitCodes: {{containerName: worker, operator: In, values: [2, 3]}}
  template:
    metadata:
      labels: {{app: judgeq-worker}}
    spec:
      restartPolicy: Never
      # SIGTERM comes first; so long a call in flight may take to end.
      terminationGracePeriodSeconds: {round(plan.grace)}
      containers:
        - name: worker
          # An image in which judgeq is installed: pip install 'judgeq[postgres]'
          image: {_yaml(image)}
          command: ["judgeq"]
          args:
{arguments}
          env:
            # Names of secrets; their values stand nowhere here.
            - name: JUDGEQ_STORE
              valueFrom:
                secretKeyRef: {{name: judgeq, key: JUDGEQ_STORE}}{secrets}
          resources:
            requests: {{cpu: 250m, memory: 512Mi}}
            limits: {{memory: 2Gi}}
"""


def _yaml(text: str) -> str:
    """A string in YAML, which takes one of JSON."""
    return json.dumps(text)
