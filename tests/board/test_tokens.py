"""Recorded tokens: the ids as they were, who wrote them, how likely they were; and the way back from a rewind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oneiro.board.folders import RunFolder, Runs
from oneiro.board.tokens import ShownToken, split_text, token_rows
from oneiro.episode import Episode, Row, Segment, given
from oneiro.models.language import LanguageModel
from oneiro.recipe import Recipe
from oneiro.rundir.records import read_tokens, token_file
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError


def episode(*replies: list[int]) -> Episode:
    rows = []
    for reply in replies:
        sampled = Segment(np.array(reply), True, logprobs=np.log(np.full(len(reply), 0.25)))
        rows.append(Row([given([1, 2]), Segment(np.array([7]), role="forced"), sampled]))
    return Episode(rows)


def test_one_episode_is_read_without_the_others(tmp_path: Path) -> None:
    with Run.open(tmp_path, Recipe(system="toy")) as run:
        run.tokens("rl", 3, [episode([5]), episode([3, 4], [6])])
    file = token_file(tmp_path, "rl", 3)
    (first, second) = read_tokens(file, 1)
    assert first.ids == [1, 2, 7, 3, 4] and first.authors == [0, 0, 2, 1, 1]
    assert first.logprobs == pytest.approx([0, 0, 0, np.log(0.25), np.log(0.25)])
    assert second.ids == [1, 2, 7, 6] and read_tokens(file, 2) == []
    file.write_bytes(b"PAR1 no parquet")
    with pytest.raises(OneiroError, match="damaged"):
        read_tokens(file, 0)


def test_a_rewind_takes_tokens_back_with_their_episodes(tmp_path: Path) -> None:
    with Run.open(tmp_path, Recipe(system="toy")) as run:
        for step in (1, 2):
            run.episodes("rl", step, [{}])
            run.tokens("rl", step, [episode([5])])
        run.tokens("rl-other", 2, [episode([5])])
        run.rewind("rl", 1)
    left = sorted(path.name for path in (tmp_path / "episodes").iterdir())
    assert left == ["rl-000001.jsonl.gz", "rl-000001.tokens.parquet", "rl-other-000002.tokens.parquet"]


def test_the_same_episodes_give_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        with Run.open(tmp_path / name, Recipe(system="toy")) as run:
            run.tokens("rl", 1, [episode([3, 4], [6])])
        files.append(token_file(tmp_path / name, "rl", 1).read_bytes())
    assert files[0] == files[1]


def test_a_page_shows_the_text_of_each_token_and_how_likely_it_was(tmp_path: Path, tiny: LanguageModel) -> None:
    ids = tiny.tokenizer.encode("P _ hé")
    tiny.save(tmp_path / "checkpoints" / "rl" / "model")
    with Run.open(tmp_path / "run", Recipe(system="toy")) as run:
        run.tokens("rl", 1, [episode(ids)])
    run_folder = next(iter(Runs([tmp_path / "run"]).all().values()))
    (without,) = rows_of(run_folder)
    assert [token.text for token in without][:3] == ["1 ", "2 ", "7 "]  # no tokenizer: the ids themselves
    (tmp_path / "checkpoints").rename(tmp_path / "run" / "checkpoints")
    (shown,) = rows_of(run_folder)
    own = [token for token in shown if token.author == "sampled"]
    assert "".join(token.text for token in own) == "P _ hé" and len(own) == len(ids)
    assert {token.heat for token in own} == {7} and "25.0%" in own[0].note  # 1 - 0.25, in tenths
    assert [token.author for token in shown[:3]] == ["given", "given", "forced"]


def rows_of(run: RunFolder, colour: str = "") -> list[list[ShownToken]]:
    tokens = token_rows(run, "rl", 1, 0, colour)
    assert tokens is not None
    return tokens.rows


def test_tokens_are_coloured_by_entropy_and_by_the_sign_of_their_advantage(tmp_path: Path) -> None:
    one = episode([3, 4], [6])
    for row, advantage in zip(one.rows, (1.0, -0.5), strict=True):
        row.entropies = np.where(row.sampled, 0.5, 0.0).astype(np.float32)
        row.advantages = np.where(row.sampled, advantage, 0.0).astype(np.float32)
    one.rows[0].entropies = np.array([0, 0, 0, 2.0, 0.5], np.float32)
    with Run.open(tmp_path, Recipe(system="toy")) as run:
        run.tokens("rl", 1, [one, episode([5])])  # the second was not learned from
    folder = next(iter(Runs([tmp_path]).all().values()))
    assert read_tokens(token_file(tmp_path, "rl", 1), 1)[0].advantages is None
    first, second = rows_of(folder, "entropy")
    # Of the largest, 2 nats: all, a quarter and a quarter.
    assert [token.heat for token in first] == [0, 0, 0, 9, 2] and [token.heat for token in second][3:] == [2]
    first, second = rows_of(folder, "advantage")
    assert [(token.sign, token.heat) for token in first[3:]] == [("up", 9), ("up", 9)]
    assert [(token.sign, token.heat) for token in second[3:]] == [("down", 5)]
    assert "entropy 2.000, advantage +1.000" in first[3].note and "entropy" not in first[0].note
    other = token_rows(folder, "rl", 1, 1, "entropy")
    assert other is not None and other.colour == "logprob" and set(other.colours) == {"logprob", "author"}


def test_a_character_of_several_tokens_stands_with_its_last(tiny: LanguageModel) -> None:
    ids = tiny.tokenizer.encode("é")
    assert len(ids) == 2
    assert split_text(ids, tiny.tokenizer.backend_tokenizer) == ["", "é"]
