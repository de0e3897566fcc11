"""Token errors that are fatal during startup.

After the start they are retriable: connections are retried, and their tokens are requested again.
"""

from __future__ import annotations

from kafka_async.errors import KafkaConnectionError


class TokenTimeoutError(KafkaConnectionError):
    """The token provider has not returned in time.

    At the start of a client it is final: another call would take as long again.
    """


class TokenEndpointUnreachableError(KafkaConnectionError):
    """No connection to the issuer of tokens can be made.

    It is not an error of a broker, so at the start of a client it is final: at once if `permanent`,
    otherwise after bootstrap_refused_timeout_ms, as for brokers that refuse connections.

    Attributes:
        permanent: True if retries fail until the configuration or the DNS changes.
    """

    permanent = False
