"""Who plays for SPA, and how a batch is played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oneiro.agents.policies import ModelPolicy, ServerPolicy
from oneiro.learning import stages
from oneiro.models.language import LanguageModel
from oneiro.recipe import load
from oneiro.runtime import seeds
from oneiro.systems.spa import self_play
from oneiro.systems.spa.recipe import SpaRecipe


def recipe(*overrides: str) -> SpaRecipe:
    return load("spa/frozen-lake", ["preset=smoke", *overrides], SpaRecipe)


def test_the_model_to_be_trained_plays_with_the_recipes_sampling(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(stages, "base_weights", lambda run, model: asked.append((run, model)) or tiny)
    own, run = recipe("max_batch_size=7"), SimpleNamespace()
    player = self_play.model_player(own, SimpleNamespace(policy="self"), run)  # type: ignore[arg-type]
    policy = player.policy()
    assert asked == [(run, own.model)] and isinstance(policy, ModelPolicy) and player.policy() is policy
    assert policy.engine.max_batch_size == 7 and policy.sampling == own.sampling
    assert player.response_prefix == own.response_prefix and player.chat is not None


def test_a_server_plays_without_tokens_of_ours() -> None:
    own = recipe("self_play.policy=server", "self_play.server.model=m")
    player = self_play.model_player(own, own.self_play, None)  # type: ignore[arg-type]
    assert isinstance(player.policy(), ServerPolicy) and player.chat is None and player.response_prefix == ""


@pytest.mark.parametrize(
    ("policy", "share", "actions"), [("random", 0.0, (1, 3)), ("mixture", 0.25, (1, 1)), ("oracle", 1.0, (1, 1))]
)
def test_scripts_play_by_their_share_of_the_oracle(
    policy: str, share: float, actions: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_play, "mixture", lambda share: share)
    monkeypatch.setattr(self_play, "ScriptedPolicy", lambda *given: given)
    own = recipe(f"self_play.policy={policy}", "self_play.oracle_share=0.25", "dialogue.actions_per_turn=3")
    assert self_play.scripted_player(own, own.self_play).policy() == (share, actions, True, True)


@pytest.mark.parametrize(("policy", "rounds"), [("exploration", [[0, 0], [1, 1], [2, 2]]), ("random", [[0, 1, 2] * 2])])
def test_an_explorer_has_one_attempt_at_every_level_before_the_next(
    policy: str, rounds: list[list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = recipe(f"self_play.policy={policy}", "self_play.levels=2", "self_play.group_size=3", "variants=[spa]")
    played: list[Any] = []
    written: list[Any] = []
    monkeypatch.setattr(self_play, "play", lambda made, part, *given: played.append((part, given)) or part)
    monkeypatch.setattr(self_play, "record", lambda episode: episode.member)
    monkeypatch.setattr(self_play, "write_episodes", lambda *given: written.append(given))
    player = self_play.Player(lambda: "policy", "chat", "prefix")  # type: ignore[arg-type, return-value]
    assert self_play.play_batch(own, tmp_path, "spa", 4, player) == 4
    assert [[one.member for one in part] for part, _ in played] == rounds
    seed = seeds.derive(own.seed, "self-play", 4)
    assert all(given == ("policy", own.dialogue, "chat", seed, "prefix") for _, given in played)
    ((folder, stage, batch, members),) = written
    assert (folder, stage, batch) == (tmp_path, "self-play", 4) and members == [m for part in rounds for m in part]
