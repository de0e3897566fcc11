"""Internal errors of the cluster."""

from __future__ import annotations

import logging
from dataclasses import dataclass

logger = logging.getLogger("kafka_async.embedded")


@dataclass(frozen=True, slots=True)
class Failure:
    """Describes an internal error of the cluster; invalid requests are not failures."""

    where: str
    error: BaseException


class FailureList(list[Failure]):
    """Lists the internal errors of the cluster."""

    def record(self, where: str, error: BaseException) -> None:
        """Log an internal error and add it."""
        logger.error("%s failed", where, exc_info=error)
        self.append(Failure(where, error))
