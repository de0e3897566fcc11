"""Messages for options that a client does not have, with the one to use. Pure.

The tables have the names of librdkafka, confluent-kafka, aiokafka, kafka-python and Java's client.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from kafka_async.config.options import ROLES
from kafka_async.config.spelling import spell, with_underscores
from kafka_async.errors import InvalidConfigurationError

_RENAMED: Final[Mapping[str, str]] = {
    # librdkafka and confluent-kafka
    "auto_commit_enable": "enable_auto_commit",
    "batch_num_messages": "batch_size",
    "broker_list": "bootstrap_servers",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "message_max_bytes": "max_request_size",
    "message_send_max_retries": "delivery_timeout_ms",
    "message_timeout_ms": "delivery_timeout_ms",
    "metadata_broker_list": "bootstrap_servers",
    "queue_buffering_max_kbytes": "buffer_memory",
    "queue_buffering_max_messages": "buffer_memory",
    "queue_buffering_max_ms": "linger_ms",
    "queued_max_messages_kbytes": "fetch_buffer_memory",
    "queued_min_messages": "fetch_buffer_memory",
    "receive_message_max_bytes": "receive_buffer_memory",
    "request_required_acks": "acks",
    "socket_timeout_ms": "request_timeout_ms",
    "enable_sasl_oauthbearer_unsecure_jwt": "sasl_token_provider",
    "enable_ssl_certificate_verification": "ssl_cafile",
    "https_ca_location": "ssl_cafile",
    "https_ca_pem": "ssl_cafile",
    "oauth_cb": "sasl_token_provider",
    "oauthbearer_token_refresh_cb": "sasl_token_provider",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_config": "sasl_token_provider",
    "sasl_oauthbearer_grant_type": "sasl_oauthbearer_jwt_retriever",
    "sasl_oauthbearer_method": "sasl_oauthbearer_token_endpoint_url",
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_pem": "ssl_keyfile",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    # aiokafka and kafka-python
    "auto_commit_interval": "auto_commit_interval_ms",
    "max_batch_size": "batch_size",
    "metadata_max_age": "metadata_max_age_ms",
    "rebalance_timeout_ms": "max_poll_interval_ms",
    "request_timeout": "request_timeout_ms",
    "sasl_kerberos_name": "sasl_kerberos_principal",
    "sasl_oauth_token_provider": "sasl_token_provider",
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "password": "sasl_password",
    "ssl_ciphers": "ssl_context",
    "ssl_crlfile": "ssl_context",
    "transaction_timeout": "transaction_timeout_ms",
    # Kafka
    "sasl_jaas_config": "sasl_username",
    "sasl_oauthbearer_jwt_retriever_class": "sasl_oauthbearer_jwt_retriever",
    "ssl_endpoint_identification_algorithm": "ssl_check_hostname",
    "ssl_key_password": "ssl_password",
    "ssl_keystore_certificate_chain": "ssl_certfile",
    "ssl_keystore_key": "ssl_keyfile",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_keystore_password": "ssl_password",
    "ssl_protocol": "ssl_enabled_protocols",
    "ssl_truststore_certificates": "ssl_cafile",
    "ssl_truststore_location": "ssl_cafile",
    "interceptor_classes": "interceptors",
    "partitioner_class": "partitioner",
    "retries": "delivery_timeout_ms",
}
"""Options of other clients, and the option that replaces each here."""

_UNSUPPORTED: Final = frozenset(
    {
        "bootstrap_controllers",
        "bootstrap_resolve_timeout_ms",
        "buffer_memory_allocation_strategy",
        "client_dns_lookup",
        "config_providers",
        "enable_metrics_push",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_recording_level",
        "metrics_sample_window_ms",
        "partitioner_ignore_keys",
        "partitioner_rack_aware",
        "receive_buffer_bytes",
        "security_providers",
        "send_buffer_bytes",
        "transaction_two_phase_commit_enable",
    }
)
"""Options of Kafka's clients that have no equivalent here yet, without `_UNSUPPORTED_PREFIXES`."""
_UNSUPPORTED_PREFIXES: Final = (
    "oauth",
    "sasl_client_",
    "sasl_kerberos_",
    "sasl_login_",
    "sasl_oauthbearer_",
)
"""Prefixes of many options of Kafka's clients and of librdkafka without an equivalent here."""

