"""The statements of a PostgreSQL store, as `Link` reads them: tables as `@.`, the time as `@now`.

Those of the workers take arrays, a column each, so that many jobs are one statement. Sums of dollars
are sums of decimals (each cost with 15 digits), which don't depend on the order of the rows.
"""

from __future__ import annotations

# The scheduler

LEAD = """
INSERT INTO @.lead AS l (run, epoch, holder, until)
VALUES (%s, 1, %s, @now + make_interval(secs => %s))
ON CONFLICT (run) DO UPDATE SET epoch = l.epoch + 1, holder = excluded.holder, until = excluded.until
WHERE l.until < @now OR l.holder = excluded.holder
RETURNING epoch
"""
LEADER = """
SELECT epoch, holder, extract(epoch FROM until)::float8, until >= @now FROM @.lead WHERE run = %s"""
RENEW_LEAD = """
UPDATE @.lead SET until = @now + make_interval(secs => %s) WHERE run = %s AND epoch = %s
RETURNING epoch
"""
END_LEAD = "UPDATE @.lead SET until = '-infinity' WHERE run = %s AND strpos(holder, %s) > 0"
PLANNED = """
SELECT coalesce(max(round), 0), coalesce(max(last), -1) + 1,
    (SELECT epoch FROM @.rounds WHERE run = %s AND round = %s) FROM @.rounds WHERE run = %s
"""
INSERT_ROUND = "INSERT INTO @.rounds VALUES (%s, %s, %s, %s, %s, %s, %s)"
COPY_MATCHES = "COPY @.matches (run, id, items, judge, ordered, repeat) FROM STDIN"
INSERT_JOBS = """
INSERT INTO @.jobs (run, id, judge)
SELECT run, id, judge FROM @.matches WHERE run = %s AND id BETWEEN %s AND %s ORDER BY id
"""
TOUCH = "UPDATE @.runs SET touched = now() WHERE run = %s"
SPAN = "SELECT first, last FROM @.rounds WHERE run = %s AND round = %s"
# All that isn't pending, running or lost is done: that the done ones needn't be counted.
COUNTS = """
SELECT (SELECT coalesce(sum(last - first + 1), 0)::bigint FROM @.rounds
        WHERE run = %(run)s AND first BETWEEN %(first)s AND %(last)s),
    (SELECT count(*) FROM @.jobs
     WHERE run = %(run)s AND state = 'pending' AND id BETWEEN %(first)s AND %(last)s),
    (SELECT count(*) FROM @.jobs
     WHERE run = %(run)s AND state = 'running' AND id BETWEEN %(first)s AND %(last)s),
    (SELECT count(*) FILTER (WHERE state = 'invalid') FROM @.jobs
     WHERE run = %(run)s AND state IN ('invalid', 'failed') AND id BETWEEN %(first)s AND %(last)s),
    (SELECT count(*) FILTER (WHERE state = 'failed') FROM @.jobs
     WHERE run = %(run)s AND state IN ('invalid', 'failed') AND id BETWEEN %(first)s AND %(last)s)
"""
LEFT = """
WITH open AS (
    SELECT id FROM @.jobs
    WHERE run = %(run)s AND state = 'pending' AND id BETWEEN %(first)s AND %(last)s
    UNION ALL
    SELECT id FROM @.jobs
    WHERE run = %(run)s AND state = 'running' AND id BETWEEN %(first)s AND %(last)s)
SELECT m.id, m.items, m.judge, m.repeat, 0, 0, NULL FROM @.matches m
WHERE m.run = %(run)s AND m.id IN (SELECT id FROM open) ORDER BY m.id
"""
# Columns are packed by the database: a row for each would take 20 times as long to read.
MATCHES = """
SELECT count(*), max(id), string_agg(items, ''), string_agg(int4send(length(items)), ''),
    string_agg(int4send(judge), '')
FROM (SELECT id, items, judge FROM @.matches
      WHERE run = %s AND id BETWEEN %s AND %s ORDER BY id LIMIT %s) AS block
"""
VERDICTS = """
SELECT count(*), max(job), string_agg(int8send(job), ''), string_agg(ranking, ''),
    string_agg(int4send(length(ranking)), ''), string_agg(items, ''),
    string_agg(int4send(length(items)), ''),
    string_agg(coalesce(ties, decode(repeat('00', length(ranking) / 4), 'hex')), ''),
    string_agg(float8send(coalesce(score, 'nan')), ''), string_agg(int4send(judge), ''),
    string_agg(boolsend(ordered), '')
FROM (SELECT v.job, v.ranking, v.ties, v.score, m.items, m.ordered,
             coalesce(v.answered_by, m.judge) AS judge
      FROM @.verdicts v JOIN @.matches m ON m.run = v.run AND m.id = v.job
      WHERE v.run = %s AND v.job BETWEEN %s AND %s ORDER BY v.job LIMIT %s) AS block
"""
# A stranger's ledger may say that money came in; a cap must not grow by it.
CALLS = """
SELECT count(*) FILTER (WHERE outcome <> 'cached'),
    count(*) FILTER (
        WHERE outcome NOT IN ('ok', 'unusable', 'duplicate', 'cached', 'skipped', 'undone')),
    coalesce(sum(input) FILTER (WHERE outcome <> 'cached'), 0)::bigint,
    coalesce(sum(cached) FILTER (WHERE outcome <> 'cached'), 0)::bigint,
    coalesce(sum(output) FILTER (WHERE outcome <> 'cached'), 0)::bigint,
    coalesce(sum(reasoning) FILTER (WHERE outcome <> 'cached'), 0)::bigint,
    coalesce(sum(greatest(cost, 0)::numeric) FILTER (WHERE outcome <> 'cached'), 0)::float8,
    count(*) FILTER (WHERE outcome <> 'cached' AND cost IS NULL),
    count(*) FILTER (WHERE outcome = 'cached'),
    coalesce(sum(cost::numeric) FILTER (WHERE outcome = 'cached'), 0)::float8,
    count(*) FILTER (WHERE outcome = 'unusable'),
    count(*) FILTER (WHERE outcome IN ('ok', 'unusable', 'duplicate') AND cost IS NULL
                     AND input + cached + output = 0)
FROM @.calls WHERE run = %s
"""
# As store/damage.py has it for a file; workers know what they spent, and of tokens nobody does.
ADDED_UP = """
SELECT jobs, planned::float8, done, answered, verdicts, ended::float8, sent, calls, made::bigint,
    0.0::float8, 0.0::float8, cost / 1e9, spent::float8 / 1e9
FROM (SELECT count(*) AS jobs, count(*) FILTER (WHERE j.state = 'done') AS done,
          count(v.job) FILTER (WHERE j.state = 'done') AS answered,
          coalesce(sum(j.attempts - j.open), 0) AS ended
      FROM @.jobs j LEFT JOIN @.verdicts v ON v.run = j.run AND v.job = j.id
      WHERE j.run = %(run)s) AS j,
    (SELECT coalesce(sum(last - first + 1), 0) AS planned FROM @.rounds WHERE run = %(run)s) AS r,
    (SELECT count(*) AS verdicts FROM @.verdicts WHERE run = %(run)s) AS v,
    (SELECT count(*) FILTER (WHERE outcome <> 'cached') AS calls,
         count(*) FILTER (WHERE outcome <> 'cached' AND answered_by IS NULL) AS sent,
         coalesce(sum(ceil(greatest(cost, 0) * 1e9)) FILTER (WHERE outcome <> 'cached'), 0) AS cost
     FROM @.calls WHERE run = %(run)s) AS c,
    (SELECT coalesce(sum(calls), 0) AS made, coalesce(sum(spent), 0) AS spent
     FROM @.workers WHERE run = %(run)s) AS w
"""
# A running job's last attempt may still be waited for.
ATTEMPTS = """
SELECT coalesce(sum((state = 'running' AND open > 0)::int), 0)::bigint,
    coalesce(sum(greatest(open, 0) - (state = 'running' AND open > 0)::int), 0)::bigint,
    coalesce(sum(greatest(at_risk, 0)), 0)::bigint,
    coalesce(sum(greatest(unbounded, 0)), 0)::bigint
FROM @.jobs WHERE run = %s AND (open > 0 OR at_risk > 0 OR unbounded > 0)
"""
SPENT = """
SELECT m.id, m.items, m.judge, m.repeat, 0, 0, NULL, sum(greatest(c.input, 0))::bigint,
    sum(greatest(c.cached, 0))::bigint, sum(greatest(c.output, 0))::bigint,
    sum(greatest(c.reasoning, 0))::bigint, coalesce(sum(greatest(c.cost, 0)::numeric), 0)::float8,
    count(*) FILTER (WHERE c.cost IS NULL),
    coalesce(sum(greatest(c.latency, 0)::numeric) FILTER (WHERE c.outcome <> 'cached'), 0)::float8
FROM (SELECT * FROM @.calls WHERE run = %s ORDER BY id LIMIT %s) AS c
JOIN @.matches m ON m.run = c.run AND m.id = c.job JOIN @.jobs j ON j.run = c.run AND j.id = c.job
WHERE c.outcome IN ('ok', 'unusable', 'cached') AND j.state IN ('done', 'invalid')
GROUP BY m.id, m.items, m.judge, m.repeat ORDER BY m.id
"""
CALLS_OF = """
SELECT job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at,
    answered_by
FROM @.calls WHERE run = %s AND job = ANY(%s::bigint[]) ORDER BY id
"""
LAST_FAILURE = """
SELECT id, reply, at, (SELECT count(*) FROM @.calls WHERE run = %(run)s AND id > coalesce(
    (SELECT id FROM @.calls WHERE run = %(run)s AND outcome IN ('ok', 'cached', 'unusable')
     ORDER BY id DESC LIMIT 1), 0))
FROM @.calls
WHERE run = %(run)s AND outcome NOT IN (
    'ok', 'cached', 'unusable', 'duplicate', 'stepped_down', 'skipped', 'undone')
ORDER BY id DESC LIMIT 1
"""
REOPEN = """
WITH reopened AS (
    UPDATE @.jobs SET state = 'pending', unusable = 0, error = NULL
    WHERE run = %s AND state = ANY(%s) AND state IN ('invalid', 'failed') RETURNING id)
SELECT count(*) FROM reopened
"""

