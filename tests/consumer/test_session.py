"""Fetch sessions: a model of a broker hears what each request names and knows what to fetch."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafka_async.consumer.fetch_session import CLOSE, FULL, FetchSession, Round, Wanted
from kafka_async.types import TopicPartition

IDS = [uuid.UUID(int=number) for number in (1, 2)]
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def want(offset: int, topic_id: uuid.UUID = IDS[0]) -> Wanted:
    return Wanted(topic_id, offset, 0, 1000)


def test_the_first_request_names_everything_and_the_next_what_changed() -> None:
    session = FetchSession()
    first = session.next({P0: want(0), P1: want(0)})
    assert (first.session_id, first.epoch, set(first.named)) == (0, FULL, {P0, P1})
    session.answered(77)
    second = session.next({P0: want(5), P1: want(0)})
    assert second == Round(77, 1, {P0: want(5)}, ())
    session.answered(77)
    assert session.next({P0: want(5), P1: want(0)}) == Round(77, 2, {}, ())


def test_what_is_no_longer_wanted_is_forgotten_and_may_come_back() -> None:
    session = FetchSession()
    session.next({P0: want(0), P1: want(0)})
    session.answered(77)
    assert [row.partition for row in session.next({P0: want(0)}).forgotten] == [P1]
    session.answered(77)
    assert session.next({P0: want(0), P1: want(0)}).named == {P1: want(0)}


def test_a_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = FetchSession()
    session.next({P0: want(0)})
    session.answered(77)
    again = session.next({P0: want(0, IDS[1])})
    assert again.named == {P0: want(0, IDS[1])}
    assert again.forgotten == ((P0, IDS[0]),)


def test_a_broker_without_sessions_is_asked_in_full_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        assert session.next({P0: want(0)}).epoch == FULL
        session.answered(0)


def test_after_an_unclear_end_the_old_session_is_replaced() -> None:
    session = FetchSession()
    session.next({P0: want(0)})
    session.answered(77)
    session.unclear()
    assert session.next({P0: want(3)}) == Round(77, FULL, {P0: want(3)}, ())
    session.answered(78)
    assert session.next({P0: want(3)}).session_id == 78


def test_an_answer_of_another_session_starts_over() -> None:
    session = FetchSession()
    session.next({P0: want(0)})
    session.answered(77)
    session.next({P0: want(1)})
    session.answered(99)
    assert session.next({P0: want(2)}).epoch == FULL


def test_epochs_go_round_without_zero() -> None:
    session = FetchSession()
    session.next({P0: want(0)})
    session.answered(77)
    session._epoch = 2**31 - 1  # pyright: ignore[reportPrivateUsage]  # two billion answers later
    assert session.next({P0: want(0)}).epoch == 2**31 - 1
    session.answered(77)
    assert session.next({P0: want(0)}).epoch == 1


def test_closing_names_the_session_once() -> None:
    session = FetchSession()
    assert session.close() is None
    session.next({P0: want(0)})
    session.answered(77)
    assert session.close() == Round(77, CLOSE, {}, ())
    assert session.close() is None


class BrokerModel(RuleBasedStateMachine):
    """A broker that follows KIP-227 and loses sessions and answers."""

    def __init__(self) -> None:
        super().__init__()
        self.session = FetchSession()
        self.next_id = 1
        self.id, self.epoch = 0, 0
        self.fetched: dict[TopicPartition, Wanted] = {}
        self.wanted: dict[TopicPartition, Wanted] = {}

    @rule(
        wanted=st.dictionaries(
            st.sampled_from([P0, P1, P2]),
            st.builds(want, st.integers(0, 3), st.sampled_from(IDS)),
            min_size=1,
        ),
        lost=st.booleans(),
    )
    def ask(self, wanted: dict[TopicPartition, Wanted], lost: bool) -> None:
        asked = self.session.next(wanted)
        self.wanted = wanted
        if asked.epoch == FULL:
            self.id, self.epoch, self.fetched = self.next_id, 1, dict(asked.named)
            self.next_id += 1
        elif (asked.session_id, asked.epoch) != (self.id, self.epoch):
            self.session.forgotten()
            self.fetched = wanted  # it is refused, and asked in full next
            return
        else:
            self.epoch += 1
            for partition, topic_id in asked.forgotten:
                if self.fetched[partition].topic_id == topic_id:
                    del self.fetched[partition]
            self.fetched.update(asked.named)
        if lost:
            self.session.unclear()
        else:
            self.session.answered(self.id)

    @rule()
    def evict(self) -> None:
        self.id, self.epoch = -1, -1

    @invariant()
    def the_broker_fetches_what_is_wanted(self) -> None:
        assert self.fetched == self.wanted


TestBrokerModel = BrokerModel.TestCase
