"""The statements of a store, in the SQL that SQLite (3.26 and later) and PostgreSQL both read.

In a statement `@.` stands before a table, `@run` is the number of the run, `@now` the time on the
store's clock, and `:name` a value; `@lock` locks the rows that are read until the transaction ends. A
`Bulk` statement is written for one row of values, and run for many; `@rows` is where they come from.

No RETURNING, UPDATE … FROM, FILTER and the like: clusters run Python 3.11 over SQLite 3.26. What a
database does its own way (claims, counts, many verdicts at once) is in sqlite.py and postgres/.
"""

from __future__ import annotations

from typing import NamedTuple


class Bulk(NamedTuple):
    """A statement for many rows, and the columns of a row, each with its type. An UPDATE finds its row
    by `id`, which is the first column."""

    columns: str
    text: str


NEVER = float("inf")
"""The end of a batch's lease."""
BATCH = (
    "judge api address form made jobs reserved tokens state remote status total done failed seen"
)
BATCH_COLUMNS = [*BATCH.split(), "expires", "cost", "answered", "error"]
"""What is kept of a batch, beside its name, which is its worker's."""
PERSON_COLUMNS = ["number", "name", "token", "quota", "state", "since"]
CHECK = "number items person repeats known lease ranking ties score seconds at"
CHECK_COLUMNS = CHECK.split()
CALL = "job attempt outcome input cached output reasoning cost latency reply at answered_by"
CALL_COLUMNS = [*CALL.split(), "model", "fingerprint"]
JOB = "id, items, judge, repeat, attempts, unusable, error"
"""A job, as rows.job reads it."""


def _listed(columns: list[str], mark: str = "") -> str:
    return ", ".join(mark + column for column in columns)


# The dataset's edge

N = "SELECT coalesce(max(row), -1) + 1 FROM @.items WHERE run = @run"
ITEMS = "SELECT row, id, gold, part FROM @.items WHERE run = @run ORDER BY row"
PUT_ITEM = Bulk(
    "row int, id text, gold float8, part text",
    "INSERT INTO @.items (run, row, id, gold, part) "
    "SELECT @run, :row, :id, :gold, :part @rows WHERE true "
    "ON CONFLICT (run, row) DO UPDATE SET gold = excluded.gold",
)
SUBSETS = "SELECT name, members FROM @.subsets WHERE run = @run ORDER BY name"
DROP_SUBSETS = "DELETE FROM @.subsets WHERE run = @run"
PUT_SUBSET = "INSERT INTO @.subsets (run, name, members) VALUES (@run, :name, :members)"
TOUCH = "UPDATE @.runs SET touched = @now WHERE run = @run"

# The scheduler

LEAD = """
INSERT INTO @.lead (run, epoch, holder, until) VALUES (@run, 1, :holder, @now + :ttl)
ON CONFLICT (run) DO UPDATE SET epoch = lead.epoch + 1, holder = excluded.holder, until = excluded.until
WHERE lead.until < @now OR lead.holder = excluded.holder
"""
LEADER = "SELECT epoch, holder, until, until >= @now FROM @.lead WHERE run = @run"
RENEW_LEAD = "UPDATE @.lead SET until = @now + :ttl WHERE run = @run AND epoch = :epoch"
END_LEAD = "UPDATE @.lead SET until = 0 WHERE run = @run AND holder = :holder"
PLANNED = """
SELECT coalesce(max(round), 0), coalesce(max(last), -1) + 1,
    (SELECT epoch FROM @.rounds WHERE run = @run AND round = :round)
FROM @.rounds WHERE run = @run
"""
INSERT_ROUND = """
INSERT INTO @.rounds (run, round, first, last, epoch, active)
VALUES (@run, :round, :first, :last, :epoch, :active)
"""
LAST_AGAIN = """
SELECT coalesce(min(round), 0), coalesce(min(first), 0) FROM @.rounds WHERE run = @run AND round < 0
"""
JOBS = ("jobs", ["id", "items", "state", "judge", "ordered", "repeat"])
"""The table and columns of new jobs, as rows.jobs makes them."""
VERDICTS = ("verdicts", ["job", "ranking", "ties", "score"])
"""Those of verdicts that were given elsewhere."""
SPAN = "SELECT first, last FROM @.rounds WHERE run = @run AND round = :round"
ENDS = "SELECT last FROM @.rounds WHERE run = @run AND round > 0 ORDER BY round"
ACTIVE = "SELECT active FROM @.rounds WHERE run = @run AND round = :round"
LEFT = f"""
SELECT {JOB} FROM @.jobs WHERE run = @run AND state = 'pending' AND id BETWEEN :first AND :last
UNION ALL
SELECT {JOB} FROM @.jobs WHERE run = @run AND state = 'running' AND id BETWEEN :first AND :last
ORDER BY id
"""  # noqa: S608
MATCHES = """
SELECT items, judge FROM @.jobs WHERE run = @run AND id BETWEEN :first AND :last ORDER BY id
"""
REOPEN = """
UPDATE @.jobs SET state = 'pending', unusable = 0, error = NULL
WHERE run = @run AND state = :state AND id >= 0
"""

