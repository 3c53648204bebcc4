"""The statements that write and add up a run's ledger. Their rows are made in rows.py."""

from __future__ import annotations

INSERT_CALL = """
INSERT INTO calls (job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_VERDICT = "INSERT INTO verdicts (job, ranking, ties, score) VALUES (?, ?, ?, ?)"
UPDATE_JOB = """
UPDATE jobs SET
    state = CASE WHEN ? OR worker = ? THEN ? ELSE state END, unusable = unusable + ?,
    open = open - ?, at_risk = at_risk - ?, unbounded = unbounded - ?, error = coalesce(?, error)
WHERE id = ? AND state IN ('pending', 'running')
"""
RELEASE = """
UPDATE jobs SET open = open - ?, at_risk = at_risk - ?, unbounded = unbounded - ? WHERE id = ?
"""
BEGIN = """
UPDATE jobs SET
    attempts = attempts + 1, open = open + 1, at_risk = at_risk + ?, unbounded = unbounded + ?
WHERE id = ?
"""
CALLS = """
SELECT coalesce(sum(outcome <> 'cached'), 0),
    coalesce(sum(outcome NOT IN ('ok', 'cached')), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN input END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN cached END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN output END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN reasoning END), 0),
    coalesce(sum(CASE WHEN outcome <> 'cached' THEN cost END), 0.0),
    coalesce(sum(outcome <> 'cached' AND cost IS NULL), 0),
    coalesce(sum(outcome = 'cached'), 0),
    coalesce(sum(CASE WHEN outcome = 'cached' THEN cost END), 0.0)
FROM calls
"""
# A running job's last attempt may still be waited for.
ATTEMPTS = """
SELECT coalesce(sum(state = 'running' AND open > 0), 0),
    coalesce(sum(open - (state = 'running' AND open > 0)), 0),
    coalesce(sum(at_risk), 0), coalesce(sum(unbounded), 0)
FROM jobs
"""
REOPEN_JOBS = """
UPDATE jobs SET state = 'pending', unusable = 0, error = NULL WHERE state = ?
"""
