"""Multi-turn play: many worlds and one policy, turn by turn, into episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oneiro import seeds
from oneiro.agents import prompts as words
from oneiro.agents import reply as replies
from oneiro.agents.policies import Policy, Turn, Utterance
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Episode, FinishReason, Row, given
from oneiro.models.chat import ChatFormat
from oneiro.worlds.base import World


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to be made: which level, and which of its attempts."""

    seed: int
    member: int = 0
    group: int = 0
    split: str = "train"


def attempts(levels: int, group_size: int, split: str, first_seed: int) -> list[Attempt]:
    """Levels `first_seed`, `first_seed + 1`, ... of a split, each attempted `group_size` times; the group numbers the
    level.
    """
    return attempts_at(range(first_seed, first_seed + levels), group_size, split)


def attempts_at(level_seeds: Sequence[int], group_size: int, split: str) -> list[Attempt]:
    """The levels of these seeds, each attempted `group_size` times."""
    return [
        Attempt(seed, member, level, split) for level, seed in enumerate(level_seeds) for member in range(group_size)
    ]


@dataclass(slots=True)
class _Game:
    """An episode under way."""

    task: Attempt
    world: World
    episode: Episode
    state: str
    past: list[tuple[str, tuple[str, ...], float]] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    ended: bool = True
    used: int = 0
    over: bool = False


def play(
    make_world: Callable[[], World],
    planned: Sequence[Attempt],
    policy: Policy,
    settings: DialogueSettings,
    chat: ChatFormat | None = None,
    seed: int = 0,
    response_prefix: str = "",
    advance: Callable[[int], object] | None = None,
) -> list[Episode]:
    """Play every attempt to its end.

    `chat` turns messages into ids; without it (scripts, servers) episodes carry text only. `response_prefix` is text
    that every reply begins with (see `begun`); it counts as given. `advance` is called after each turn with the number
    of games that ended.
    """
    games = [_start(make_world(), task) for task in planned]
    for number in range(1, settings.max_turns + 1):
        waiting = [game for game in games if not game.over]
        if not waiting:
            break
        turns = [_ask(game, number, settings, chat, begun(response_prefix, game.state)) for game in waiting]
        answers = policy.answer(turns, seeds.derive(seed, "turn", number))
        for game, turn, answer in zip(waiting, turns, answers, strict=True):
            _take(game, turn, answer, settings)
        if advance is not None:
            advance(sum(game.over or number == settings.max_turns for game in waiting))
    for game in games:
        game.world.close()
    return [game.episode for game in games]


def begun(response_prefix: str, state: str) -> str:
    """How a reply to `state` is made to begin; `{state}` in `response_prefix` stands for the state's text."""
    return response_prefix.replace("{state}", state)


def gives_state(response_prefix: str) -> bool:
    """Whether replies begin with the true state, so that writing it down is no achievement."""
    return "{state}" in response_prefix


def _start(world: World, task: Attempt) -> _Game:
    state, info = world.reset(seed=task.seed, options={"split": task.split, "member": task.member})
    episode = Episode(
        rows=[],
        seed=task.seed,
        member=task.member,
        group=task.group,
        task=info["key"],
        world=world.name,
        info={"turns": [], "optimum": info.get("optimum")},
    )
    episode.terms = {"world": [], "format": []}
    return _Game(task, world, episode, state)


def _ask(game: _Game, number: int, settings: DialogueSettings, chat: ChatFormat | None, response_prefix: str) -> Turn:
    """Put the game's state into words and ids. A full-history dialogue grows its row; the other contexts start a new
    one.
    """
    left = game.world.config.max_actions - game.used
    system = "" if settings.brief else words.SYSTEM
    growing = settings.context == "full" and number > 1
    if growing:
        message = words.next_message(game.past[-1][2], number, game.state, left, settings)
    elif settings.context == "full":
        message = words.first_message(game.world, game.state, settings)
    else:
        message = words.history_message(game.world, game.past, number, game.state, left, settings)
        game.messages = []
    if not game.messages and system:
        game.messages.append({"role": "system", "content": system})
    game.messages.append({"role": "user", "content": message})
    prompt = np.zeros(0, np.int32)
    if chat is not None:
        if growing and not chat.rewrites:
            row = game.episode.rows[-1]
            row.segments.append(given(chat.next_user(message, game.ended), turn=number))
        elif growing:
            row = Row([given(chat.whole(game.messages), turn=number)])
            game.episode.rows.append(row)
        else:
            row = Row([given(chat.opening(message, system), turn=number)])
            game.episode.rows.append(row)
        if response_prefix:
            row.segments.append(given(chat.encode(response_prefix), role="assistant", turn=number))
        prompt = row.tokens
    return Turn(
        game.world,
        game.state,
        prompt,
        game.messages,
        number,
        seeds.derive(game.task.seed, game.task.member, number),
        response_prefix,
    )


def _take(game: _Game, turn: Turn, answer: Utterance, settings: DialogueSettings) -> None:
    """Read the answer, act in the world, and write down what it earned."""
    episode = game.episode
    if episode.rows:
        episode.rows[-1].segments.extend(answer.segments)
    game.messages.append({"role": "assistant", "content": answer.text})
    game.ended = answer.finish_reason is FinishReason.TOKEN
    if answer.finish_reason is FinishReason.ERROR:
        episode.finish_reason, game.over = FinishReason.ERROR, True
        return
    form = settings.think, settings.world_model, settings.actions_per_turn, settings.parser
    reply = replies.read(answer.text, *form)
    before, earned, valid = game.state, 0.0, bool(reply.actions)
    executed: list[dict[str, Any]] = []
    for action in reply.actions:
        state, reward, terminated, truncated, info = game.world.step(action)
        game.state, earned, game.used = state, earned + reward, game.used + 1
        valid = valid and info["valid"]
        executed.append({"action": action, "valid": info["valid"], "effective": info["effective"]})
        episode.success = bool(info["success"])  # some worlds go on after it, and turns may run out before actions do
        if terminated or truncated:
            game.over = True
            episode.finish_reason = (
                FinishReason.GOAL if episode.success else FinishReason.FAILED if terminated else FinishReason.BUDGET
            )
            break
    observed, predicted = reply.body(reply.observation), reply.body(reply.prediction)
    terms = {"world": earned, "format": 0.0 if valid and reply.formatted else -settings.format_penalty}
    if settings.world_model and (settings.state_reward or settings.state_penalty):
        true = (observed == before) + (predicted == game.state)
        terms["states"] = settings.state_reward * true - settings.state_penalty * (2 - true)
        episode.terms.setdefault("states", [])
    for name, value in terms.items():
        episode.terms[name].append(value)
    episode.rewards.append(sum(terms.values()))
    game.past.append((before, tuple(step["action"] for step in executed), earned))
    episode.info["turns"].append(
        {
            "message": turn.messages[-2]["content"],
            "state": before,
            "reply": answer.text,
            "actions": executed,
            "reward": episode.rewards[-1],
            "observation": observed,
            "prediction": predicted,
            "next_state": game.state,
        }
    )
