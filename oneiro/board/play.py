"""Play: a person acts; the learned world and the true one answer side by side.

A session is its address (run, model, game, seed, mode, actions) and can be played again from there, so that it can be
sent, taken back and forked at any step. The server remembers the last one of each model, and what models answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oneiro.board.folders import RunFolder
from oneiro.board.tables import Option, PlayTable
from oneiro.episode import FinishReason
from oneiro.rundir.records import write_episodes
from oneiro.runtime.errors import OneiroError

MAX_ACTIONS = 200
MAX_ACTION_CHARS = 300
MAX_SHOWN_ACTIONS = 400  # a text game understands hundreds of commands
STAGE = "play"

Mode = Literal["step", "free"]


@dataclass(frozen=True)
class PlayedStep:
    """One action, what truly followed and what the model said would."""

    action: str
    before: str
    truth: str
    predicted: str | None
    """None: it could not be read, and changes nothing in the learned world."""
    exact: bool
    verdict: str
    reward: float


@dataclass(frozen=True)
class Session:
    world: str
    instruction: str
    level: str
    seed: int
    mode: Mode
    start: str
    steps: list[PlayedStep]
    actions: dict[str, str]
    """Action -> what a button says of it."""
    more_actions: int
    over: bool
    success: bool
    finish: FinishReason
    options: list[Option] | None
    document: str | None
    """The true page as HTML, for a frame."""

    @property
    def truth(self) -> str:
        return self.steps[-1].truth if self.steps else self.start

    @property
    def parted(self) -> int | None:
        """The first step, from 1, at which the two differ; None while they agree."""
        return next((number for number, step in enumerate(self.steps, 1) if not step.exact), None)

    @property
    def right(self) -> int:
        return sum(step.exact for step in self.steps)


class Playing:
    """Both worlds at one point of a session.

    In step, the model is given the true state before each action, so that single errors count; free, it goes on from
    its own predictions, and drifts. Levels are of the evaluation split: no model trained on them.
    """

    def __init__(self, table: PlayTable, game: str, seed: int, mode: Mode) -> None:
        self.table, self.begun, self.mode = table, (game, seed, mode), mode
        self.world = table.make_world(game)
        _, info = self.world.reset(seed=seed, options={"split": "eval"})
        self.level = str(info["key"])
        self.truth = self.imagined = table.state_of(self.world)
        self.start = table.dynamics.show(self.truth)
        self.taken: list[str] = []
        self.steps: list[PlayedStep] = []
        self.success, self.finish = False, FinishReason.TURNS

    def act(self, action: str) -> None:
        """Take an action on both sides; nothing once the episode is over."""
        from oneiro.tasks.base import Malformed

        self.taken.append(action)
        if self.world.over:
            return
        table, dynamics = self.table, self.table.dynamics
        before = self.imagined if self.mode == "free" else self.truth
        predicted = dynamics.predict([(before, table.carry(action, self.truth, before))])[0][0].state
        _, reward, terminated, truncated, info = self.world.step(action)
        self.truth, readable = table.state_of(self.world), not isinstance(predicted, Malformed)
        self.imagined = predicted if readable else before
        self.success = bool(info["success"])
        if terminated or truncated:
            ended = FinishReason.FAILED if terminated else FinishReason.BUDGET
            self.finish = FinishReason.GOAL if self.success else ended
        exact, verdict = table.judge(predicted, self.truth) if readable else (False, "unreadable")
        shown = dynamics.show(predicted) if readable else None
        self.steps.append(
            PlayedStep(action, dynamics.show(before), dynamics.show(self.truth), shown, exact, verdict, reward)
        )


def play(table: PlayTable, game: str, seed: int, actions: Sequence[str], mode: Mode, ask: bool = False) -> Session:
    """Take all actions in the true world and, one by one, in the learned one."""
    if len(actions) > MAX_ACTIONS or any(len(action) > MAX_ACTION_CHARS for action in actions):
        raise OneiroError(f"a session has at most {MAX_ACTIONS} actions of {MAX_ACTION_CHARS} characters")
    with table.lock:
        now = table.playing
        if now is None or now.begun != (game, seed, mode) or now.taken != list(actions[: len(now.taken)]):
            table.close()
            now = Playing(table, game, seed, mode)
        table.playing = None  # a step that fails leaves a world that nobody should go on from
        for action in actions[len(now.taken) :]:
            now.act(action)
        world, table.playing = now.world, now
        known = dict(table.actions_of(world)) if not world.over else {}
        return Session(
            world=world.name,
            instruction=world.instruction,
            level=now.level,
            seed=seed,
            mode=mode,
            start=now.start,
            steps=list(now.steps),
            actions=dict(list(known.items())[:MAX_SHOWN_ACTIONS]),
            more_actions=max(0, len(known) - MAX_SHOWN_ACTIONS),
            over=world.over,
            success=now.success,
            finish=now.finish,
            options=table.ask(world) if ask and table.ask and not world.over else None,
            document=table.document(world) if table.document else None,
        )


def save(run: RunFolder, model: str, session: Session) -> int:
    """Write the session as an episode of the run's stage `play`; returns its step."""
    step = 1 + max(run.episodes.steps().get(STAGE, {-1: Path()}))
    turns = [
        {
            "message": "",
            "state": one.before,
            "reply": "",
            "actions": [one.action],
            "reward": one.reward,
            "prediction": one.predicted,
            "next_state": one.truth,
        }
        for one in session.steps
    ]
    record = {
        "world": session.world,
        "task": session.level,
        "seed": session.seed,
        "success": session.success,
        "finish_reason": str(session.finish),
        "score": sum(one.reward for one in session.steps),
        "player": "person",
        "model": model,
        "mode": session.mode,
        "parted": session.parted,
        "turns": turns,
    }
    write_episodes(run.path, STAGE, step, [record])
    return step
