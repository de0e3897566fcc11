"""The cases over TLS: the broker's listener, and what each client is given to connect to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from benchmarks import rounds, topics
from benchmarks.cases import CASES
from benchmarks.peers import java_peer
from benchmarks.peers.aiokafka_peer import cluster_options as aiokafka_options
from benchmarks.peers.confluent_peer import cluster_options as confluent_options
from benchmarks.peers.task import Figures, Task
from benchmarks.processes import launch
from benchmarks.progress import Progress
from benchmarks.rounds import CaseRunner, FailedError, remaining
from benchmarks.runs import RunLog
from benchmarks.tls import TlsListener, client_options, make_certificate
from kafka_async.embedded import BlockingCluster, Listener, run_in_thread
from kafka_async.testing.backends.base import BackendUnavailableError

if TYPE_CHECKING:
    from tests.conftest import CannotRun

OVER_TLS = [case for case in CASES.values() if case.tls]


@pytest.fixture
def cafile(tmp_path: Path) -> str:
    file = tmp_path / "ca.pem"
    file.write_text(make_certificate()[0])
    return str(file)


class Listening(NamedTuple):
    """Holds an embedded cluster with a listener for TLS, and the file of its authority."""

    cluster: BlockingCluster
    cafile: str


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    folder = tmp_path_factory.mktemp("certificates")
    authority, certificate = make_certificate()
    cafile, broker = folder / "ca.pem", folder / "broker.pem"
    cafile.write_text(authority)
    broker.write_text(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(broker)
    tls = Listener(security_protocol="SSL", ssl_context=context)
    with run_in_thread(listeners={"PLAINTEXT": "PLAINTEXT", "TLS": tls}) as cluster:
        yield Listening(cluster, str(cafile))


def task(cafile: str = "", **options: Any) -> Task:
    return Task("consume", "broker:9093", "topic", cafile=cafile, records=1_000, **options)


def test_certificate_is_trusted_for_the_address_of_the_broker(tmp_path: Path) -> None:
    authority, certificate = make_certificate()
    file = tmp_path / "broker.pem"
    file.write_text(certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=authority)
    ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (ours, theirs):
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
    ours.do_handshake()
    theirs.do_handshake()
    assert ours.version() == "TLSv1.3"


def test_each_client_checks_the_broker_with_the_authority(cafile: str) -> None:
    assert client_options(cafile) == {"security_protocol": "SSL", "ssl_cafile": cafile}
    confluent = confluent_options(task(cafile))
    assert (confluent["security.protocol"], confluent["ssl.ca.location"]) == ("ssl", cafile)
    aiokafka = aiokafka_options(task(cafile))
    assert aiokafka["security_protocol"] == "SSL"
    assert aiokafka["ssl_context"].verify_mode is ssl.CERT_REQUIRED
    assert aiokafka["ssl_context"].get_ca_certs()


def test_clients_connect_without_tls_in_other_cases() -> None:
    assert client_options("") == {}
    assert confluent_options(task()) == {"bootstrap.servers": "broker:9093"}
    assert aiokafka_options(task()) == {"bootstrap_servers": "broker:9093"}


@pytest.mark.parametrize("case", OVER_TLS, ids=lambda case: case.name)
def test_clients_of_a_case_get_the_listener_with_tls(
    case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[Task] = []

    def launch(_peer: str, task: Task) -> Figures:
        tasks.append(task)
        raise FailedError("started")

    monkeypatch.setattr(rounds, "launch", launch)
    run_log = RunLog(tmp_path / "runs.jsonl", {}, resume=False)
    progress = Progress(remaining(case, case.contenders[:1], 1, run_log))
    with run_in_thread(brokers=1) as cluster:
        runner = CaseRunner(
            case,
            cluster.bootstrap_servers,
            run_log,
            progress,
            scale=0.001,
            tls=TlsListener("broker:9093", "ca.pem"),
        )
        runner.run(case.contenders[:1], 1)
    assert {(each.bootstrap, each.cafile) for each in tasks} == {("broker:9093", "ca.pem")}


@pytest.fixture
def peer(request: pytest.FixtureRequest, cannot_run: CannotRun) -> str:
    """Return the name of a client that this machine can run."""
    if request.param == "java":
        try:
            java_peer.prepare()
        except BackendUnavailableError as error:
            cannot_run("the benchmark's Java peer", error)
    return request.param


CLIENTS = ("kafka_async_python", "aiokafka", "confluent", "java", "raw_socket")


@pytest.mark.slow
@pytest.mark.parametrize("peer", CLIENTS, indirect=True)
def test_client_produces_and_consumes_over_tls(peer: str, listening: Listening) -> None:
    plaintext = listening.cluster.bootstrap_servers
    tls = listening.cluster.bootstrap_servers_of("TLS")
    topic = asyncio.run(topics.create(plaintext))
    given: dict[str, Any] = {"records": 4_000, "cafile": listening.cafile}
    produced = launch(peer, Task("produce", tls, topic, way="enqueue", **given))
    assert asyncio.run(topics.tally(plaintext, topic)).records == 4_000
    assert produced.records == (2_000 if peer == "java" else 4_000)  # without the warm-up
    filled = asyncio.run(topics.create(plaintext))
    asyncio.run(topics.fill(plaintext, filled, 4_000))
    verify = peer != "java"
    consumed = launch(peer, Task("consume", tls, filled, way="poll", verify=verify, **given))
    assert consumed.records == 4_000


@pytest.mark.slow
@pytest.mark.parametrize("peer", CLIENTS, indirect=True)
def test_client_does_not_trust_another_authority(
    peer: str, listening: Listening, cafile: str
) -> None:
    """Shows that the connection of the test above is checked."""
    tls = listening.cluster.bootstrap_servers_of("TLS")
    task = Task("consume", tls, "topic", cafile=cafile, way="poll", records=1)
    with pytest.raises(FailedError):
        launch(peer, task, time_limit=10.0)


def test_produce_and_consume_are_measured_over_tls_in_both_sizes() -> None:
    assert {(case.kind, case.size) for case in OVER_TLS} == {
        ("produce", 100),
        ("produce", 1024),
        ("consume", 100),
        ("consume", 1024),
    }
