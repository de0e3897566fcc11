"""Options: types, bounds, Java's names, and error messages with the option to use."""

from __future__ import annotations

import dataclasses
import functools
import re
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_async import Admin, Client, Consumer, Producer, blocking, config
from kafka_async.config import (
    ClientConfig,
    ConsumerConfig,
    GroupMemberConfig,
    ProducerConfig,
    ShareConsumerConfig,
    reset_duration,
)
from kafka_async.config import options as kinds
from kafka_async.config.addresses import SERVERS
from kafka_async.config.spelling import Writing, options_written_as, with_dots
from kafka_async.errors import InvalidConfigurationError
from kafka_async.group.assignors import RangeAssignor
from kafka_async.hooks import Hooks
from kafka_async.secrets import Secret
from kafka_async.types import Token

ROLES = [
    (ClientConfig, config.ClientOptions),
    (ProducerConfig, config.ProducerOptions),
    (ConsumerConfig, config.ConsumerOptions),
]


@pytest.mark.parametrize(("role", "options"), ROLES)
def test_keyword_arguments_match_the_fields(role: type[Any], options: type[Any]) -> None:
    fields = {field.name for field in dataclasses.fields(role)}
    assert options.__annotations__.keys() == fields


KINDS = {
    kinds.FLAG: "bool",
    kinds.WHOLE: "int",
    kinds.NUMBER: "float",
    kinds.TEXT: "str",
    kinds.TEXTS: "tuple[str, ...]",
    SERVERS: "tuple[str, ...]",
    kinds.OBJECTS: "tuple[Any, ...]",
    kinds.MAPPING: "Mapping[str, str]",
    kinds.FUNCTION: "Partitioner",
    kinds.TOKEN_PROVIDER: "TokenProvider",
    kinds.SECRET: "Secret",
    kinds.SECRET_SOURCE: "SecretSource",
    kinds.SERIALIZER: "Serializer",
    kinds.DESERIALIZER: "Deserializer",
}
"""By kind of an option: its annotation, without None."""


@pytest.mark.parametrize(("role", "_options"), ROLES)
def test_every_option_is_documented_and_its_kind_agrees_with_its_annotation(
    role: type[Any], _options: type[Any]
) -> None:
    for row in dataclasses.fields(role):
        facts = row.metadata
        assert facts["doc"].endswith(".")
        if facts["kind"] is kinds.ANY:
            assert row.type == "Any"
            assert facts["choices"] or facts["check"], row.name
            continue
        annotation = str(row.type)
        assert annotation.removesuffix(" | None") == KINDS[facts["kind"]], row.name
        assert annotation.endswith(" | None") == (row.default is None), row.name


def test_reads_and_converts_java_properties() -> None:
    read = ProducerConfig.from_properties(
        {
            "bootstrap.servers": "a:9092,b:9093",
            "linger.ms": "7",
            "enable.idempotence": "FALSE",
            "acks": "all",
            "compression.type": "lz4",
        }
    )
    assert read.bootstrap_servers == ("a:9092", "b:9093")
    assert (read.linger_ms, read.enable_idempotence, read.compression_type) == (7, False, "lz4")


def directly(role: type[Any], **options: Any) -> Any:
    return role("a:1", **options)


def by_replace(role: type[Any], **options: Any) -> Any:
    return dataclasses.replace(role("a:1"), **options)


class PythonNames(Writing):
    """Names options as Python does in messages about properties too."""


def by_properties(role: type[Any], **options: Any) -> Any:
    named = {name.replace("_", "."): value for name, value in options.items()}
    with options_written_as(PythonNames()):
        return role.from_properties({"bootstrap.servers": "a:1", **named})


PATHS = [directly, by_replace, by_properties]
IN_FLIGHT = "max_in_flight_requests_per_connection"
TLS = ssl.create_default_context()
SERVER_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
KEY_BYTES = b"-----BEGIN PRIVATE KEY-----\nMIIE"


@pytest.mark.parametrize("make", PATHS)
def test_splits_text_of_list_options_at_commas(make: Callable[..., Any]) -> None:
    config = make(ClientConfig, allowed_broker_hosts="a.example")
    assert config.allowed_broker_hosts == ("a.example",)
    config = make(ClientConfig, allowed_broker_hosts=" a.example, *.b.example ")
    assert config.allowed_broker_hosts == ("a.example", "*.b.example")
    assert make(ClientConfig, allowed_broker_hosts=["a", "b"]).allowed_broker_hosts == ("a", "b")
    config = make(ConsumerConfig, partition_assignment_strategy="range,cooperative-sticky")
    assert config.partition_assignment_strategy == ("range", "cooperative-sticky")
    config = make(ConsumerConfig, partition_assignment_strategy="range")
    assert config.partition_assignment_strategy == ("range",)


