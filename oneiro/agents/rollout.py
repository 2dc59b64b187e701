"""Multi-turn play: many worlds and one policy, turn by turn, into episodes.

A world that raises costs its own episode and no other: it ends as an error, which is counted and never trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oneiro import seeds
from oneiro.agents import prompts as words
from oneiro.agents import reply as replies
from oneiro.agents.policies import Policy, Turn, Utterance
from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import Episode, FinishReason, Row, given, lost
from oneiro.errors import OneiroError
from oneiro.models.chat import ChatFormat
from oneiro.worlds.base import World


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to be made: which level, and which of its attempts."""

    seed: int
    member: int = 0
    group: int = 0
    split: str = "train"
    task: Any = None
    """A task of the world's own kind to be given instead of the one that the seed draws, where the world takes one."""


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
    episode: Episode
    world: World = field(init=False)
    state: str = ""
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
    games: list[_Game] = []
    longest = getattr(policy, "longest_prompt", None)
    try:
        for task in planned:
            games.append(_Game(task, _episode(task)))
            with _guarded(games[-1]):
                games[-1].world = make_world()
                _start(games[-1])
        for number in range(1, settings.max_turns + 1):
            waiting = [game for game in games if not game.over]
            if not waiting:
                break
            turns: list[tuple[_Game, Turn]] = []
            for game in waiting:
                with _guarded(game):
                    turn = _ask(game, number, settings, chat, begun(response_prefix, game.state))
                    if number > 1 and longest is not None and len(turn.prompt) > longest:
                        _leave(game, number)
                    else:
                        turns.append((game, turn))
            answers = policy.answer([turn for _, turn in turns], seeds.derive(seed, "turn", number)) if turns else []
            for (game, turn), answer in zip(turns, answers, strict=True):
                with _guarded(game):
                    _take(game, turn, answer, settings)
            if advance is not None:
                advance(sum(game.over or number == settings.max_turns for game in waiting))
    finally:
        for game in games:
            if hasattr(game, "world"):
                with suppress(Exception):  # the episode is over, and the others wait to be closed too
                    game.world.close()
    return _unless_all_lost([game.episode for game in games])


@contextmanager
def _guarded(game: _Game) -> Iterator[None]:
    """What a world raises ends its episode as an error. A mistake that a person can mend is still the person's."""
    try:
        yield
    except OneiroError:
        raise
    except Exception as error:
        game.episode.finish_reason, game.over = FinishReason.ERROR, True
        game.episode.info["error"] = f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def _unless_all_lost(episodes: list[Episode]) -> list[Episode]:
    """Nothing is gained by going on where a world never works."""
    if len(episodes) > 1 and all("error" in episode.info for episode in episodes):
        raise OneiroError(
            f"the world {episodes[0].world} raised in all of its episodes ({lost(episodes)}); mend it first"
        )
    return episodes


def begun(response_prefix: str, state: str) -> str:
    """How a reply to `state` is made to begin; `{state}` in `response_prefix` stands for the state's text."""
    return response_prefix.replace("{state}", state)


def gives_state(response_prefix: str) -> bool:
    """Whether replies begin with the true state, so that writing it down is no achievement."""
    return "{state}" in response_prefix


def _episode(task: Attempt) -> Episode:
    return Episode(
        rows=[],
        terms={"world": [], "format": []},
        seed=task.seed,
        member=task.member,
        group=task.group,
        info={"turns": [], "optimum": None},
    )


def _start(game: _Game) -> None:
    game.episode.world = game.world.name
    options = {"split": game.task.split, "member": game.task.member}
    if game.task.task is not None:
        options["task"] = game.task.task
    game.state, info = game.world.reset(seed=game.task.seed, options=options)
    game.episode.task, game.episode.info["optimum"] = info["key"], info.get("optimum")


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


def _leave(game: _Game, number: int) -> None:
    """The dialogue has outgrown the model: the episode ends with the turn before, and without what was to be asked."""
    game.episode.finish_reason, game.over = FinishReason.LENGTH, True
    row = game.episode.rows[-1]
    row.segments = [segment for segment in row.segments if segment.turn != number]
    if not row.segments:
        game.episode.rows.pop()


def _take(game: _Game, turn: Turn, answer: Utterance, settings: DialogueSettings) -> None:
    """Read the answer, act in the world, and write down what it earned."""
    episode = game.episode
    if len(turn.prompt):
        episode.rows[-1].segments.extend(answer.segments)
    elif answer.prompt is not None:
        episode.rows.append(Row([given(answer.prompt, turn=turn.number), *answer.segments]))
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
