"""What is trained on next, as a function of seed and index alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.tasks.textgame.data import Balanced, GoldMix, StateGroups
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl
from oneiro.worlds.textgame.dataset import Dataset, open_dataset, write_dataset
from oneiro.worlds.textgame.state import Kind, Transition


@pytest.fixture(scope="module")
def data() -> list[Transition]:
    """Many rows of one game, few of two others, and one game where nothing ever changes."""
    rows = list(crawl(["brew-tea"], "train", CrawlConfig(levels=2, still=8)))
    few = list(crawl(["mix-paint", "light-bulb"], "train", CrawlConfig(levels=1, still=6, max_steps=3)))
    dull = [replace(row, game="dull") for row in rows if not row.changed][:5]
    return rows + few + dull


def test_every_game_comes_equally_often_whatever_its_size(data: list[Transition]) -> None:
    sampler = Balanced(data, seed=1)
    for block in range(0, 40, 4):
        assert len({data[sampler.row(i)].game for i in range(block, block + 4)}) == 4


def test_changed_steps_have_their_share_in_every_game_that_has_them(data: list[Transition]) -> None:
    for share in (0.5, 0.25, 1.0, 0.0):
        sampler = Balanced(data, changed_share=share, seed=2)
        drawn = [data[sampler.row(i)] for i in range(4 * 80)]
        for game in ("brew-tea", "mix-paint", "light-bulb"):
            assert sum(case.changed for case in drawn if case.game == game) == round(80 * share)
        assert not any(case.changed for case in drawn if case.game == "dull")


def test_a_score_alone_that_changes_is_a_change(data: list[Transition]) -> None:
    scored = [replace(case, game="scored", score_after={**case.score, "score": 7}) for case in data if not case.changed]
    assert all(case.changed and not case.gold for case in scored)
    sampler = Balanced(scored, changed_share=1.0)
    assert len({sampler.row(i) for i in range(len(scored))}) == len(scored)


def test_what_counts_as_changed_is_the_part_that_is_asked(data: list[Transition]) -> None:
    """The command alone moves the first five rows, time alone the others."""
    gold = [replace(case, game="x") for case in data if case.gold][:20]
    rows = [replace(row, after_action=row.after if i < 5 else row.state) for i, row in enumerate(gold)]
    kinds: dict[Kind, set[int]] = {"action": set(range(5)), "tick": set(range(5, 20)), "full": set(range(20))}
    for kind, expected in kinds.items():
        sampler = Balanced(rows, kind, changed_share=1.0)
        assert {sampler.row(i) for i in range(20)} == expected


def test_no_row_comes_again_before_all_of_its_kind_have_come(data: list[Transition]) -> None:
    sampler = Balanced(data, seed=3)
    rows = [index for index, case in enumerate(data) if case.game == "light-bulb" and case.changed]
    drawn = [row for i in range(4 * 2 * 2 * len(rows)) if (row := sampler.row(i)) in rows]
    assert len(drawn) == 2 * len(rows)
    assert sorted(drawn[: len(rows)]) == sorted(drawn[len(rows) :]) == rows
    assert drawn[: len(rows)] != drawn[len(rows) :]


def test_an_index_alone_decides_the_row_in_any_order(data: list[Transition]) -> None:
    sampler, again, other = Balanced(data, seed=4), Balanced(data, seed=4), Balanced(data, seed=5)
    first = [sampler.row(i) for i in range(100)]
    assert [again.row(i) for i in reversed(range(100))] == first[::-1]
    assert [other.row(i) for i in range(100)] != first


def test_balanced_needs_rows_and_a_share(data: list[Transition]) -> None:
    with pytest.raises(OneiroError, match="no transitions"):
        Balanced([])
    with pytest.raises(OneiroError, match="between 0 and 1"):
        Balanced(data, changed_share=1.5)


def test_an_epoch_has_every_gold_row_once_and_the_asked_share_of_others(data: list[Transition]) -> None:
    mix = GoldMix(data, per_hundred=40, seed=1)
    gold = [index for index, case in enumerate(data) if case.gold]
    assert len(mix) == len(gold) + int(len(gold) * 0.4)
    for epoch in range(3):
        rows = Counter(mix.row(epoch * len(mix) + i) for i in range(len(mix)))
        assert all(rows[index] == 1 for index in gold)
        assert max(rows.values()) == 1


def test_the_others_and_the_order_are_new_in_every_epoch_and_the_same_in_every_process(data: list[Transition]) -> None:
    mix = GoldMix(data, seed=1)
    first, second = ([mix.row(e * len(mix) + i) for i in range(len(mix))] for e in (0, 1))
    assert first != second and set(first) != set(second)
    again = GoldMix(data, seed=1)
    assert [again.row(len(mix) + i) for i in range(len(mix))] == second


def test_more_others_than_there_are_come_with_repetition(data: list[Transition]) -> None:
    gold = [case for case in data if case.gold][:50]
    other = [case for case in data if not case.gold][:3]
    mix = GoldMix(gold + other, per_hundred=40)
    assert len(mix) == 70
    assert Counter(row >= 50 for row in mix.epoch(0)) == {True: 20, False: 50}


@pytest.fixture(scope="module")
def stored(data: list[Transition], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    out = tmp_path_factory.mktemp("stored")
    write_dataset(out, "games", [replace(case, split="train") for case in data], {})
    return open_dataset(out, "train")


def test_a_family_is_rows_of_one_state_with_a_share_of_changes(stored: Dataset) -> None:
    order = Balanced(stored, changed_share=0.5, seed=1)
    groups = StateGroups(stored, order, most=8, changed_share=0.75, seed=2)
    sizes = Counter[int]()
    for index in range(60):
        found = groups.group(index)
        assert found[0] == order.row(index) and len(set(found)) == len(found)
        rows = [stored[number] for number in found]
        assert len({str([row.game, row.state, row.score]) for row in rows}) == 1
        assert sum(row.changed for row in rows) <= 6 and sum(not row.changed for row in rows) <= 2
        row_id = [
            row for row in stored if (row.game, row.state, row.score) == (rows[0].game, rows[0].state, rows[0].score)
        ]
        assert sum(row.changed for row in rows) == min(6, sum(row.changed for row in row_id))
        sizes[len(found)] += 1
    assert sizes[8] > 10


def test_the_others_of_a_family_are_chosen_by_what_is_asked(stored: Dataset) -> None:
    order = Balanced(stored, "score", changed_share=1.0, seed=1)
    groups = StateGroups(stored, order, most=4, changed_share=0.25, seed=2, kind="score")
    for index in range(40):
        found = [stored[number].changes("score") for number in groups.group(index)]
        assert sum(found) <= 1 and len(found) - sum(found) <= 3


def test_a_family_of_one_is_the_row_itself_and_an_index_alone_decides_a_family(stored: Dataset) -> None:
    order = Balanced(stored, seed=1)
    single = StateGroups(stored, order, most=1, changed_share=0.5, seed=2)
    assert [single.group(i) for i in range(50)] == [[order.row(i)] for i in range(50)]
    first, again = (StateGroups(stored, order, most=6, changed_share=0.5, seed=3) for _ in range(2))
    assert [again.group(i) for i in reversed(range(30))] == [first.group(i) for i in range(30)][::-1]