@pytest.mark.parametrize("make", PATHS)
@pytest.mark.parametrize(
    ("role", "options", "words"),
    [
        (ProducerConfig, {"linger": 5}, "no option linger: did you mean linger_ms?"),
        (
            ShareConsumerConfig,
            {"auto_offset_reset": "earliest"},
            "the group has the configuration share.auto.offset.reset",
        ),
        (
            ShareConsumerConfig,
            {"isolation_level": "read_committed"},
            "the group has the configuration share.isolation.level",
        ),
        (ProducerConfig, {"enable_idempotence": "no"}, "enable.idempotence='no'"),
        (ProducerConfig, {"enable_idempotence": 1}, "must be True or False, not int"),
        (ProducerConfig, {"acks": True}, "acks=True is not one of"),
        (ProducerConfig, {"acks": "2"}, "acks='2' is not one of"),
        (ConsumerConfig, {"auto_offset_reset": "Latest"}, "is not one of .*did you mean latest?"),
        (ConsumerConfig, {"auto_offset_reset": "by_duration"}, "is not one of .*by_duration:PnDT"),
        (ProducerConfig, {"compression_type": "zip"}, "compression_type='zip' is .*'zstd'"),
        (ProducerConfig, {"batch_size": 1.5}, "batch_size=1.5 must be a whole number"),
        (ProducerConfig, {"batch_size": "large"}, "batch_size='large' must be a.* number"),
        (ProducerConfig, {"batch_size": -1}, "batch_size=-1 must be from 0 to 2147483647"),
        (ProducerConfig, {"compression_level": "high"}, "compression_level='high'"),
        (ProducerConfig, {"compression_level": True}, "a whole number"),
        (ProducerConfig, {"linger_ms": None}, "linger_ms=None must be a number"),
        (ProducerConfig, {"linger_ms": True}, "linger_ms=True must be a number, not bool"),
        (ProducerConfig, {"linger_ms": "soon"}, "linger_ms='soon' must be a number"),
        (ProducerConfig, {"linger_ms": float("nan")}, "linger_ms=nan must be a number"),
        (ProducerConfig, {"transactional_id": 7}, "transactional_id=7 must be a str"),
        (ProducerConfig, {"partitioner": "murmur2"}, "partitioner='murmur2' must be a function"),
        (ConsumerConfig, {"group_id": b"g"}, "group_id=b'g' must be a str, not bytes"),
        (ConsumerConfig, {"value_deserializer": 3}, "value_deserializer=3 must be a function"),
        (ConsumerConfig, {"enable_auto_commit": 0}, "must be True or False"),
        (ConsumerConfig, {"partition_assignment_strategy": ()}, "is empty"),
        (ConsumerConfig, {"partition_assignment_strategy": 5}, "must be a list"),
        (ConsumerConfig, {"fetch_max_bytes": 2**31}, "fetch_max_bytes=.* from 1 to 104857600"),
        (ClientConfig, {"allowed_broker_hosts": [1]}, "must be a list of str"),
        (ClientConfig, {"allowed_broker_hosts": " , "}, "allowed_broker_hosts is empty"),
        (ClientConfig, {"client_id": None}, "client_id=None must be a str"),
        (ClientConfig, {"ssl_context": "cert.pem"}, "must be an ssl.SSLContext"),
        (ClientConfig, {"ssl_context": SERVER_TLS}, "ssl_context is that of a server"),
        (ClientConfig, {"ssl_certfile": b"MIIE"}, r"ssl_certfile=\*\*\* must be a str, not bytes"),
        (ClientConfig, {"client_id": KEY_BYTES}, r"client_id=\*\*\* must be a str, not bytes"),
        (ClientConfig, {"security_protocol": "SASL-SSL"}, r"did you mean SASL_SSL\?"),
        (ClientConfig, {"sasl_mechanism": "scram_sha_512"}, r"did you mean SCRAM-SHA-512\?"),
        (ClientConfig, {"sasl_mechanism": "SCRAM-SHA256"}, r"did you mean SCRAM-SHA-256\?"),
        (ProducerConfig, {"compression_type": "ZSTD"}, r"did you mean zstd\?"),
        (ClientConfig, {"metadata_max_age_ms": [1]}, "must be a number, not list"),
    ],
)
def test_every_way_of_construction_refuses_a_wrong_value(
    make: Callable[..., Any], role: type[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        make(role, **options)
    assert re.search(words, caught.value.message)


@pytest.mark.parametrize("make", PATHS)
@pytest.mark.parametrize(
    ("role", "options", "words"),
    [
        (ProducerConfig, {"acks": 1, "enable_idempotence": True}, "acks=1 .* enable_idempotence="),
        (ProducerConfig, {"acks": 0, "transactional_id": "a"}, "acks=0 .* transactional_id"),
        (ProducerConfig, {IN_FLIGHT: 6}, f"enable_idempotence=True allows at most {IN_FLIGHT}=5"),
        (
            ProducerConfig,
            {"transactional_id": "a", "enable_idempotence": False},
            "transactional_id needs enable_idempotence",
        ),
        (ProducerConfig, {"delivery_timeout_ms": 1000}, "delivery_timeout_ms .*request_timeout_ms"),
        (ProducerConfig, {"compression_type": "gzip", "compression_level": 10}, 'type="gzip"'),
        (ProducerConfig, {"compression_type": "lz4", "compression_level": 18}, 'type="lz4"'),
        (ProducerConfig, {"compression_type": "zstd", "compression_level": 23}, 'type="zstd"'),
        (ConsumerConfig, {"heartbeat_interval_ms": 45_000}, "interval_ms .* session_timeout_ms"),
        (ConsumerConfig, {"group_instance_id": "a"}, "group_instance_id needs a group_id"),
        (ConsumerConfig, {"group_id": ""}, "group_id is empty: name the group, or leave"),
        (ShareConsumerConfig, {"group_id": ""}, "group_id is empty: name the group"),
        (
            ConsumerConfig,
            {"rewind_check_interval_ms": 1000},
            'rewind_check_interval_ms needs group_protocol="consumer"',
        ),
        (ConsumerConfig, {"group_instance_id": ""}, "group_instance_id is empty: name the"),
        (GroupMemberConfig, {"group_instance_id": ""}, "group_instance_id is empty: name the"),
        (ClientConfig, {"retry_backoff_ms": 5000}, "retry_backoff_ms .* retry_backoff_max_ms"),
        (ClientConfig, {"reconnect_backoff_ms": 5000}, "reconnect_backoff_ms .* reconnect_"),
        (ClientConfig, {"ssl_context": TLS}, "ssl_context .* security_protocol"),
    ],
)
def test_every_way_of_construction_refuses_options_that_contradict_each_other(
    make: Callable[..., Any], role: type[Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        make(role, **options)
    assert re.search(words, caught.value.message)


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("form", ["keyword", "property", "text"])
def test_acks_0_and_1_turn_idempotence_off_unless_it_was_set(
    acks: Any, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Checks that only the default changes, as in Java's client (KIP-679)."""

    def make(**options: Any) -> ProducerConfig:
        if form == "keyword":
            return ProducerConfig("a:1", acks=acks, **options)
        given: dict[str, object] = {k.replace("_", "."): v for k, v in options.items()}
        own = acks if form == "property" else str(acks)
        return ProducerConfig.from_properties({"bootstrap.servers": "a:1", "acks": own, **given})

    caplog.set_level("INFO")
    read = make()
    assert (read.acks, read.enable_idempotence) == (acks, False)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert f"idempotence is off, since acks={acks} excludes it" in caplog.text
    assert not make(enable_idempotence=False).enable_idempotence
    assert len(caplog.records) == 1
    for explicit in ({"enable_idempotence": True}, {"transactional_id": "t"}):
        with pytest.raises(InvalidConfigurationError, match=f"acks={acks} contradicts"):
            make(**explicit)


@pytest.mark.parametrize("acks", [-1, "-1", "all"])
def test_properties_with_all_acks_keep_idempotence(acks: object) -> None:
    read = ProducerConfig.from_properties({"bootstrap.servers": "a:1", "acks": acks})
    assert read.acks in (-1, "all")
    assert read.enable_idempotence


@pytest.mark.parametrize("more", [{}, {"enable.idempotence": "true"}, {"transactional.id": "t"}])
def test_more_than_five_requests_in_flight_contradict_idempotence(more: dict[str, str]) -> None:
    """Checks that idempotence is not turned off silently, as Java's client did before 4.0."""
    properties = {"bootstrap.servers": "a:1", "max.in.flight.requests.per.connection": "6", **more}
    with pytest.raises(InvalidConfigurationError, match=r"or enable\.idempotence=false"):
        ProducerConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("properties", "level"),
    [
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, 9),
        ({"compression.type": "lz4", "compression.lz4.level": 17}, 17),
        ({"compression.type": "zstd", "compression.zstd.level": "-7"}, -7),
        ({"compression.type": "zstd", "compression.gzip.level": "9"}, None),
        ({"compression.gzip.level": "9"}, None),
        ({"compression.type": "zstd", "compression.level": "4"}, 4),
    ],
)
def test_reads_the_level_of_the_codec_in_use(
    properties: dict[str, object], level: int | None
) -> None:
    read = ProducerConfig.from_properties({"bootstrap.servers": "a:1", **properties})
    assert read.compression_level == level


def test_reads_javas_assignor_classes() -> None:
    package = "org.apache.kafka.clients.consumer"
    names = f"{package}.CooperativeStickyAssignor, {package}.RangeAssignor"
    read = ConsumerConfig.from_properties(
        {"bootstrap.servers": "a:1", "partition.assignment.strategy": names}
    )
    assert read.partition_assignment_strategy == ("cooperative-sticky", "range")


JAVA_NAMES: dict[type[Any], str] = {
    ProducerConfig: (
        "acks batch.size bootstrap.resolve.timeout.ms bootstrap.servers buffer.memory "
        "buffer.memory.allocation.strategy client.dns.lookup client.id client.rack "
        "compression.gzip.level compression.lz4.level compression.type compression.zstd.level "
        "config.providers connections.max.idle.ms delivery.timeout.ms enable.idempotence "
        "enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms "
        "max.in.flight.requests.per.connection max.request.size metadata.cluster.check.enable "
        "metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms "
        "metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level "
        "metrics.sample.window.ms partitioner.adaptive.partitioning.enable "
        "partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys "
        "partitioner.rack.aware receive.buffer.bytes reconnect.backoff.max.ms "
        "reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms "
        "sasl.jaas.config sasl.mechanism security.protocol security.providers send.buffer.bytes "
        "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms "
        "ssl.truststore.location transaction.timeout.ms transaction.two.phase.commit.enable "
        "transactional.id value.serializer"
    ),
    ConsumerConfig: (
        "allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers "
        "check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms "
        "default.api.timeout.ms enable.auto.commit enable.metrics.push exclude.internal.topics "
        "fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id "
        "group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes "
        "internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer "
        "max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms "
        "partition.assignment.strategy session.timeout.ms share.acknowledgement.mode "
        "share.acquire.mode value.deserializer"
    ),
}
"""Property names of the clients of Kafka 4.4.0, with only some of sasl.* and ssl.*."""


@pytest.mark.parametrize(
    ("role", "name"), [(role, name) for role, names in JAVA_NAMES.items() for name in names.split()]
)
def test_every_java_property_is_an_option_or_refused_with_a_reason(
    role: type[Any], name: str
) -> None:
    """Gives each a value that no option accepts, so that every name raises."""
    given: dict[str, object] = {"bootstrap.servers": "a:1", name: object()}
    if name.startswith("compression."):
        given["compression.type"] = name.split(".")[1]
    with pytest.raises(InvalidConfigurationError) as raised:
        role.from_properties(given)
    message = str(raised.value)
    assert "did you mean" not in message
    assert "lists them all" not in message


@pytest.mark.parametrize(
    ("role", "name", "words"),
    [
        (ProducerConfig, "queue.buffering.max.ms", "use linger_ms"),
        (ProducerConfig, "message.timeout.ms", "use delivery_timeout_ms"),
        (ProducerConfig, "max_batch_size", "use batch_size"),
        (ProducerConfig, "request.required.acks", "use acks"),
        (ProducerConfig, "retries", "use delivery_timeout_ms"),
        (ProducerConfig, "on_delivery", "add_done_callback"),
        (ClientConfig, "metadata_max_age", "use metadata_max_age_ms"),
        (ClientConfig, "metadata.broker.list", "use bootstrap_servers"),
        (ClientConfig, "sasl.login.refresh.window.factor", "not supported yet"),
        (ClientConfig, "interceptor_classes", "interceptors is an option of a producer"),
        (ProducerConfig, "interceptor.classes", "use interceptors"),
        (ConsumerConfig, "interceptor.classes", "use interceptors"),
        (ClientConfig, "ssl.ca.location", "use ssl_cafile"),
        (ClientConfig, "ssl.ca.pem", "use ssl_cafile"),
        (ClientConfig, "ssl_certificate_location", "use ssl_certfile"),
        (ClientConfig, "ssl_key_location", "use ssl_keyfile"),
        (ClientConfig, "ssl_key_pem", "use ssl_keyfile"),
        (ClientConfig, "enable.ssl.certificate.verification", "use ssl_cafile"),
        (ClientConfig, "ssl_crlfile", "use ssl_context"),
        (ClientConfig, "ssl_ciphers", "use ssl_context"),
        (ClientConfig, "sasl.mechanisms", "use sasl_mechanism"),
        (ClientConfig, "sasl_plain_username", "use sasl_username"),
        (ClientConfig, "sasl_plain_password", "use sasl_password"),
        (ClientConfig, "sasl_oauth_token_provider", "use sasl_token_provider"),
        (ClientConfig, "oauth_cb", "use sasl_token_provider"),
        (ClientConfig, "sasl.oauthbearer.client.id", "use sasl_oauthbearer_client_credentials_cl"),
        (ClientConfig, "sasl_kerberos_name", "use sasl_kerberos_principal"),
        (ClientConfig, "sasl_kerberos_domain_name", "host name of each broker"),
        (ClientConfig, "loop", "event loop that it is started in"),
        (ClientConfig, "linger_ms", "an option of a producer"),
        (ConsumerConfig, "rebalance_timeout_ms", "use max_poll_interval_ms"),
        (ConsumerConfig, "transactional_id", "an option of a producer"),
        (ProducerConfig, "group_id", "an option of a consumer"),
        (ConsumerConfig, "fetch.wait.max.ms", "use fetch_max_wait_ms"),
        (ConsumerConfig, "max_pol_records", "did you mean max_poll_records"),
        (ClientConfig, "bootstrap_server", r"did you mean bootstrap_servers\?"),
        (ClientConfig, "ssl_ca_file", r"did you mean ssl_cafile\?"),
        (ClientConfig, "ssl_ca", r"did you mean ssl_cafile\?"),
        (ClientConfig, "ssl_cert_file", r"did you mean ssl_certfile\?"),
        (ClientConfig, "ssl_key_file", r"did you mean ssl_keyfile\?"),
        (ClientConfig, "ssl_check_hostnam", r"did you mean ssl_check_hostname\?"),
        (ClientConfig, "security_protocoll", r"did you mean security_protocol\?"),
        (ClientConfig, "sasl_user", r"did you mean sasl_username\?"),
        (ClientConfig, "sasl_mech", r"did you mean sasl_mechanism\?"),
        (ClientConfig, "password", "use sasl_password"),
        (ClientConfig, "ssl.trustore.location", "mean ssl_truststore_location. It is ssl_cafile"),
        (ClientConfig, "sasl.jaas.conf", r"did you mean sasl_jaas_config\?"),
        (ClientConfig, "ssl_sigalgs_list", "use ssl_context"),
        (ClientConfig, "ssl.providers", "use ssl_context"),
        (ClientConfig, "https.ca.location", "use ssl_cafile"),
        (ClientConfig, "https.ca.pem", "use ssl_cafile"),
        (ClientConfig, "enable.sasl.oauthbearer.unsecure.jwt", "use sasl_token_provider"),
        (ClientConfig, "sasl.oauthbearer.grant.type", "use sasl_oauthbearer_jwt_retriever"),
    ],
)
def test_error_for_an_option_of_another_client_names_the_one_to_use(
    role: type[Any], name: str, words: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        role("a:1", **{name: 1})
    in_java = re.sub(r"(use|mean|is) \w+", lambda found: with_dots(found[0]), words)
    with pytest.raises(InvalidConfigurationError, match=in_java):
        role.from_properties({"bootstrap_servers": "a:1", name: 1})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("enable.idempotence", "yes", "enable.idempotence='yes' must be true or false"),
        ("linger.ms", "abc", "linger.ms='abc' must be a number"),
        ("linger_ms", "abc", "linger_ms='abc' must be a number"),
        ("linger-ms", "abc", "linger-ms='abc' must be a number"),
        ("linger.ms", -1, "linger.ms=-1 must be at least 0"),
        ("linger-ms", None, "linger-ms=None must be a number, not NoneType"),
        ("client.id", 5, "client.id=5 must be a str, not int"),
        ("batch.size", "batch_size", "batch.size='batch_size' must be a number"),
        ("partitioner", "linger.ms", "partitioner='linger.ms' must be a function, not str"),
        ("allowed.broker.hosts", ",", "allowed.broker.hosts is empty: name at least one, or leave"),
        ("linger.mss", "5", "there is no option linger.mss: did you mean linger.ms?"),
        ("linger_mss", "5", "there is no option linger_mss: did you mean linger.ms?"),
        ("linger-mss", "5", "there is no option linger-mss: did you mean linger.ms?"),
        ("receive-buffer.bytes", "5", "receive-buffer.bytes is not supported yet: leave it out"),
        ("ssl-cipher-suites", "A", "ssl-cipher-suites is not supported: give ssl.context with"),
        ("sasl_jaas.config", 5, "sasl_jaas.config must be a str"),
        ("compression-gzip-level", 5, "compression-gzip-level and compression.level are the same"),
        (
            "transactional-id",
            "linger.ms",
            "transactional-id needs enable.idempotence=true: leave enable.idempotence out",
        ),
    ],
)
def test_errors_of_properties_have_the_names_as_they_are_written(
    name: str, value: object, message: str
) -> None:
    given: dict[str, object] = {"bootstrap.servers": "a:1", name: value}
    if name == "transactional-id":
        given["enable.idempotence"] = False
    if name == "compression-gzip-level":
        given |= {"compression.type": "gzip", "compression.level": 5}
    with pytest.raises(InvalidConfigurationError) as caught:
        ProducerConfig.from_properties(given)
    assert caught.value.message.startswith(message)


def test_error_for_one_topic_names_the_argument_for_topics() -> None:
    options: dict[str, Any] = {"topic": "clicks"}
    with pytest.raises(InvalidConfigurationError, match=r"no option topic: did you mean topics\?"):
        Consumer("a:1", **options)


def test_error_for_a_configuration_of_another_client_names_both() -> None:
    config: Any = ConsumerConfig("a:1")
    with pytest.raises(InvalidConfigurationError) as caught:
        Producer(config=config)
    assert caught.value.message == "config must be a ProducerConfig, not a ConsumerConfig"


def test_error_for_a_java_name_as_keyword_names_the_option_and_from_properties() -> None:
    options: dict[str, Any] = {"linger.ms": 5}
    with pytest.raises(InvalidConfigurationError, match="write linger_ms, or give a dict"):
        ProducerConfig("a:1", **options)


@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_error_for_a_dict_in_place_of_servers_names_from_properties(role: Any) -> None:
    given = {"bootstrap.servers": "a:1", "sasl.password": "planted"}
    with pytest.raises(InvalidConfigurationError, match=r"dict.*from_properties") as caught:
        role(given)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    frames = [frame for frame in shown.stack if "kafka_async/config/" in frame.filename][1:]
    assert "planted" not in str([frame.locals for frame in frames])


@pytest.mark.parametrize("role", [ClientConfig, ProducerConfig, ConsumerConfig])
def test_from_properties_refuses_servers(role: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="takes a dict of Java's names"):
        role.from_properties("a:1")


class Sticky:
    """Does not derive from Assignor."""


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("stickier", "'stickier' is neither an Assignor nor one of 'range', 'roundrobin'"),
        (["range", "round-robin"], "'round-robin' is neither"),
        ([Sticky], "Sticky'> is neither"),
        (["range", RangeAssignor], "has 'range' twice"),
    ],
)
@pytest.mark.parametrize("group", [{}, {"group_id": "g"}])
def test_consumer_refuses_invalid_assignors_at_construction(
    strategy: Any, words: str, group: dict[str, Any]
) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        Consumer("a:1", topics=["t"], partition_assignment_strategy=strategy, **group)
    with pytest.raises(InvalidConfigurationError, match=words):
        Consumer(
            config=ConsumerConfig.from_properties(
                {"bootstrap.servers": "a:1", "partition.assignment.strategy": strategy}
            )
        )


