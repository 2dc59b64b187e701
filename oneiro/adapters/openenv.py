"""OpenEnv 0.10: any world as a server, `python -m oneiro.adapters.openenv sokoban:two-boxes --port 8000`; and any
server with text in and out as a world, `oneiro.adapters.openenv:OpenEnvWorld`.
"""

from __future__ import annotations

import argparse
import html
from typing import Any

from openenv.core import GenericEnvClient
from openenv.core.env_server import Action, Environment, Observation, State
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.types import ConcurrencyConfig, EnvironmentMetadata
from pydantic import Field

from oneiro.recipe import assignments
from oneiro.runtime.errors import first_line
from oneiro.worlds import make
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


SESSIONS, SESSION_TIMEOUT_S = 64, 3600.0
TASKS = 4096  # levels of a split that a client may list; any other seed plays too


class WorldAction(Action):
    text: str = Field(max_length=1 << 16)


class WorldObservation(Observation):
    text: str = ""
    instruction: str = ""
    """Goal, legend and actions; with the first observation only."""
    legal: list[str] = Field(default_factory=list)
    """The world's words; none where actions are free text."""


class WorldEnvironment(Environment[WorldAction, WorldObservation, State]):
    """One session: one world."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, world: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self.world, self.episode, self.score = make(world, **settings), "", 0.0

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, split: str | None = None, **task: Any
    ) -> WorldObservation:
        """`split` and `index` choose a task; else the seed draws from all levels."""
        level = task.get("index", seed)
        shown, info = self.world.reset(seed=level, options={"split": split, "member": int(task.get("member", 0))})
        self.episode, self.score = episode_id or info["key"], 0.0
        return self._observe(shown, instruction=self.world.instruction)

    def step(self, action: WorldAction, timeout_s: float | None = None, **rest: Any) -> WorldObservation:
        shown, reward, terminated, truncated, info = self.world.step(action.text)
        self.score += reward
        flags = {name: bool(info[name]) for name in ("valid", "effective", "success")}
        ended = {"terminated": terminated, "truncated": truncated}
        return self._observe(shown, reward=reward, done=terminated or truncated, metadata={**flags, **ended})

    def _observe(self, text: str, **rest: Any) -> WorldObservation:
        return WorldObservation(text=text, legal=list(self.world.actions or ()), **rest)

    @property
    def state(self) -> State:
        return State(episode_id=self.episode, step_count=self.world.taken, score=self.score)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self.world.name, description=self.world.about or self.world.name, version="1")

    # Its page at /web: what a world shows is text that anybody may have written.

    def render_web(self, observation: dict[str, Any]) -> str:
        return f"<pre>{html.escape(str(observation.get('text', '')))}</pre>"

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [(word, {"text": word}) for word in observation.get("legal", ())]

    # Levels as tasks

    def list_splits(self) -> list[str]:
        return ["train", "eval"]

    def num_tasks(self, split: str) -> int:
        return TASKS

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        if not 0 <= index < TASKS:
            raise IndexError(f"tasks are 0 to {TASKS - 1}")
        return {"id": f"{self.world.name}-{split}-{index}", "split": split, "index": index}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return [self.get_task(split, index) for index in range(TASKS)[slice(start, stop)]]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return self.get_task_range(split)


def app(world: str, **settings: Any) -> Any:
    """The server as an ASGI application. A session that is idle for an hour makes room for another."""
    limits = ConcurrencyConfig(max_concurrent_envs=SESSIONS, session_timeout=SESSION_TIMEOUT_S)
    name = make(world, **settings).name  # a wrong name or setting shows now, and not to the first client
    return create_app(
        lambda: WorldEnvironment(world, settings),
        WorldAction,
        WorldObservation,
        env_name=name,
        concurrency_config=limits,
    )


def main() -> None:
    """Serve a world on this machine's own address."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m oneiro.adapters.openenv", description=main.__doc__)
    parser.add_argument("world", help="a world, or world:variant")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    uvicorn.run(app(given.world, **assignments(given.settings)), host=given.host, port=given.port)


if __name__ == "__main__":
    main()