_UNNEEDED: Final[Mapping[str, str]] = {
    "api_version": "versions are negotiated with each broker",
    "api_version_auto_timeout_ms": "versions are negotiated with each broker",
    "api_version_request": "versions are negotiated with each broker",
    "check_crcs": "checksums are always checked",
    "consumer_timeout_ms": "give poll a timeout",
    "debug": "configure the logger kafka_async",
    "enable_auto_offset_store": "a record counts as done when the next one is requested",
    "enable_partition_eof": "compare the position with the end offset",
    "error_cb": "errors are raised by the calls they concern",
    "sasl_kerberos_domain_name": "it is the host name of each broker",
    "exclude_internal_topics": "subscriptions name their topics",
    "internal_throw_on_fetch_stable_offset_unsupported": "it is internal to Java's client",
    "log_level": "configure the logger kafka_async",
    "loop": "a client belongs to the event loop that it is started in",
    "on_delivery": "await the delivery, or give it a callback with add_done_callback",
    "dr_cb": "await the delivery, or give it a callback with add_done_callback",
    "rebalance_cb": "pass listener= to the consumer",
    "statistics_interval_ms": "call statistics() when you need them",
    "stats_cb": "call statistics() when you need them",
}
"""Options of other clients that are not needed here, and the reason."""


_SHARE_GROUP_OPTIONS: Final[Mapping[str, str]] = {
    "auto_offset_reset": "share.auto.offset.reset",
    "heartbeat_interval_ms": "share.heartbeat.interval.ms",
    "isolation_level": "share.isolation.level",
    "session_timeout_ms": "share.session.timeout.ms",
}
"""Options of a consumer that share groups have as configurations of the group (KIP-932)."""


def _option_of_share_group(name: str, names: set[str]) -> str | None:
    """Return the message for a consumer's option that a share group has instead; else None."""
    key = _SHARE_GROUP_OPTIONS.get(name.replace(".", "_"))
    if key is None or "share_acknowledgement_mode" not in names:
        return None
    return (
        f"there is no option {spell(name)} of a share consumer: the group has the configuration "
        f"{key}, to be set by Admin.alter_configs with the resource "
        f'ConfigResource(ResourceType.GROUP, group_id) and {{"{key}": ...}}'
    )


def unknown_option(name: str, names: set[str]) -> InvalidConfigurationError:
    """Return the error for an option that a client with the options `names` does not have."""
    if name in ("topic", "topics") and "max_poll_records" in names:
        meant = "" if name == "topics" else "did you mean topics? "
        text = f"there is no option {name}: {meant}The consumer takes topics=[...] as an argument"
    else:
        text = _option_of_share_group(name, names) or _unknown(name, names)
    return InvalidConfigurationError(text, option=name)


def _unknown(name: str, names: set[str]) -> str:
    """Return the message for an option that does not exist."""
    flat = with_underscores(name)
    if flat in names and flat != name:
        return (
            f"there is no keyword option {name}: write {flat}, or give a dict of Java's names to "
            "from_properties"
        )
    text = f"there is no option {spell(name)}"
    if flat in _UNNEEDED:
        return f"{text}, and no need for it: {_UNNEEDED[flat]}"
    near: list[str] = []
    if flat not in _RENAMED:
        foreign = flat.startswith(_UNSUPPORTED_PREFIXES)
        likeness = 0.9 if foreign else 0.75
        if flat.startswith(("ssl_", "sasl_", "oauth")):
            prefix = "ssl_" if flat.startswith("ssl_") else "sasl_"
            alike = [each for each in names if each.startswith(prefix)]
            near = difflib.get_close_matches(flat, alike, 1, likeness)
        if not near and (foreign or flat in _UNSUPPORTED):
            return f"{spell(name)} is not supported yet: leave it out"
    if near:
        return f"{text}: did you mean {spell(near[0])}?"
    if flat not in _RENAMED and flat.startswith(("ssl_", "sasl_")):
        foreign_names = [each for each in _RENAMED if each.startswith(("ssl_", "sasl_"))]
        for meant in difflib.get_close_matches(flat, foreign_names, 1, 0.9):
            return f"{text}: did you mean {spell(meant)}? It is {spell(_RENAMED[meant])} here"
    meant = _RENAMED.get(flat, "ssl_context" if flat.startswith("ssl_") else flat)
    if meant in names:
        return f"{text}: use {spell(meant)} (see docs/configuration.md)"
    for role in ("producer", "consumer", "share consumer"):
        if meant in ROLES[role]:
            return f"{text} here: {spell(meant)} is an option of a {role}"
    near = difflib.get_close_matches(flat, names, 1)
    hint = f": did you mean {spell(near[0])}?" if near else "; docs/configuration.md lists them all"
    return f"{text}{hint}"