@pytest.mark.parametrize("servers", [b"a:1", 5, None, [b"a:1"], ["a:1", None]])
def test_refuses_servers_that_are_not_text(servers: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"bootstrap_servers=.* must be a list"):
        ClientConfig(servers)


@pytest.mark.parametrize(
    "properties",
    [
        {"linger.ms": "5"},
        {"bootstrap.servers": "a:1", "linger.ms": "5", "linger_ms": "6"},
        {
            "bootstrap.servers": "a:1",
            "compression.type": "gzip",
            "compression.gzip.level": "5",
            "compression.level": "6",
        },
    ],
)
def test_refuses_invalid_properties(properties: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigurationError):
        ProducerConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("localhost:9092", ("localhost:9092",)),
        (" a:1 , b:2 ,", ("a:1", "b:2")),
        (["a:1", "b:2"], ("a:1", "b:2")),
        ("PLAINTEXT://broker:9092", ("broker:9092",)),
        ("[::1]:9092", ("[::1]:9092",)),
    ],
)
def test_parses_bootstrap_servers(servers: Any, expected: tuple[str, ...]) -> None:
    assert config.parse_servers(servers) == expected


@pytest.mark.parametrize("servers", ["", [], "localhost", "host:port", "a:0", "a:65536", "a b:1"])
def test_refuses_malformed_addresses(servers: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="localhost:9092"):
        config.parse_servers(servers)


