"""`oneiro bench web --rollouts`: loops that play the same, counted by hand."""

from __future__ import annotations

import pytest

from bench import rollouts, web
from bench.rollouts import Loop, TimedModel, compare
from oneiro.episode import Episode
from oneiro.runtime.errors import OneiroError


def test_both_loops_play_the_same_episodes_and_only_one_of_them_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    played: dict[str, tuple[list[int], list[int]]] = {}
    go = Loop.go

    def noted(self: Loop, number: int) -> None:
        inner = self.play

        def play(own: TimedModel) -> list[Episode]:
            episodes = inner(own)
            played[self.name] = [len(e.rewards) for e in episodes], own.rows
            return episodes

        self.play = play
        go(self, number)

    monkeypatch.setattr(Loop, "go", noted)
    monkeypatch.setattr(rollouts, "take_turns", lambda title, loops, rounds: [c.go(0, True) for c in loops])
    (table,) = compare(None, episodes=8, concurrency=2, max_actions=6, new_tokens=2, lines=8, rounds=1)
    lengths, rows = played["synchronous"]
    assert played["continuous"][0] == lengths and len(set(lengths)) > 1
    assert len(rows) == sum(max(lengths[i : i + 2]) for i in range(0, 8, 2))
    assert sum(rows) == sum(played["continuous"][1]) == sum(lengths)
    assert len(played["continuous"][1]) < len(rows)
    assert [row["loop"] for row in table.data()["rows"]] == ["synchronous", "continuous"]
    busy = [row["sampler busy, % of time"] for row in table.data()["rows"]]
    assert all(0 < (share["value"] if isinstance(share, dict) else share) <= 100 for share in busy)


def test_options_of_rollouts_need_the_flag() -> None:
    with pytest.raises(OneiroError, match="--workers without --rollouts"):
        web.run(None, workers=2)