# What the ledger adds up to

# A stranger's ledger may say that money came in; a cap must not grow by it. Dollars are added up as
# decimals where the database has them: their sum doesn't depend on the order of the rows.
CALLS = """
SELECT count(CASE WHEN outcome <> 'cached' THEN 1 END),
    count(CASE WHEN outcome NOT IN ('ok', 'unusable', 'duplicate', 'cached', 'skipped', 'undone')
          THEN 1 END),
    CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN input END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN cached END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN output END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN reasoning END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN outcome <> 'cached' AND cost > 0 THEN CAST(cost AS numeric) END), 0)
         AS float8),
    count(CASE WHEN outcome <> 'cached' AND cost IS NULL THEN 1 END),
    count(CASE WHEN outcome = 'cached' THEN 1 END),
    CAST(coalesce(sum(CASE WHEN outcome = 'cached' THEN CAST(cost AS numeric) END), 0) AS float8),
    count(CASE WHEN outcome = 'unusable' THEN 1 END),
    count(CASE WHEN outcome IN ('ok', 'unusable', 'duplicate') AND cost IS NULL
               AND input + cached + output = 0 THEN 1 END)
FROM @.calls WHERE run = @run AND job BETWEEN :first AND :last
"""
# A running job's last attempt may still be waited for.
ATTEMPTS = """
SELECT count(CASE WHEN state = 'running' AND open > 0 THEN 1 END),
    CAST(coalesce(sum(CASE WHEN state = 'running' AND open > 0 THEN open - 1
                           WHEN open > 0 THEN open END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN at_risk > 0 THEN at_risk END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN unbounded > 0 THEN unbounded END), 0) AS bigint)
FROM @.jobs WHERE run = @run AND (open > 0 OR at_risk > 0 OR unbounded > 0)
    AND id BETWEEN :first AND :last
"""
SPENT = """
SELECT j.id, j.items, j.judge, j.repeat, 0, 0, NULL,
    CAST(sum(CASE WHEN input > 0 THEN input ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN cached > 0 THEN cached ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN output > 0 THEN output ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN reasoning > 0 THEN reasoning ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN cost > 0 THEN CAST(cost AS numeric) ELSE 0 END) AS float8),
    count(CASE WHEN cost IS NULL THEN 1 END),
    CAST(sum(CASE WHEN outcome <> 'cached' AND latency > 0 THEN CAST(latency AS numeric) ELSE 0 END)
         AS float8)
FROM (SELECT * FROM @.calls WHERE run = @run ORDER BY id LIMIT :n) AS c
JOIN @.jobs j ON j.run = c.run AND j.id = c.job
WHERE c.outcome IN ('ok', 'unusable', 'cached') AND j.state IN ('done', 'invalid')
GROUP BY j.id, j.items, j.judge, j.repeat ORDER BY j.id
"""
CALLS_OF = f"""
SELECT id, {_listed(CALL_COLUMNS)} FROM @.calls WHERE run = @run AND job IN ({{}}) ORDER BY id
"""  # noqa: S608
ANSWERERS = """
SELECT j.judge, c.model, c.fingerprint, count(*)
FROM @.calls c JOIN @.jobs j ON j.run = c.run AND j.id = c.job
WHERE c.run = @run AND c.model IS NOT NULL AND c.job BETWEEN :first AND :last
GROUP BY j.judge, c.model, c.fingerprint ORDER BY min(c.id)
"""
MODELS = """
SELECT job, model FROM @.calls WHERE run = @run AND outcome IN ('ok', 'cached') ORDER BY id
"""
LAST_FAILURE = """
SELECT id, reply, at, (SELECT count(*) FROM @.calls WHERE run = @run AND id > coalesce(
    (SELECT max(id) FROM @.calls WHERE run = @run AND outcome IN ('ok', 'cached', 'unusable')), 0))
FROM @.calls WHERE run = @run AND job >= 0 AND outcome NOT IN (
    'ok', 'cached', 'unusable', 'duplicate', 'stepped_down', 'skipped', 'undone')
ORDER BY id DESC LIMIT 1
"""
# Pairs of numbers that are equal in all that judgeq writes, as vetting.ADDED_UP names them. The floats
# are sums that no number of a stranger's can overflow.
ADDED_UP = """
SELECT calls, made, jobs, planned, answered, done, verdicts, answered, sent, ended,
    tokens, made_tokens, cost, made_cost, at_risk, made_at_risk
FROM (SELECT count(*) AS jobs, count(CASE WHEN j.state = 'done' THEN 1 END) AS done,
          count(CASE WHEN j.state = 'done' THEN v.job END) AS answered,
          coalesce(sum(CAST(j.attempts AS float8) - j.open), 0.0) AS ended,
          coalesce(sum(CAST(j.at_risk AS float8)), 0.0) AS at_risk
      FROM @.jobs j LEFT JOIN @.verdicts v ON v.run = j.run AND v.job = j.id
      WHERE j.run = @run) AS j,
    (SELECT coalesce(sum(CAST(last AS float8) - first + 1), 0.0) AS planned
     FROM @.rounds WHERE run = @run) AS r,
    (SELECT count(*) AS verdicts FROM @.verdicts WHERE run = @run) AS v,
    (SELECT count(*) AS calls,
         count(CASE WHEN outcome <> 'cached' AND answered_by IS NULL THEN 1 END) AS sent,
         coalesce(sum(CAST(input AS float8) + cached + output + reasoning), 0.0) AS tokens,
         coalesce(sum(CASE WHEN cost > 0 THEN cost END), 0.0) AS cost
     FROM @.calls WHERE run = @run) AS c,
    (SELECT coalesce(sum(CAST(calls AS float8) + hits), 0.0) AS made,
         coalesce(sum(CAST(tokens AS float8)), 0.0) AS made_tokens,
         coalesce(sum(CAST(spent AS float8) + saved), 0.0) / 1e9 AS made_cost,
         coalesce(sum(CAST(at_risk AS float8)), 0.0) AS made_at_risk
     FROM @.workers WHERE run = @run) AS w
"""