@pytest.mark.parametrize(
    ("protocol", "meant"),
    [
        ("SSL", "SSL"),
        ("https", "SSL"),
        ("kafka", "SSL"),
        ("SASL_SSL", "SASL_SSL"),
        ("SASL_PLAINTEXT", "SASL_PLAINTEXT"),
    ],
)
def test_refuses_a_protocol_in_an_address(protocol: str, meant: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f'security_protocol="{meant}"'):
        config.parse_servers(f"{protocol}://broker:9092")


CLIENTS: list[tuple[Any, type[Any]]] = [
    (Client, ClientConfig),
    (Admin, ClientConfig),
    (Producer, ProducerConfig),
    (Consumer, ConsumerConfig),
]
SHARING = CLIENTS[1:]


@pytest.mark.parametrize(("client", "role"), CLIENTS)
def test_client_takes_a_configuration(client: Any, role: type[Any]) -> None:
    given = role("a:1, b:2", client_id="web")
    for made in (client(config=given), client(["a:1", "b:2"], config=given)):
        assert made.config is given
    by_property = role.from_properties({"bootstrap.servers": "a:1,b:2", "client.id": "web"})
    assert by_property == given == client("a:1,b:2", client_id="web").config
    assert client(bootstrap_servers="a:1,b:2", client_id="web").config == given