# The workers

# Their statements look up a few rows by an index, and join them by their hashes. While a round is worked
# on the tables' statistics are old, and the planner would choose otherwise: read all of a table.
BEGIN_WORK = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off
"""
REGISTER = """
INSERT INTO @.workers (run, name, host, pid, since, seen, until)
VALUES (%s, %s, %s, %s, @now, @now, @now + make_interval(secs => %s))
ON CONFLICT (run, name) DO UPDATE SET seen = excluded.seen RETURNING worker
"""
# Whoever holds this row's lock is not found dead.
FENCE = "SELECT worker FROM @.workers WHERE worker = %s AND NOT over FOR UPDATE"
CLAIM = """
WITH taken AS (
    UPDATE @.jobs AS j SET state = 'running', worker = %(worker)s
    WHERE j.run = %(run)s AND j.id = ANY(ARRAY(
        SELECT id FROM @.jobs WHERE run = %(run)s AND state = 'pending'
        AND (%(judges)s::int[] IS NULL OR judge = ANY(%(judges)s))
        ORDER BY id LIMIT %(n)s FOR UPDATE SKIP LOCKED))
    RETURNING j.id, j.attempts, j.unusable, j.error)
SELECT t.id, m.items, m.judge, m.repeat, t.attempts, t.unusable, t.error FROM taken t
LEFT JOIN (SELECT id, items, judge, repeat FROM @.matches
           WHERE run = %(run)s AND id = ANY(ARRAY(SELECT id FROM taken))) AS m ON m.id = t.id
