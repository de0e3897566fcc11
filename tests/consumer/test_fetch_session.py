"""Fetch sessions, compared with a model of a broker."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_async.consumer.fetch.fetch_session import (
    CLOSE,
    FULL,
    FetchSession,
    PartitionFetch,
    SessionRequest,
)
from kafka_async.types import TopicPartition

pytestmark = pytest.mark.one_kernel
IDS = [uuid.UUID(int=number) for number in (1, 2)]
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def want(offset: int, topic_id: uuid.UUID = IDS[0]) -> PartitionFetch:
    return PartitionFetch(topic_id, offset, 0, 1000)


def test_first_request_is_full_and_later_ones_name_changes() -> None:
    session = FetchSession()
    first = session.next_request({P0: want(0), P1: want(0)})
    assert (first.session_id, first.epoch, set(first.to_send)) == (0, FULL, {P0, P1})
    session.on_response(77)
    second = session.next_request({P0: want(5), P1: want(0)})
    assert second == SessionRequest(77, 1, {P0: want(5)}, (), frozenset())
    session.on_response(77)
    assert session.next_request({P0: want(5), P1: want(0)}) == SessionRequest(
        77, 2, {}, (), frozenset()
    )


def test_response_must_name_the_partitions_that_are_new_to_the_session() -> None:
    session = FetchSession()
    assert session.next_request({P0: want(0)}).new == {P0}
    session.on_response(77)
    assert session.next_request({P0: want(5), P1: want(0)}).new == {P1}
    session.on_response(77)
    assert session.next_request({P0: want(5, IDS[1]), P1: want(0)}).new == {P0}
    session.on_response(77)
    assert session.next_request({P0: want(5, IDS[1])}).new == set()
    session.on_response(77)
    assert session.next_request({P0: want(5, IDS[1]), P1: want(0)}).new == {P1}
    session.on_no_response()
    assert session.next_request({P0: want(5, IDS[1]), P1: want(0)}).new == {P0, P1}


def test_broker_without_sessions_gets_full_requests() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.next_request({P0: want(0)}).epoch == FULL
        session.on_response(0)


def test_replaces_session_after_missing_response() -> None:
    session = FetchSession()
    session.next_request({P0: want(0)})
    session.on_response(77)
    session.on_no_response()
    assert session.next_request({P0: want(3)}) == SessionRequest(
        77, FULL, {P0: want(3)}, (), frozenset({P0})
    )
    session.on_response(78)
    assert session.next_request({P0: want(3)}).session_id == 78


def test_response_of_another_session_starts_new_session() -> None:
    session = FetchSession()
    session.next_request({P0: want(0)})
    session.on_response(77)
    session.next_request({P0: want(1)})
    session.on_response(99)
    assert session.next_request({P0: want(2)}).epoch == FULL


def test_epoch_wraps_around_to_one() -> None:
    session = FetchSession()
    session.next_request({P0: want(0)})
    session.on_response(77)
    session._epoch = 2**31 - 1  # pyright: ignore[reportPrivateUsage]  # two billion answers later
    assert session.next_request({P0: want(0)}).epoch == 2**31 - 1
    session.on_response(77)
    assert session.next_request({P0: want(0)}).epoch == 1


def test_close_request_is_sent_once() -> None:
    session = FetchSession()
    assert session.closing_request() is None
    session.next_request({P0: want(0)})
    session.on_response(77)
    assert session.closing_request() == SessionRequest(77, CLOSE, {}, (), frozenset())
    assert session.closing_request() is None


class BrokerModel(RuleBasedStateMachine):
    """Models a broker that implements KIP-227 and loses sessions and responses."""

    def __init__(self) -> None:
        super().__init__()
        self.session = FetchSession()
        self.next_id = 1
        self.id, self.epoch = 0, 0
        self.fetched: dict[TopicPartition, PartitionFetch] = {}
        self.wanted: dict[TopicPartition, PartitionFetch] = {}

    @rule(
        wanted=st.dictionaries(
            st.sampled_from([P0, P1, P2]),
            st.builds(want, st.integers(0, 3), st.sampled_from(IDS)),
            min_size=1,
        ),
        lost=st.booleans(),
    )
    def fetch(self, wanted: dict[TopicPartition, PartitionFetch], lost: bool) -> None:
        request = self.session.next_request(wanted)
        self.wanted = wanted
        if request.epoch == FULL:
            self.id, self.epoch, self.fetched = self.next_id, 1, dict(request.to_send)
            self.next_id += 1
        elif (request.session_id, request.epoch) != (self.id, self.epoch):
            self.session.on_session_lost()
            self.fetched = wanted  # the response is an error, and the next request is full
            return
        else:
            self.epoch += 1
            for partition, topic_id in request.to_forget:
                if self.fetched[partition].topic_id == topic_id:
                    del self.fetched[partition]
            self.fetched.update(request.to_send)
        if lost:
            self.session.on_no_response()
        else:
            self.session.on_response(self.id)

    @rule()
    def evict(self) -> None:
        self.id, self.epoch = -1, -1

    @invariant()
    def broker_fetches_exactly_wanted_partitions(self) -> None:
        assert self.fetched == self.wanted


TestBrokerModel = BrokerModel.TestCase