@pytest.mark.parametrize(("client", "role"), CLIENTS)
@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((), {"client_id": "w"}, r"client_id is given besides config=.*\(config, client_id=...\)"),
        ((), {"no_such_option": 1}, "no_such_option is given besides config="),
        ((), {"bootstrap_servers": "a:1"}, "bootstrap_servers is given besides config="),
        (("b:2",), {}, "'b:2' contradicts config=, which has 'a:1': leave the servers out"),
    ],
)
def test_client_refuses_what_contradicts_its_configuration(
    client: Any, role: type[Any], args: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        client(*args, config=role("a:1"), **options)
    with pytest.raises(InvalidConfigurationError, match=f"must be a {role.__name__}: from_prop"):
        client(*args, config={"bootstrap.servers": "a:1"}, **options)


@pytest.mark.parametrize("options", [{}, {"client_id": "web"}])
@pytest.mark.parametrize(
    ("client", "role"),
    [*CLIENTS, *((getattr(blocking, client.__name__), role) for client, role in CLIENTS)],
)
def test_client_refuses_a_configuration_in_place_of_servers(
    client: Any, role: type[Any], options: dict[str, Any]
) -> None:
    words = rf"give a configuration by name: config={role.__name__}\(\.\.\.\)"
    with pytest.raises(InvalidConfigurationError, match=words):
        client(role("a:1"), **options)
    with pytest.raises(InvalidConfigurationError, match=words):
        client(role("a:1"), config=role("a:1"))


@pytest.mark.parametrize("role", [role for role, _ in ROLES])
def test_configuration_refuses_servers_by_position_and_by_name(role: type[Any]) -> None:
    with pytest.raises(InvalidConfigurationError, match="bootstrap_servers is given twice"):
        role("a:1", bootstrap_servers="b:2")


@pytest.mark.parametrize("client", [client for client, _ in CLIENTS])
def test_client_without_servers_asks_for_them(client: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="bootstrap_servers is empty: name at"):
        client(client_id="web")


@pytest.mark.parametrize(("client", "role"), SHARING)
def test_client_takes_the_connection_options_of_a_shared_client(
    client: Any, role: type[Any]
) -> None:
    shared = Client("a:1", client_id="web", request_timeout_ms=5000)
    made = client(shared)
    assert made.client is shared
    assert (made.config.client_id, made.config.request_timeout_ms) == ("web", 5000)
    given = role("a:1", client_id="web", request_timeout_ms=5000)
    assert client(shared, config=given).config is given
    with pytest.raises(InvalidConfigurationError, match="client_id belongs to the shared Client"):
        client(shared, client_id="mine")
    with pytest.raises(InvalidConfigurationError, match="client_id belongs to the shared Client"):
        client(shared, config=role("a:1", client_id="mine", request_timeout_ms=5000))
    with pytest.raises(InvalidConfigurationError, match="hooks, clock and dialer belong to the"):
        client(shared, hooks=Hooks())


def test_producer_with_a_shared_client_takes_its_own_options() -> None:
    producer = Producer(Client("a:1", client_id="web"), linger_ms=1)
    assert (producer.config.client_id, producer.config.linger_ms) == ("web", 1)


@pytest.mark.parametrize("name", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
@pytest.mark.parametrize("make", PATHS)
def test_options_with_a_path_take_path_objects(make: Callable[..., Any], name: str) -> None:
    options = {"ssl_certfile": "c", name: Path("/etc/kafka/file.pem")}
    found = getattr(make(ClientConfig, security_protocol="SSL", **options), name)
    assert found == (Secret("/etc/kafka/file.pem") if name == "ssl_keyfile" else str(options[name]))


def test_options_of_sasl_with_a_path_take_path_objects() -> None:
    keytab = Path("/etc/kafka/client.keytab")
    found = ClientConfig(
        "a:1", security_protocol="SASL_SSL", sasl_mechanism="GSSAPI", sasl_kerberos_keytab=keytab
    )
    assert found.sasl_kerberos_keytab == str(keytab)
    found = ClientConfig(
        "a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_assertion_private_key_file=Path("/etc/kafka/key.pem"),
    )
    assert found.sasl_oauthbearer_assertion_private_key_file == "/etc/kafka/key.pem"


def test_properties_with_a_path_take_path_objects() -> None:
    found = ClientConfig.from_properties(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": Path("/etc/kafka/ca.pem"),
        }
    )
    assert found.ssl_cafile == "/etc/kafka/ca.pem"


def test_other_options_refuse_path_objects() -> None:
    with pytest.raises(
        InvalidConfigurationError, match=r"client_id=.* must be a str, not PosixPath"
    ):
        directly(ClientConfig, client_id=Path("/etc"))


KEY_TEXT = "-----BEGIN PRIVATE KEY-----\nplanted\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("ssl_cafile", "only the certificates as ssl_cafile"),
        ("ssl_certfile", "only the certificates as ssl_certfile"),
        ("client_id", "give it as ssl_keyfile"),
        ("sasl_oauthbearer_assertion_private_key_file", "write the text to a file"),
    ],
)
def test_error_for_a_private_key_in_another_option_says_where_it_belongs(
    option: str, advice: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=advice) as caught:
        directly(ClientConfig, **{option: KEY_TEXT})
    assert f"{option} contains a private key" in str(caught.value)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "option", ["sasl_username", "sasl_password", "sasl_kerberos_keytab", "sasl_delegation_token"]
)
def test_msk_iam_refuses_credentials_of_other_mechanisms(option: str) -> None:
    value: object = True if option == "sasl_delegation_token" else "x"
    words = f'{option} is given but sasl_mechanism="AWS_MSK_IAM" does not use it.*AWS environment'
    with pytest.raises(InvalidConfigurationError, match=words):
        directly(
            ClientConfig,
            security_protocol="SASL_SSL",
            sasl_mechanism="AWS_MSK_IAM",
            **{option: value},
        )


