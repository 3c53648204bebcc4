"""The tables of a store, the same in SQLite and in PostgreSQL.

A run's file holds one run, a PostgreSQL store many. Whoever changes TABLES raises VERSION: a file, or a
store, of another version is refused.
"""

from __future__ import annotations

VERSION = 14

# Row numbers are little-endian int32 in bytea, `ties` is one byte a slot: 1 for a
# tie with the one before it, 2 where the order of the two isn't known. `active` of a round says which
# items could be asked about in it, one bit an item, the first in the lowest bit. Times are seconds since
# the epoch on the store's clock, but for `calls.at`. Amounts of money are nano-dollars, but for `cost`.
#
# `part` is an item's group, within which alone it is compared.
#
# Of a job's attempts, `open` have no outcome yet. Those without a known cost, open or not, may have
# cost `at_risk` more, and `unbounded` of them an unknown amount. Of several judges `judge` is the one
# that is asked; `repeat` counts the jobs before it that ask it the same. `ordered` is false where the
# order presented isn't known (an import may say so). An attempt of a job has one call: what is settled
# again finds it. `answered_by` of a call or a verdict is the person who gave it, among all judges.
#
# A worker is one process's work on one run, for as long as its lease holds: `until`. It is `over` when
# it left or was found dead, and then never again: what it wants to begin or claim is refused. Its money:
# `spent` on calls whose cost is known, at most `at_risk` on those begun and without a known cost, `free`
# of the slice of the run's cap that it holds. A call that begins moves its bound from free to at_risk;
# its outcome moves that to spent, and the rest back to free. So the sum over all workers, without `free`
# of those that are over, never exceeds `cap`, and only giving a slice out or back changes it. `reserved`
# is 0 once the worker says that none of its slice may come back: nothing of it is in flight.
# What a worker spends on questions that are asked `again` is no part of what the cap holds.
# What a worker's calls came to (and its `hits` of the cache, which `saved` so much) is kept in the
# transactions that write them: a call that was removed or changed afterwards is missed (damage.py).
# A batch is a worker that never dies, under its own name alone: its `until` is infinity, which is how it
# is known. A batch gets its jobs from a worker: their bounds move from that one's free to the batch's
# at_risk, and into its `handed`, so that its own account of what it holds (RESERVE) adds up. What the
# outcomes of a batch leave of its at_risk is nobody's: it is the cap's again, for nobody spends from a
# batch's `free`. `sent` are its lines, packed (batches.py).
# A person's question is handed out by `handed`, and its job stays pending until it is answered: people
# are no workers. A check is no job: nothing waits for it, and no score knows it; one without a person is
# a known answer to ask for.
TABLES = """
CREATE TABLE @.runs (
    run {key}, name text NOT NULL UNIQUE, fingerprint text NOT NULL, info text NOT NULL,
    touched float8 NOT NULL DEFAULT 0, cap bigint);
CREATE TABLE @.lead (
    run int PRIMARY KEY REFERENCES @.runs ON DELETE CASCADE, epoch bigint NOT NULL, holder text NOT NULL,
    until float8 NOT NULL);
CREATE TABLE @.workers (
    worker {key}, run int NOT NULL REFERENCES @.runs ON DELETE CASCADE, name text NOT NULL,
    host text NOT NULL DEFAULT '', pid int NOT NULL DEFAULT 0, since float8 NOT NULL DEFAULT 0,
    seen float8 NOT NULL DEFAULT 0, until float8 NOT NULL, over boolean NOT NULL DEFAULT false,
    done bigint NOT NULL DEFAULT 0, calls bigint NOT NULL DEFAULT 0, errors bigint NOT NULL DEFAULT 0,
    tokens bigint NOT NULL DEFAULT 0, hits bigint NOT NULL DEFAULT 0, saved bigint NOT NULL DEFAULT 0,
    spent bigint NOT NULL DEFAULT 0, at_risk bigint NOT NULL DEFAULT 0, free bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL DEFAULT 0, handed bigint NOT NULL DEFAULT 0,
    again boolean NOT NULL DEFAULT false, UNIQUE (run, name));
CREATE TABLE @.items (
    run int NOT NULL, row int NOT NULL, id text NOT NULL, gold float8, part text,
    PRIMARY KEY (run, row)){clustered};
CREATE TABLE @.subsets (
    run int NOT NULL, name text NOT NULL, members bytea NOT NULL, PRIMARY KEY (run, name));
CREATE TABLE @.rounds (
    run int NOT NULL, round int NOT NULL, first bigint NOT NULL, last bigint NOT NULL,
    epoch bigint NOT NULL, active bytea NOT NULL, PRIMARY KEY (run, round));
CREATE TABLE @.jobs (
    run int NOT NULL, id {number}, items bytea NOT NULL, judge int NOT NULL DEFAULT 0,
    ordered boolean NOT NULL DEFAULT true, repeat int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'pending', attempts int NOT NULL DEFAULT 0,
    unusable int NOT NULL DEFAULT 0, open int NOT NULL DEFAULT 0, unbounded int NOT NULL DEFAULT 0,
    at_risk bigint NOT NULL DEFAULT 0, worker bigint, error text{key_of_id});
CREATE INDEX jobs_pending ON @.jobs (run, id) WHERE state = 'pending';
CREATE TABLE @.calls (
    id {counter}, run int NOT NULL, job bigint NOT NULL, attempt int NOT NULL, outcome text NOT NULL,
    input bigint NOT NULL, cached bigint NOT NULL, output bigint NOT NULL, reasoning bigint NOT NULL,
    cost float8, latency float8 NOT NULL, reply text, at float8 NOT NULL, answered_by int,
    model text, fingerprint text, worker bigint NOT NULL);
CREATE UNIQUE INDEX calls_once ON @.calls (run, job, attempt)
    WHERE outcome <> 'cached' AND answered_by IS NULL;
CREATE TABLE @.verdicts (
    run int NOT NULL, job {number}, ranking bytea NOT NULL, ties bytea, score float8,
    answered_by int{key_of_job});
CREATE TABLE @.batches (
    run int NOT NULL, worker bigint NOT NULL, judge int NOT NULL, api text NOT NULL,
    address text NOT NULL, form text NOT NULL, made float8 NOT NULL, jobs int NOT NULL, reserved float8,
    tokens float8 NOT NULL, state text NOT NULL, remote text, status text NOT NULL, total int NOT NULL,
    done int NOT NULL, failed int NOT NULL, seen float8, expires float8, cost float8 NOT NULL,
    answered int NOT NULL, error text, sent bytea NOT NULL, PRIMARY KEY (run, worker));
CREATE TABLE @.people (
    run int NOT NULL, number int NOT NULL, name text NOT NULL, token bytea NOT NULL, quota int,
    state text NOT NULL, since float8 NOT NULL, PRIMARY KEY (run, number), UNIQUE (run, name),
    UNIQUE (run, token));
CREATE TABLE @.handed (
    run int NOT NULL, person int NOT NULL, lease text NOT NULL, at float8 NOT NULL, job bigint,
    checking int, PRIMARY KEY (run, person), UNIQUE (run, job), UNIQUE (run, checking));
CREATE TABLE @.checks (
    run int NOT NULL, number int NOT NULL, items bytea NOT NULL, person int, repeats bigint,
    known bytea NOT NULL, lease text NOT NULL, ranking bytea, ties bytea, score float8,
    seconds float8 NOT NULL, at float8 NOT NULL, PRIMARY KEY (run, number));
"""
OF_A_RUN = (
    *("items", "subsets", "rounds", "jobs", "calls", "verdicts", "batches", "people", "handed"),
    *("checks", "workers"),
)
"""The tables whose rows belong to a run, but for `lead`."""
