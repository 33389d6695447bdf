"""The join of observations with the coordinators' views: each is judged with the views of its producer id, and in
batches of a limited size.
"""

from __future__ import annotations

from tests.builders import context, observation, view
from tests.cases import Cases
from txnscan.verdict.join import Judge, JudgeBatch, batches_of, by_producer_id
from txnscan.verdict.rules import judge_observation


def test_each_transaction_is_judged_with_the_views_of_its_producer_id() -> None:
    """An orphan, a stale epoch, and two coordinators that contradict each other."""
    found = [observation(producer_id=number, partition=number) for number in (7, 8, 9)]
    moved_on = view("Empty", 9, producer_id=8)
    both = (view("Ongoing", 3, producer_id=9), view("Empty", 4, producer_id=9, transactional_id="Y"))
    judge = Judge(by_producer_id((both[0], moved_on, both[1])), context())
    expected = [judge_observation(o, views, context()) for o, views in zip(found, ((), (moved_on,), both), strict=True)]
    assert list(judge(JudgeBatch(0, tuple(found)))) == expected
    assert len({one.judgement.reason for one in expected}) == 3


def test_the_views_of_a_producer_id_keep_their_order() -> None:
    one, other, third = view("Empty", 4), view("Empty", 5), view("Empty", 4, producer_id=8)
    assert by_producer_id([one, third, other]) == {7: (one, other), 8: (third,)}
    assert by_producer_id([]) == {}


def test_each_observation_is_in_one_batch_of_at_most_500() -> None:
    with Cases() as cases:
        for count, sizes in ((0, []), (1, [1]), (499, [499]), (500, [500]), (501, [500, 1]), (1_001, [500, 500, 1])):
            with cases.case(count):
                found = [observation(partition=number) for number in range(count)]
                batches = batches_of(found)
                assert [one for batch in batches for one in batch.observations] == found
                assert [batch.size for batch in batches] == sizes
                assert [batch.lane for batch in batches] == list(range(len(sizes))), "a lane of its own"