ORDER BY t.id
"""
BEGIN = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::int[])
    AS g (job, n, at_risk, unbounded))
UPDATE @.jobs AS j SET attempts = j.attempts + g.n, open = j.open + g.n,
    at_risk = j.at_risk + g.at_risk, unbounded = j.unbounded + g.unbounded
FROM given g WHERE j.run = %s AND j.id = ANY(ARRAY(SELECT job FROM given)) AND j.id = g.job
AND j.state = 'running' AND j.worker = %s RETURNING j.id
"""
# A batch: see schema.py.
REGISTER_BATCH = """
INSERT INTO @.workers (run, name, since, seen, until) VALUES (%s, %s, @now, @now, 'infinity')
ON CONFLICT (run, name) DO NOTHING RETURNING worker
"""
BATCH = """
SELECT worker FROM @.workers WHERE run = %s AND name = %s AND until = 'infinity' AND NOT over
"""
# Most of what the worker has is handed over: all of it is read, and none of it is looked up.
HAND_OVER = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::int[])
    AS g (job, n, at_risk, unbounded))
UPDATE @.jobs AS j SET attempts = j.attempts + g.n, open = j.open + g.n,
    at_risk = j.at_risk + g.at_risk, unbounded = j.unbounded + g.unbounded, worker = %s