# The workers

REGISTER = """
INSERT INTO @.workers (run, name, host, pid, since, seen, until, again)
VALUES (@run, :name, :host, :pid, @now, @now, @now + :lease, :again)
ON CONFLICT (run, name) DO UPDATE SET seen = excluded.seen
"""
WORKER = "SELECT worker FROM @.workers WHERE run = @run AND name = :name"
# Whoever holds this row's lock is not found dead. What it has of the cap, if there is one.
FENCE = """
SELECT CASE WHEN (SELECT cap FROM @.runs WHERE run = @run) IS NULL THEN NULL ELSE free END
FROM @.workers WHERE worker = :worker AND NOT over @lock
"""
# An attempt that was begun already, by a commit whose answer was lost, isn't begun again.
BEGIN = Bulk(
    "id bigint, number int, at_risk bigint, unbounded int, holder bigint, heir bigint",
    "UPDATE @.jobs SET attempts = attempts + 1, open = open + 1, at_risk = at_risk + :at_risk, "
    "unbounded = unbounded + :unbounded, worker = :heir "
    "@rows WHERE run = @run AND id = :id AND state = 'running' AND worker = :holder "
    "AND attempts < :number",
)
STILL_OURS = """
SELECT id, attempts FROM @.jobs WHERE run = @run AND state = 'running' AND worker = :worker
"""
_UNKNOWN = (
    "(SELECT count(*) FROM @.calls WHERE run = @run AND job = :id AND attempt = :attempt "
    "AND outcome <> 'cached' AND answered_by IS NULL) = 0"
)
# An outcome changes its job while that is open; else its calls are paid duplicates. One whose last
# attempt is known was settled before; a final one has then closed its job.
SETTLE = Bulk(
    "id bigint, attempt int, worker bigint, final boolean, new_state text, unusable int, open int, "
    "at_risk bigint, unbounded int, error text",
    "UPDATE @.jobs SET state = CASE "  # noqa: S608
    "WHEN :final OR (worker = :worker AND :new_state <> 'running') THEN :new_state ELSE state END, "
    "unusable = unusable + :unusable, open = open - :open, "
    "at_risk = at_risk - :at_risk, unbounded = unbounded - :unbounded, "
    "error = coalesce(:error, error) "
    "@rows WHERE run = @run AND id = :id AND state IN ('pending', 'running') "
    f"AND (:final OR {_UNKNOWN})",
)
RELEASE = Bulk(
    "id bigint, attempt int, open int, at_risk bigint, unbounded int",
    "UPDATE @.jobs SET open = open - :open, at_risk = at_risk - :at_risk, "  # noqa: S608
    f"unbounded = unbounded - :unbounded @rows WHERE run = @run AND id = :id AND {_UNKNOWN}",
)
INSERT_CALL = Bulk(
    "job bigint, attempt int, outcome text, input bigint, cached bigint, output bigint, "
    "reasoning bigint, cost float8, latency float8, reply text, at float8, answered_by int, "
    "model text, fingerprint text, worker bigint",
    f"INSERT INTO @.calls (run, {_listed(CALL_COLUMNS)}, worker) "
    f"SELECT @run, {_listed(CALL_COLUMNS, ':')}, :worker @rows WHERE true",
)
INSERT_VERDICT = Bulk(
    "job bigint, ranking bytea, ties bytea, score float8, answered_by int",
    "INSERT INTO @.verdicts (run, job, ranking, ties, score, answered_by) "
    "SELECT @run, :job, :ranking, :ties, :score, :answered_by @rows WHERE true",
)
WORKED = """
UPDATE @.workers SET seen = @now,
    until = CASE WHEN over OR until > @now + :lease THEN until ELSE @now + :lease END,
    done = done + :done, calls = calls + :calls, errors = errors + :errors, tokens = tokens + :tokens,
    hits = hits + :hits, saved = saved + :saved, spent = spent + :spent, at_risk = at_risk + :at_risk,
    free = CASE WHEN over OR until = :never OR (SELECT cap FROM @.runs WHERE run = @run) IS NULL
                THEN free ELSE free + :free END
WHERE worker = :worker
"""
RENEW = """
UPDATE @.workers SET seen = @now,
    until = CASE WHEN until > @now + :lease THEN until ELSE @now + :lease END
WHERE worker = :worker AND NOT over
"""
# The jobs of workers that are over.
GIVE_BACK = """
UPDATE @.jobs SET state = 'pending' WHERE run = @run AND state = 'running' AND worker IN (
    SELECT worker FROM @.workers WHERE run = @run AND over)
"""
LEAVE = "UPDATE @.workers SET over = true, until = @now WHERE worker = :worker"
PUT_BACK = """
UPDATE @.jobs SET state = 'pending'
WHERE run = @run AND state = 'running' AND worker = :worker AND id {}
"""