def with_provider(provider: Any) -> ClientConfig:
    return ClientConfig(
        "a:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_token_provider=provider,
    )


async def provide() -> Token:
    return Token("t")


async def provide_for(audience: str, scope: str = "") -> Token:
    return Token(audience + scope)


class AsyncProvider:
    async def __call__(self) -> Token:
        return Token("t")

    async def method(self) -> Token:
        return Token("t")


def provide_later() -> Awaitable[Token]:
    return provide()


@pytest.mark.parametrize(
    "provider",
    [
        provide,
        functools.partial(provide_for, "a"),
        functools.partial(functools.partial(provide_for), scope="b", audience="a"),
        AsyncProvider(),
        AsyncProvider().method,
        provide_later,
        lambda: provide_for("a"),
    ],
)
def test_accepts_every_provider_that_may_return_an_awaitable(provider: Any) -> None:
    assert with_provider(provider).sasl_token_provider is provider


class SyncProvider:
    def __call__(self) -> Token:
        return Token("t")


def provide_now() -> Token:
    return Token("t")


def generate() -> Iterator[Token]:
    yield Token("t")


async def generate_async() -> AsyncIterator[Token]:
    yield Token("t")


@pytest.mark.parametrize(
    "provider",
    [provide_now, functools.partial(provide_now), SyncProvider(), Token, generate, generate_async],
)
def test_refuses_a_provider_that_certainly_returns_no_awaitable(provider: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="define it with `async def`"):
        with_provider(provider)