FROM given g WHERE j.run = %s AND j.id = g.job
AND j.state = 'running' AND j.worker = %s RETURNING j.id
"""
HANDED = "UPDATE @.workers SET handed = handed + %s WHERE worker = %s"
INSERT_BATCH = """
INSERT INTO @.batches (run, worker, judge, api, address, form, made, jobs, reserved, tokens, state,
                       remote, status, total, done, failed, seen, expires, cost, answered, error, sent)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
NOTE_BATCH = """
UPDATE @.batches AS b SET judge = %s, api = %s, address = %s, form = %s, made = %s, jobs = %s,
    reserved = %s, tokens = %s, state = %s, remote = %s, status = %s, total = %s, done = %s,
    failed = %s, seen = %s, expires = %s, cost = %s, answered = %s, error = %s
FROM @.workers w WHERE w.run = %s AND w.name = %s AND b.run = w.run AND b.worker = w.worker
RETURNING b.worker
"""
BATCHES = """
SELECT w.name, judge, api, address, form, made, jobs, b.reserved, tokens, state, remote, status, total,
    b.done, failed, b.seen, expires, cost, answered, error, coalesce(w.until = 'infinity', false),
    held.jobs_held, held.at_risk_held, held.unbounded_held
FROM @.batches b LEFT JOIN @.workers w ON w.worker = b.worker AND w.run = b.run
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs_held, coalesce(sum(greatest(j.at_risk, 0)), 0)::bigint AS at_risk_held,
        coalesce(sum(greatest(j.unbounded, 0)), 0)::bigint AS unbounded_held
    FROM @.jobs j WHERE j.run = b.run AND j.state = 'running' AND j.worker = b.worker) AS held
WHERE b.run = %s ORDER BY b.worker
"""
SENT = """
SELECT b.worker, sent FROM @.batches b JOIN @.workers w ON w.worker = b.worker AND w.run = b.run
WHERE b.run = %s AND w.name = %s
"""
OF_BATCH = """
SELECT m.id, m.items, m.judge, m.repeat, j.attempts, j.unusable, j.error FROM @.jobs j
JOIN @.matches m ON m.run = j.run AND m.id = j.id
WHERE j.run = %s AND j.state = 'running' AND j.worker = %s ORDER BY m.id
"""
# An outcome changes its job while that is open; else its calls are paid duplicates.
SETTLE = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::boolean[], %s::text[], %s::int[], %s::int[],
                         %s::bigint[], %s::int[], %s::text[])
    AS g (job, worker, answered, state, unusable, open, at_risk, unbounded, error)),
kept AS (
    UPDATE @.jobs AS j SET
        state = CASE WHEN g.answered OR (j.worker = g.worker AND g.state <> 'running')
                THEN g.state ELSE j.state END,
        unusable = j.unusable + g.unusable, open = j.open - g.open,
        at_risk = j.at_risk - g.at_risk, unbounded = j.unbounded - g.unbounded,
        error = coalesce(g.error, j.error)
    FROM given g WHERE j.run = %s AND j.id = ANY(ARRAY(SELECT job FROM given)) AND j.id = g.job
    AND j.state IN ('pending', 'running') RETURNING j.id),
