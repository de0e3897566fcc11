"""Messages of the control topic and their replies, as JSON. Pure.

    {"type": "run", "id": "r-1", "job": "count", "ranges": {"clicks": {"0": [0, 100]}}}

| type | fields other than id and reply_topic | effect |
|---|---|---|
| run | job, ranges, params, tag, pool, timeout | run a job; ranges once for all messages |
| backfill | the same, ranges required | process ranges again, once for this id |
| cancel | tag | cancel jobs by tag or id |
| pause, resume | - | stop or continue starting jobs |
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kafka_async.spark.orchestrator.job_ledger import JobRecord, JobState
from kafka_async.spark.orchestrator.ranges import ranges_from_json
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TYPES: Final = ("run", "backfill", "cancel", "pause", "resume")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "run": ("job", "ranges", "params", "tag", "pool", "timeout"),
    "backfill": ("job", "ranges", "params", "tag", "pool", "timeout"),
    "cancel": ("tag",),
    "pause": (),
    "resume": (),
}


class ControlMessageError(ValueError):
    """A control message is not valid.

    Attributes:
        message_id: The message's id, if it has one.
        reply_topic: The topic for replies, if the message has one.
    """

    def __init__(self, problem: str, message_id: str = "", reply_topic: str | None = None) -> None:
        super().__init__(problem)
        self.message_id = message_id
        self.reply_topic = reply_topic


@dataclass(frozen=True, slots=True)
class RunMessage:
    """Requests a job; `record` is its ledger record."""

    record: JobRecord


@dataclass(frozen=True, slots=True)
class CancelMessage:
    """Cancels the jobs with a tag."""

    message_id: str
    tag: str
    reply_topic: str | None


@dataclass(frozen=True, slots=True)
class PauseMessage:
    """Stops (`paused`) or continues starting jobs."""

    message_id: str
    paused: bool
    reply_topic: str | None


ControlMessage: TypeAlias = RunMessage | CancelMessage | PauseMessage


@dataclass(slots=True)
class _Fields:
    """Reads a message's fields; errors include the id and the reply topic."""

    document: dict[str, Any]
    message_id: str = ""
    reply_topic: str | None = None
    problems: list[str] = field(default_factory=list[str])

    def text(self, name: str, *, required: bool = False) -> str | None:
        value = self.document.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value:
            raise self.error(f"field {name} must be a text that is not empty, not {value!r:.60}")
        return value

    def error(self, problem: str) -> ControlMessageError:
        return ControlMessageError(problem, self.message_id, self.reply_topic)


def parse_message(value: bytes | None, jobs: Collection[str]) -> ControlMessage:
    """Parse a control message.

    Args:
        value: The record's value.
        jobs: Names of the registered jobs.

    Raises:
        ControlMessageError: The message is not valid; the text includes the field.
    """
    try:
        document = json.loads(value or b"")
    except ValueError as error:
        raise ControlMessageError(f"the message is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ControlMessageError("the message must be a JSON object")
    fields = _Fields(cast("dict[str, Any]", document))
    fields.reply_topic = fields.text("reply_topic")
    fields.message_id = message_id = fields.text("id", required=True) or ""
    kind = fields.text("type", required=True) or ""
    if kind not in TYPES:
        raise fields.error(f"type {kind!r:.60} is not one of {', '.join(TYPES)}")
    allowed = {"id", "type", "reply_topic", *_FIELDS[kind]}
    unknown = sorted(set(fields.document) - allowed)
    if unknown:
        raise fields.error(
            f"a {kind} message has no field {', '.join(unknown)}; it has "
            f"{', '.join(sorted(allowed))}"
        )
    if kind == "cancel":
        tag = fields.text("tag", required=True) or ""
        return CancelMessage(message_id, tag, fields.reply_topic)
    if kind in ("pause", "resume"):
        return PauseMessage(message_id, kind == "pause", fields.reply_topic)
    return RunMessage(_job_record(fields, kind, jobs))


def _job_record(fields: _Fields, kind: str, jobs: Collection[str]) -> JobRecord:
    job = fields.text("job", required=True) or ""
    if job not in jobs:
        raise fields.error(
            f"there is no job {job!r:.60}: registered are {', '.join(sorted(jobs)) or 'none'}"
        )
    try:
        ranges = ranges_from_json(fields.document.get("ranges") or {})
    except (TypeError, ValueError) as error:
        raise fields.error(str(error)) from error
    if kind == "backfill" and not ranges:
        raise fields.error("a backfill message needs ranges that are not empty")
    params = fields.document.get("params")
    if params is not None and not isinstance(params, dict):
        raise fields.error("field params must be a JSON object")
    tag = fields.text("tag")
    if tag is not None and "," in tag:
        raise fields.error("field tag must not contain a comma: Spark separates tags with commas")
    timeout = fields.document.get("timeout")
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0
    ):
        raise fields.error("field timeout must be a number of seconds above 0")
    return JobRecord(
        job_id=fields.message_id,
        job=job,
        scope=job if kind == "run" else f"{job}@{fields.message_id}",
        ranges=ranges,
        params=cast("Mapping[str, Any]", params or {}),
        tag=tag,
        pool=fields.text("pool"),
        timeout=timeout,
        reply_topic=fields.reply_topic,
    )


# -- replies --------------------------------------------------------------------------------------


def reply(
    topic: str | None, message_id: str, status: str, **details: object
) -> ProducerRecord | None:
    """Return the reply to a message, or None without a reply topic.

    Args:
        topic: The topic for replies.
        message_id: Id of the message, and the reply's key.
        status: "accepted", "rejected", "done", or the state of an ended job.
        **details: Further fields.
    """
    if topic is None:
        return None
    document = {"id": message_id, "status": status, **details}
    return ProducerRecord(topic, json.dumps(document).encode(), message_id.encode())


def job_reply(record: JobRecord) -> ProducerRecord | None:
    """Return the reply that reports a job's state, or None without a reply topic."""
    details: dict[str, object] = {"job": record.job}
    if record.state is JobState.SUCCEEDED:
        details |= {"value": record.value, "dead_letters": record.dead_letters}
    elif record.state.ended:
        details |= {"error": record.error}
    return reply(record.reply_topic, record.job_id, record.state.value, **details)
