"""The list of all scenarios."""

from __future__ import annotations

from typing import Final

from tests.contract.cases import (
    acls,
    admin,
    consumer_groups,
    groups,
    log,
    migration,
    order,
    quotas,
    security,
    share_groups,
    transactions,
)

SCENARIOS: Final = [
    *log.SCENARIOS,
    *groups.SCENARIOS,
    *consumer_groups.SCENARIOS,
    *migration.SCENARIOS,
    *share_groups.SCENARIOS,
    *transactions.SCENARIOS,
    *admin.SCENARIOS,
    *acls.SCENARIOS,
    *security.SCENARIOS,
    *quotas.SCENARIOS,
    *order.SCENARIOS,
]