@pytest.mark.parametrize("provider", [provide_for, functools.partial(provide_for, scope="b")])
def test_refuses_a_provider_that_needs_arguments(provider: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="is called without arguments"):
        with_provider(provider)


def test_configurations_are_immutable() -> None:
    config = ClientConfig("a:1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.client_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize("token", ["planted-token", {"access_token": "planted-token"}])
def test_a_token_in_place_of_its_provider_is_not_shown(token: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="must be a coroutine function") as raised:
        ClientConfig(
            "a:1",
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_token_provider=token,
        )
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    "option",
    [
        {"session_timeout_ms": 45_000},
        {"heartbeat_interval_ms": 3_000},
        {"partition_assignment_strategy": ["range"]},
    ],
)
def test_options_of_the_classic_group_protocol_are_refused_in_the_other(option: Any) -> None:
    [name] = option
    with pytest.raises(InvalidConfigurationError, match=f"{name}.*group_protocol"):
        ConsumerConfig("a:1", group_id="g", group_protocol="consumer", **option)


def test_assignor_of_the_coordinator_needs_the_consumer_protocol() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"group_remote_assignor.*group_protocol"):
        ConsumerConfig("a:1", group_id="g", group_remote_assignor="range")


def test_options_of_both_group_protocols_exclude_each_other_in_auto() -> None:
    with pytest.raises(
        InvalidConfigurationError, match="heartbeat_interval_ms and group_remote_assignor"
    ):
        ConsumerConfig(
            "a:1",
            group_id="g",
            group_protocol="auto",
            heartbeat_interval_ms=3_000,
            group_remote_assignor="range",
        )


@pytest.mark.parametrize(
    ("duration", "wanted"),
    [
        ("PT1H", 3600),
        ("pt1h", 3600),
        ("P1D", 86_400),
        ("P+1D", 86_400),
        ("-PT-1M", 60),
        ("P1DT2H3M4.5S", 93_784.5),
        ("PT1H2S", 3602),
        ("PT0.001S", 0.001),
        ("PT0S", 0),
    ],
)
def test_durations_of_the_reset_policy_are_those_of_java(duration: str, wanted: float) -> None:
    policy = f"by_duration:{duration}"
    config = ConsumerConfig.from_properties(
        {"bootstrap.servers": "h:1", "auto.offset.reset": policy}
    )
    assert config.auto_offset_reset == policy
    assert reset_duration(policy) == wanted


@pytest.mark.parametrize(
    "duration",
    ["", "x", "P", "PT", "P1DT", "P1Y", "P1W", "PT1H:", "PnDTnHnMn.nS", "-PT1H", "PT-1H", " PT1H"],
)
def test_invalid_durations_of_the_reset_policy_are_refused_as_by_java(duration: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="duration"):
        ConsumerConfig("h:1", auto_offset_reset=f"by_duration:{duration}")