late AS (
    UPDATE @.jobs AS j SET open = j.open - g.open, at_risk = j.at_risk - g.at_risk,
        unbounded = j.unbounded - g.unbounded
    FROM given g WHERE j.run = %s AND j.id = g.job AND j.id = ANY(ARRAY(
        SELECT job FROM given WHERE job NOT IN (SELECT id FROM kept)))),
called AS (
    INSERT INTO @.calls (run, job, attempt, outcome, input, cached, output, reasoning, cost, latency,
                         reply, at, answered_by, worker)
    SELECT %s, job, attempt,
        CASE WHEN outcome = 'cached' OR job IN (SELECT id FROM kept) THEN outcome
        ELSE 'duplicate' END,
        input, cached, output, reasoning, cost, latency, reply, at, answered_by, worker
    FROM unnest(%s::bigint[], %s::int[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
                %s::bigint[], %s::float8[], %s::float8[], %s::text[], %s::float8[], %s::int[],
                %s::bigint[])
    WITH ORDINALITY AS c (job, attempt, outcome, input, cached, output, reasoning, cost, latency,
                          reply, at, answered_by, worker, place) ORDER BY place)
INSERT INTO @.verdicts (run, job, ranking, ties, score, answered_by)
SELECT %s, job, ranking, ties, score, answered_by
FROM unnest(%s::bigint[], %s::bytea[], %s::bytea[], %s::float8[], %s::int[])
    AS v (job, ranking, ties, score, answered_by)
WHERE job IN (SELECT id FROM kept)
"""
# People: see store/people.py.
PEOPLE = """
SELECT number, name, token, quota, state, since FROM @.people WHERE run = %s ORDER BY number
"""
PUT_PERSON = """
INSERT INTO @.people AS people (run, number, name, token, quota, state, since)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (run, number) DO UPDATE SET name = excluded.name, token = excluded.token,
    quota = excluded.quota, state = excluded.state
WHERE people.since = excluded.since RETURNING number
"""
HANDED_OUT = "SELECT person, lease, at, job, checking FROM @.handed WHERE run = %s ORDER BY person"
HAND_OUT = """
INSERT INTO @.handed (run, person, lease, at, job, checking)
SELECT %(run)s, %(person)s, %(lease)s, %(at)s, %(job)s::bigint, %(check)s::int
WHERE %(job)s::bigint IS NULL OR EXISTS (
    SELECT 1 FROM @.jobs WHERE run = %(run)s AND id = %(job)s::bigint AND state = 'pending')
ON CONFLICT DO NOTHING RETURNING person
"""
TAKE_BACK = "DELETE FROM @.handed WHERE run = %s AND lease = %s RETURNING person"
RETRACT = """
WITH gone AS (DELETE FROM @.verdicts WHERE run = %(run)s AND job = %(job)s AND answered_by = %(judge)s
              RETURNING job),
called AS (UPDATE @.calls SET outcome = 'undone' WHERE run = %(run)s AND job IN (SELECT job FROM gone)
           AND answered_by = %(judge)s AND outcome = 'ok'),
opened AS (UPDATE @.jobs SET state = 'pending' WHERE run = %(run)s AND id IN (SELECT job FROM gone)
           AND state = 'done')
SELECT job FROM gone
"""
SAID = """
SELECT m.id, m.items, m.judge, m.repeat, 0, 0, NULL, c.job, c.attempt, c.outcome, c.input, c.cached,
    c.output, c.reasoning, c.cost, c.latency, c.reply, c.at, c.answered_by
FROM @.calls c JOIN @.matches m ON m.run = c.run AND m.id = c.job
WHERE c.run = %s AND c.answered_by IS NOT NULL ORDER BY c.id
"""
CHECKS = """
SELECT number, items, person, repeats, known, lease, ranking, ties, score, seconds, at FROM @.checks
WHERE run = %s ORDER BY number
"""
PUT_CHECK = """
INSERT INTO @.checks (run, number, items, person, repeats, known, lease, ranking, ties, score, seconds,
                      at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (run, number) DO UPDATE SET person = excluded.person, lease = excluded.lease,
    ranking = excluded.ranking, ties = excluded.ties, score = excluded.score,
    seconds = excluded.seconds, at = excluded.at
"""
WORKED = """
UPDATE @.workers AS w SET turn = greatest(w.turn, %s), seen = @now,
    until = CASE WHEN w.over THEN w.until ELSE greatest(w.until, @now + make_interval(secs => %s)) END,
    done = w.done + %s, calls = w.calls + %s, errors = w.errors + %s, spent = w.spent + %s,
    at_risk = w.at_risk + %s,
    free = CASE WHEN w.over OR w.until = 'infinity'
                OR (SELECT cap IS NULL FROM @.runs r WHERE r.run = w.run) THEN w.free
           ELSE w.free + %s END
WHERE w.worker = %s
"""
RENEW = """
UPDATE @.workers SET seen = @now, until = greatest(until, @now + make_interval(secs => %s))
WHERE worker = ANY(%s) AND NOT over
"""
PROCESSES = """
SELECT greatest(1, count(DISTINCT (host, pid)))::int FROM @.workers
WHERE NOT over AND until > @now AND until < 'infinity'
"""
# After a start of the server live workers are given time to say so. Who has its row locked is alive.
REAP = """
WITH dead AS (
    UPDATE @.workers SET over = true WHERE worker IN (
        SELECT worker FROM @.workers WHERE run = %s AND NOT over AND until < @now
        AND pg_postmaster_start_time() + make_interval(secs => %s) < @now
        ORDER BY worker FOR UPDATE SKIP LOCKED)
    RETURNING worker),
back AS (
    UPDATE @.jobs SET state = 'pending'
    WHERE run = %s AND state = 'running' AND worker IN (SELECT worker FROM dead) RETURNING id)
SELECT count(*) FROM back
"""
LEAVE = """
WITH ours AS (
    UPDATE @.workers SET over = true, until = @now WHERE worker = ANY(%s) RETURNING worker)
UPDATE @.jobs SET state = 'pending'
WHERE run = %s AND state = 'running' AND worker IN (SELECT worker FROM ours)
"""
TURN = "SELECT turn FROM @.workers WHERE worker = %s FOR UPDATE"
GIVE_BACK = """
UPDATE @.jobs SET state = 'pending'
WHERE run = %s AND state = 'running' AND worker = %s AND NOT id = ANY(%s::bigint[])
"""
STILL_OURS = """
SELECT id FROM @.jobs
WHERE run = %s AND state = 'running' AND worker = ANY(%s) AND id = ANY(%s::bigint[])
"""
# Calls are on the clocks of those that made them; the latest will do.
WORKERS = """
WITH latest AS MATERIALIZED (
    SELECT worker, at, outcome FROM @.calls WHERE run = %(run)s ORDER BY id DESC LIMIT 50000),
span AS (
    SELECT extract(epoch FROM @now)::float8 AS now, CASE WHEN count(*) < 50000 THEN 60
        ELSE extract(epoch FROM @now)::float8 - min(at) END AS seconds FROM latest),
made AS (
    SELECT worker, count(*) AS n FROM latest, span
    WHERE outcome <> 'cached' AND at > now - 60 GROUP BY worker)
SELECT w.worker, w.name, w.host, w.pid, extract(epoch FROM w.since)::float8,
    extract(epoch FROM w.seen)::float8, w.over, w.until < @now, w.done, w.calls, w.errors,
    (SELECT count(*) FROM @.jobs j WHERE j.run = w.run AND j.state = 'running' AND j.worker = w.worker),
    now, (coalesce(m.n, 0)
        / greatest(1, least(60, seconds, now - extract(epoch FROM w.since)::float8)))::float8,
    w.spent
FROM @.workers w CROSS JOIN span LEFT JOIN made m USING (worker)
WHERE w.run = %(run)s AND w.until < 'infinity' ORDER BY w.worker
"""
MONEY = """
SELECT (SELECT cap FROM @.runs WHERE run = %s), coalesce(sum(spent), 0)::bigint,
    coalesce(sum(at_risk), 0)::bigint,
    coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0)::bigint
FROM @.workers WHERE run = %s
"""
