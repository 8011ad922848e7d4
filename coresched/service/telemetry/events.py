"""What happens in batches and to workers, as log lines. No sample's name above debug, no session's at all."""

from __future__ import annotations

import logging
from hashlib import blake2b

from coresched.logs import event
from coresched.service.batches import facts
from coresched.service.batches.batch import Batch
from coresched.service.batches.effects import Effects
from coresched.service.batches.facts import BatchFact, WorkerFact
from coresched.service.batches.reports import progress
from coresched.service.refusal import shown

_logger = logging.getLogger(__name__)

_WORKER_EVENTS: dict[type, tuple[str, str]] = {
    facts.WorkerRegistered: ("worker_registered", "registered"),
    facts.WorkerDrained: ("worker_drained", "drained"),
    facts.WorkerRemoved: ("worker_removed", "removed"),
}


def session_mark(session: str) -> str:
    """Tells sessions from one another without telling their names, which are secrets among clients."""
    return blake2b(session.encode(), digest_size=4).hexdigest()


def log_batch_fact(fact: BatchFact, effects: Effects) -> None:
    """A listener of the recorder of batches."""
    batch = effects.batch
    if isinstance(fact, facts.BatchOpened):
        _opened(fact, batch)
    elif isinstance(fact, facts.SessionOpened):
        mark = session_mark(fact.session)
        _info(batch, "session_opened", f"session {mark} opened in {_named(batch)}", session=mark)
    elif isinstance(fact, facts.EnvironmentEnded) and fact.how == "expired":
        spent_s = batch.samples[fact.sample].spent_s
        fields: dict[str, object] = {"held_s": spent_s}
        of = ""
        if _logger.isEnabledFor(logging.DEBUG):
            fields["sample"] = fact.sample
            of = f" of sample {shown(fact.sample)}"
        line = f"an environment slot{of} in {_named(batch)} returned at its maximum, after {spent_s:.1f} s"
        _info(batch, "environment_expired", line, **fields)
    if isinstance(fact, facts.SessionEnded) and not fact.left:
        mark = session_mark(fact.session)
        line = f"session {mark} in {_named(batch)} was silent for its grace period; its samples went back"
        _log(batch, logging.WARNING, "session_expired", line, session=mark)
    else:
        for session in effects.sessions_ended:
            mark = session_mark(session.name)
            line = f"session {mark} in {_named(batch)} ended: {session.ended}"
            _info(batch, "session_ended", line, session=mark)
    if effects.closed:
        _closed(batch, fact.at, abandoned=isinstance(fact, facts.BatchClosed) and fact.abandoned)


def log_worker_fact(fact: WorkerFact) -> None:
    name, done = _WORKER_EVENTS[type(fact)]
    fields: dict[str, object] = {"worker": fact.worker, "tenant": fact.tenant}
    if isinstance(fact, facts.WorkerRegistered):
        fields["weight"] = fact.weight
        more = f", weight {fact.weight:g}"
    else:
        fields["in_flight"] = fact.in_flight
        more = f", {fact.in_flight} in flight"
    event(_logger, logging.INFO, name, f"worker {shown(fact.worker)} {done}{more}", **fields)


def _opened(fact: facts.BatchOpened, batch: Batch) -> None:
    environments = fact.environment_concurrency
    residents = fact.resident_concurrency
    line = f"{_named(batch)} opened, sample concurrency {fact.sample_concurrency}, environment concurrency "
    line += "without limit" if environments is None else str(environments)
    if residents is not None:
        line += f", resident concurrency {residents}"
    _info(
        batch,
        "batch_opened",
        line,
        sample_concurrency=fact.sample_concurrency,
        environment_concurrency=environments,
        environment_policy=fact.policy,
        band_s=fact.band_s,
        bucket_s=fact.bucket_s,
        resident_concurrency=residents,
        admission_policy=fact.admission_policy,
    )


def _closed(batch: Batch, now: float, *, abandoned: bool) -> None:
    end = progress(batch, now)
    makespan = end.makespan_s if end.HasField("makespan_s") else None
    line = f"{_named(batch)} closed, {end.finished} of {end.samples} samples finished"
    if makespan is not None:
        line += f", makespan {makespan:.1f} s"
    if abandoned:
        line += "; it was abandoned, and made room for another (--max-open-batches)"
    _log(
        batch,
        logging.WARNING if abandoned else logging.INFO,
        "batch_closed",
        line,
        abandoned=abandoned,
        samples=end.samples,
        finished=end.finished,
        withdrawn=end.withdrawn,
        turns=end.turns,
        environment_stages=end.environment_stages,
        readmissions=end.readmissions,
        makespan_s=makespan,
        elapsed_s=end.elapsed_s,
        admission_wait_s=end.admission_wait_s,
        inference_s=end.inference_s,
        failed_inference_s=end.failed_inference_s,
        environment_queue_s=end.environment_queue_s,
        environment_s=end.environment_s,
        resident_wait_s=end.resident_wait_s,
        resident_s=end.resident_s,
    )


def _named(batch: Batch) -> str:
    return f"batch {shown(batch.name)}"


def _info(batch: Batch, name: str, line: str, **fields: object) -> None:
    _log(batch, logging.INFO, name, line, **fields)


def _log(batch: Batch, level: int, name: str, line: str, **fields: object) -> None:
    event(_logger, level, name, line, tenant=batch.tenant, batch=batch.name, **fields)
