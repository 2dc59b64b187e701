"""OpenEnv 0.10: any server with text in and out as a world, `oneiro.adapters.openenv_world:OpenEnvWorld`."""

from __future__ import annotations

from typing import Any

from openenv.core import GenericEnvClient
from pydantic import Field

from oneiro.runtime.errors import first_line
from oneiro.worlds.base import Step, World, WorldConfig, WorldLost, draw_level, level_key


class OpenEnvWorldConfig(WorldConfig):
    max_actions: int = Field(default=100, ge=1)
    url: str = "http://127.0.0.1:8000"
    action_field: str = "text"
    text_field: str = "text"
    """Which fields of actions and observations hold the text; where an observation has none, all of it is shown."""
    goal: str = ""
    """What the player is told, where the server gives no instruction."""


class OpenEnvWorld(World):
    """An environment that somebody serves. The server draws from the seed; equal first observations share a split."""

    name = "openenv"
    about = "an OpenEnv server: url=ADDRESS"
    Config = OpenEnvWorldConfig
    config: OpenEnvWorldConfig
    waits = True

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        self.client: Any = None
        self.first: dict[str, Any] = {}

    def _ask(self, method: str, *given: Any, **named: Any) -> Any:
        try:
            if self.client is None:
                self.client = GenericEnvClient(base_url=self.config.url).sync()
            return getattr(self.client, method)(*given, **named)
        except Exception as error:  # of sockets, of the library, or what the server said
            raise WorldLost(f"{self.config.url} does not answer ({first_line(error, 120)})") from error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.shown, key = draw_level(self.name, self.seed, self.split, self._draw, level_key)
        self.success = False
        return self.shown, {"key": key}

    def _draw(self, rng: Any) -> str:
        self.first = dict(self._ask("reset", seed=int(rng.integers(2**31))).observation)
        if legal := self.first.get("legal"):
            self.actions = tuple(map(str, legal))
        return self._text(self.first)

    def _text(self, observation: dict[str, Any]) -> str:
        return str(observation.get(self.config.text_field, observation))

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.success)
        result = self._ask("step", {self.config.action_field: action})
        before, self.shown = self.shown, self._text(result.observation)
        metadata = result.observation.get("metadata") or {}
        reward = float(result.reward or 0.0)
        self.success = bool(metadata.get("success", result.done and reward > 0))
        return self.outcome(
            reward,
            done=bool(result.done),
            success=self.success,
            valid=bool(metadata.get("valid", True)),
            effective=self.shown != before,
        )

    def render(self, view: str | None = None) -> str:
        return self.shown

    @property
    def instruction(self) -> str:
        return self.config.goal or str(self.first.get("instruction", "")) or "Act in the environment."

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
