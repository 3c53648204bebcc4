"""How things are said: counts, money, time, and how far a run is."""

from __future__ import annotations

from collections.abc import Sequence

from judgeq.certainty import Certainty
from judgeq.escaping import plain
from judgeq.events import Placed
from judgeq.text import count, dotted, duration, money, rate, several
from judgeq.types import Batch
from judgeq.ui.progress import Progress


def rating(placed: Placed) -> str:
    """1503.7 → "1504", of Elo; 0.71 → "0.71", of a score."""
    return f"{placed.rating:.0f}" if placed.rating > 1 else f"{placed.rating:.2f}"


def start_line(progress: Progress) -> str:
    """What begins: the run, its judge and size, and what earlier sessions left."""
    state = "new run"
    if progress.resumed:
        counts = progress.of_run
        known = "resumed" if progress.left else "finished before"
        state = (
            f"{known}: {several(counts.done, 'job')} done, {count(counts.failed)} failed, "
            f"{count(counts.invalid)} invalid, {count(counts.left)} left"
        )
    run, judge = plain(progress.run, 200), plain(progress.judge, 200)
    extent = several(progress.rounds, "round")
    if progress.people:
        extent = several(progress.expected, "question")
    size = f"{several(progress.items, 'item')}, {extent}"
    return f"judgeq · {run} · {judge} · {size} · {state}"


def round_line(progress: Progress) -> str:
    """How a round ended."""
    done, failed, invalid = map(count, (progress.done, progress.failed, progress.invalid))
    jobs = f"{done} done, {failed} failed, {invalid} invalid"
    line = f"{progress.place(progress.rated)} rated · {jobs}"
    if progress.moved is not None:
        line += f" · ranking {moved(progress, progress.moved)}"
    known = progress.known
    if known is not None and known.round == progress.rated:
        line += f" · {'; '.join(certainty(known, people=progress.people))}"
    return line


def progress_line(progress: Progress, now: float) -> str:
    """How far the current round is."""
    if progress.people:
        answers = f"{count(progress.done)}/{count(progress.total)} answers"
        return " · ".join([answers, *people(progress)])
    left = progress.time_left(now)
    return dotted(
        (1, progress.place(progress.round)),
        (1, f"{count(progress.done)}/{count(progress.total)} jobs"),
        (progress.failed, f"{count(progress.failed)} failed"),
        (progress.invalid, f"{count(progress.invalid)} invalid"),
        (1, f"{rate(progress.call_rate(now))} calls/s"),
        (1, several(progress.retries, "retry", "retries")),
        (progress.unusable, several(progress.unusable, "unusable reply", "unusable replies")),
        (progress.unanswered, failing(progress)),
        (progress.batches, batches_out(progress, now)),
        (progress.cache_hits, several(progress.cache_hits, "cache hit")),
        (1, ", ".join(spent(progress))),
        (left and not progress.stopping, f"{duration(left or 0)} left"),
    )


def people(progress: Progress) -> list[str]:
    """How many of those who judge are there, and what they left out."""
    parts = [f"{several(progress.here, 'person', 'people')} there"]
    parts += [f"{count(progress.skipped)} skipped"] if progress.skipped else []
    parts += [f"{count(progress.invalid)} asked no more"] if progress.invalid else []
    return parts


def batch_state(batch: Batch) -> str:
    """How a batch stands, in a few words."""
    if batch.open:
        return plain(batch.status, 40) or "being created"
    return str(batch.state)


def batches_out(progress: Progress, now: float) -> str:
    """The batches that are waited for, how many of their questions the provider says it answered, and
    when they are looked at next."""
    batches = progress.batches
    done, questions = sum(batch.done for batch in batches), sum(batch.jobs for batch in batches)
    states = ", ".join(sorted(set(map(batch_state, batches))))
    next_look = duration(progress.next_look - now)
    return (
        f"{several(len(batches), 'batch', 'batches')} out ({states}), {count(done)} of "
        f"{count(questions)} answered, next look in {next_look}"
    )


def failing(progress: Progress) -> str:
    """That calls bring no answers, and why."""
    error = plain(progress.last_error, 300)
    return f"{several(progress.failing, 'call')} in a row without an answer, the last: {error}"


def spent(progress: Progress) -> list[str]:
    """What was spent, and what all of it may come to; never $0 for what has no known cost."""
    if not progress.calls:
        return ["nothing spent yet"]
    if progress.unpriced:
        calls = several(progress.unpriced, "call")
        if not progress.cost:
            return [f"cost unknown ({calls})"]
        return [f"≥ {money(progress.cost)} so far (cost of {calls} unknown)"]
    parts = [f"{money(progress.cost)} so far"]
    projected = progress.projected_cost()
    if projected is not None and not progress.finished:
        parts.append(f"about {money(projected, digits=2)} in all")
    return parts


def moved(progress: Progress, rho: float) -> str:
    """How much the last rated round changed the ranking."""
    return f"moved: ρ = {rho:.2f} between rounds {progress.rated - 1} and {progress.rated}"


def certainty(known: Certainty, *, people: bool = False) -> list[str]:
    """How well the order is known, and what one more round would bring and cost; `people`: they alone
    are asked."""
    parts = [f"order known to ρ̂ = {known.rho:.3f}"]
    if known.sigma is not None:
        parts[0] += f" (by σ = {known.sigma:.2g}: the judge tells the items apart that little)"
    if known.perhaps_less:
        parts[0] += " (less, if the judge hardly tells the items apart)"
    if known.top_share is not None:
        parts[0] += f", {known.top_share:.1%} of the first {known.top} settled"
    if known.next_calls and known.next_rho is not None:
        price = "" if known.next_cost is None else f", about {money(known.next_cost, digits=2)}"
        brings = f"ρ̂ ≈ {known.next_rho:.3f}"
        if known.next_top_share is not None:
            brings += f", {known.next_top_share:.1%} of the first {known.top}"
        questions = several(known.next_calls, "answer" if people else "call")
        parts.append(f"one more round ({questions}{price}): {brings}")
    return parts


def stopping_line(progress: Progress) -> str:
    """That no new calls are made, and how many are still let finish."""
    if not progress.in_flight:
        return "stopped"
    return f"stopping: letting {several(progress.in_flight, 'call')} finish"


NOT_ASKED = "{ }: the order of these was not asked."


def group(names: Sequence[str], *, partial: bool) -> str:
    """Items at one place of a verdict: tied, or `partial`, in an order that isn't known."""
    return f"{{{', '.join(names)}}}" if partial and len(names) > 1 else " = ".join(names)