# Batches

REGISTER_BATCH = """
INSERT INTO @.workers (run, name, since, seen, until) VALUES (@run, :name, @now, @now, :never)
ON CONFLICT (run, name) DO NOTHING
"""
FORGET_WORKER = "DELETE FROM @.workers WHERE worker = :worker"
HANDED_OVER = "UPDATE @.workers SET handed = handed + :risk WHERE worker = :worker"
INSERT_BATCH = (
    f"INSERT INTO @.batches (run, worker, {_listed(BATCH_COLUMNS)}, sent) "  # noqa: S608
    f"VALUES (@run, :worker, {_listed(BATCH_COLUMNS, ':')}, :sent)"
)
NOTE_BATCH = f"""
UPDATE @.batches SET {", ".join(f"{column} = :{column}" for column in BATCH_COLUMNS)}
WHERE run = @run AND worker = (SELECT worker FROM @.workers WHERE run = @run AND name = :name)
"""  # noqa: S608
IS_BATCH = """
SELECT worker FROM @.workers WHERE run = @run AND name = :name AND until = :never AND NOT over
"""
BATCHES = f"""
SELECT w.name, {_listed(BATCH_COLUMNS, "b.")}, w.until, coalesce(held.jobs, 0),
    coalesce(held.at_risk, 0), coalesce(held.unbounded, 0)
FROM @.batches b LEFT JOIN @.workers w ON w.worker = b.worker AND w.run = b.run
LEFT JOIN (
    SELECT worker, count(*) AS jobs,
        CAST(sum(CASE WHEN at_risk > 0 THEN at_risk ELSE 0 END) AS bigint) AS at_risk,
        CAST(sum(CASE WHEN unbounded > 0 THEN unbounded ELSE 0 END) AS bigint) AS unbounded
    FROM @.jobs WHERE run = @run AND state = 'running' GROUP BY worker) held ON held.worker = b.worker
WHERE b.run = @run ORDER BY b.worker
"""  # noqa: S608
SENT = """
SELECT b.worker, sent FROM @.batches b JOIN @.workers w ON w.worker = b.worker AND w.run = b.run
WHERE b.run = @run AND w.name = :name
"""
OF_BATCH = f"""
SELECT {JOB} FROM @.jobs WHERE run = @run AND state = 'running' AND worker = :worker ORDER BY id
"""  # noqa: S608

