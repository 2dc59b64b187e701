"""verifiers 0.4: the levels of a world as a `Taskset`, and an `Env` that plays them turn by turn.

verifiers finds a taskset by the name of a top-level module. So a file of your own that imports `WorldEnv` and
`WorldTaskset` from here, and names them in `__all__`, makes them known by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from oneiro.agents import game as games
from oneiro.agents.game import Attempt, Game
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Sample
from oneiro.worlds import make


class WorldTasksetConfig(vf.TasksetConfig):
    world: str = "frozen-lake"
    """A world, or world:variant."""
    settings: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Settings of the world."""
    split: str = "train"
    """`train` or `eval`: they share no level."""
    levels: int = 256
    first_seed: int = 0
    dialogue: dict[str, Any] = {}  # noqa: RUF012
    """How a model is asked: `max_turns`, `actions_per_turn`, `think` (`oneiro.agents.prompts.DialogueSettings`)."""


class LevelData(vf.TaskData):
    info: dict[str, Any]
    """What the episode is made from again: world, settings, split, seed and dialogue."""


class LevelTask(vf.Task[LevelData]):
    async def validate(self, runtime: Any) -> bool | None:
        """Whether the world's best player solves the level in time; None where the world has none."""
        world = make(self.data.info["world"], **self.data.info["settings"])
        world.reset(seed=self.data.info["seed"], options={"split": self.data.info["split"]})
        if not world.has_oracle:
            return None
        info: dict[str, Any] = {}
        while not world.over and (action := world.oracle()) is not None:
            *_, info = world.step(action)
        return bool(info.get("success"))


class WorldTaskset(vf.Taskset[LevelTask, WorldTasksetConfig]):
    def load(self) -> Iterator[LevelTask]:
        config = self.config
        for seed in range(config.first_seed, config.first_seed + config.levels):
            info = {
                "world": config.world,
                "settings": config.settings,
                "split": config.split,
                "seed": seed,
                "dialogue": {"world_model": False, **config.dialogue},
            }
            game = begin(info)
            system = game.messages[0]["content"] if len(game.messages) > 1 else None
            data = LevelData(
                name=f"{config.world}#{seed}",
                id=game.episode.task,
                prompt=game.messages[-1]["content"],
                system_prompt=system,
                info=info,
            )
            game.close()
            yield LevelTask(data, config.task)


class WorldEnvConfig(vf.EnvConfig):
    # A plain chat, here: an action is text, and nothing that the model writes is executed.
    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class WorldEnv(vf.Env[WorldEnvConfig]):
    """Rollouts of one task are members of a group: they share the level and not the noise."""

    async def start(self) -> None:
        self.members = Counter[str]()

    async def run(self, task: LevelTask, agents: Any) -> None:
        member = self.members[task.data.id]
        self.members[task.data.id] += 1
        game, dialogue = begin(task.data.info, member), DialogueSettings(**task.data.info["dialogue"])
        try:
            async with agents.player.interaction(task) as interaction:
                reply = await interaction.turn()  # the task's prompt is the first state
                while not reply.terminated:
                    games.take_many([game], [Sample.of_text(reply.last_reply)], dialogue)
                    if game.over or game.turn == dialogue.max_turns:
                        break
                    games.ask_many([game], dialogue)
                    if game.over:
                        break
                    reply = await interaction.turn(game.messages[-1]["content"])
        finally:
            game.close()
        if "error" in game.episode.info:
            raise RuntimeError(game.episode.info["error"])
        interaction.trace.record_reward("return", game.episode.score)
        interaction.trace.record_reward("success", float(game.episode.success), weight=0.0)


def begin(info: dict[str, Any], member: int = 0) -> Game:
    """An episode at its first turn, with the messages that ask for it."""
    game = Game(Attempt(info["seed"], member, split=info["split"]))
    games.make(game, lambda: make(info["world"], **info["settings"]))
    games.start_many([game])
    games.ask_many([game], DialogueSettings(**info["dialogue"]))
    if game.over:
        game.close()
        raise RuntimeError(game.episode.info["error"])
    return game


__all__ = ["WorldEnv", "WorldTaskset"]