# People

PEOPLE = f"SELECT {_listed(PERSON_COLUMNS)} FROM @.people WHERE run = @run ORDER BY number"  # noqa: S608
SAME_PERSON = """
SELECT number FROM @.people WHERE run = @run AND number <> :number AND (name = :name OR token = :token)
"""
PUT_PERSON = f"""
INSERT INTO @.people (run, {_listed(PERSON_COLUMNS)}) VALUES (@run, {_listed(PERSON_COLUMNS, ":")})
ON CONFLICT (run, number) DO UPDATE SET name = excluded.name, token = excluded.token,
    quota = excluded.quota, state = excluded.state
WHERE people.since = excluded.since
"""  # noqa: S608
HANDED = "SELECT person, lease, at, job, checking FROM @.handed WHERE run = @run ORDER BY person"
HAND_OUT = """
INSERT INTO @.handed (run, person, lease, at, job, checking)
SELECT @run, CAST(:person AS int), CAST(:lease AS text), CAST(:at AS float8), CAST(:job AS bigint),
    CAST(:check AS int)
WHERE :job IS NULL OR EXISTS (
    SELECT 1 FROM @.jobs WHERE run = @run AND id = CAST(:job AS bigint) AND state = 'pending')
ON CONFLICT DO NOTHING
"""
TAKE_BACK = "DELETE FROM @.handed WHERE run = @run AND lease = :lease"
# What a person took back is no verdict any more; that they gave it stays.
RETRACT = "DELETE FROM @.verdicts WHERE run = @run AND job = :job AND answered_by = :judge"
UNDO = """
UPDATE @.calls SET outcome = 'undone'
WHERE run = @run AND job = :job AND answered_by = :judge AND outcome = 'ok'
"""
OPEN_AGAIN = "UPDATE @.jobs SET state = 'pending' WHERE run = @run AND id = :job AND state = 'done'"
SAID = f"""
SELECT j.id, j.items, j.judge, j.repeat, 0, 0, NULL, {_listed(CALL_COLUMNS, "c.")}
FROM @.calls c JOIN @.jobs j ON j.run = c.run AND j.id = c.job
WHERE c.run = @run AND c.answered_by IS NOT NULL ORDER BY c.id
"""  # noqa: S608
CHECKS = f"SELECT {_listed(CHECK_COLUMNS)} FROM @.checks WHERE run = @run ORDER BY number"  # noqa: S608
PUT_CHECK = f"""
INSERT INTO @.checks (run, {_listed(CHECK_COLUMNS)}) VALUES (@run, {_listed(CHECK_COLUMNS, ":")})
ON CONFLICT (run, number) DO UPDATE SET person = excluded.person, lease = excluded.lease,
    ranking = excluded.ranking, ties = excluded.ties, score = excluded.score,
    seconds = excluded.seconds, at = excluded.at
"""  # noqa: S608
