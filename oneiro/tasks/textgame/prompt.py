"""What a model is asked about a text game, and the answer in the same hand.

The parts that stay the same come first (task, example, rules of the game), the state and the command last, so that
prompts of one game share a long prefix.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.tasks.textgame.parse import MARKER, Output
from oneiro.tasks.textgame.score import AskedStep
from oneiro.worlds.textgame.dataset import Rules
from oneiro.worlds.textgame.state import (
    GONE,
    Kind,
    Object,
    Score,
    Situation,
    State,
    Transition,
    by_uuid,
    difference,
    edits,
    same,
)

StateFormat = Literal["json", "repr"]
"""How data is written: compact JSON, or Python's own printing as in the public prompts."""
Author = Literal["human", "llm", "none"]
"""Who wrote the rules of the game that the prompt shows."""

SEPARATOR = "=" * 10
"""The line between two blocks of a game's object rules."""

_OPENING: dict[Kind, str] = {
    "full": "You simulate a text game. You are given its state, its score and the player's next command, and you say "
    "what state and score follow one step later. In one step the command takes effect, then time passes once for every "
    "object (what heats goes on heating, what grows goes on growing), and then the score is counted.",
    "action": "You simulate a text game. You are given its state and the player's next command, and you say what state "
    "the command leads to by itself, before any time passes.",
    "tick": "You simulate a text game. You are given its state, and you say what state follows when time passes once "
    "for every object while the player does nothing (what heats goes on heating, what grows goes on growing).",
    "score": "You keep the score of a text game. You are given its state before and after the player's command and its "
    "score before, and you say what the score is afterwards.",
}
_STATE = (
    "A state is a list of objects. Each has a name, a uuid, a type, its properties, and the names of the objects that "
    "it directly contains. The order of the lists has no meaning."
)
_NEW = "An object that comes into being gets the next free uuid; the first free one is given as the UUID base."


def show(value: Any, layout: StateFormat) -> str:
    return repr(value) if layout == "repr" else json.dumps(value, separators=(",", ":"))


def full_state(state: State, score: Score | None) -> dict[str, Any]:
    """A state as one object, with the score as its last entry where there is one."""
    return {"game_state": [*state, score] if score is not None else list(state)}


def answer(step: AskedStep, kind: Kind, output: Output, layout: StateFormat = "json") -> str:
    """The true answer in the form that is asked for."""
    if kind == "score":
        return show(step.score_after, layout)
    if output == "full":
        return show(full_state(step.after, step.score_after), layout)
    if output == "edits":
        return show(_edits(step), layout)
    change = difference(step.before, step.after)
    parts: dict[str, Any] = {"modified": change.modified, "removed": change.removed}
    return show(parts | ({"score": step.score_after} if step.scored else {}), layout)


def _edits(step: AskedStep) -> dict[str, Any]:
    """What changes of each object, and of the score (see `parse_edits`)."""
    change, old = difference(step.before, step.after), by_uuid(step.before)
    parts: dict[str, Any] = {
        "edited": [_edit(old.get(thing["uuid"], {}), thing) for thing in change.modified],
        "removed": change.removed,
    }
    if step.score_before is None or step.score_after is None:
        return parts
    return parts | {"score": _new_values(step.score_before, step.score_after)}


def _edit(old: Object, new: Object) -> dict[str, Any]:
    """What changes of one object; of a new one, whatever is known of it."""
    was, now = old.get("properties", {}), new.get("properties", {})
    before, after = Counter[str](old.get("contains", [])), Counter[str](new.get("contains", []))
    plain = {key: value for key, value in new.items() if key not in ("uuid", "properties", "contains")}
    changes = {
        "properties": _new_values(was, now),
        "lost": [key for key in was if key not in now],
        "added": list((after - before).elements()),
        "dropped": list((before - after).elements()),
    }
    return (
        {"uuid": new["uuid"]} | _new_values(old, plain) | {name: change for name, change in changes.items() if change}
    )


def _new_values(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The entries of `new` that `old` lacks or has with another value."""
    return {key: value for key, value in new.items() if key not in old or not same(old[key], value)}


def instructions(kind: Kind, output: Output, reasoning: bool, retrieve: bool = False) -> str:
    """The task in general, and the form of the answer."""
    lines = [_OPENING[kind], _STATE]
    score = '{"score": number, "gameOver": true or false, "gameWon": true or false}'
    if kind == "score":
        lines.append(f"Answer with one JSON object: {score}.")
    elif output == "full":
        tail = f", with {score} as its last entry" if kind == "full" else ""
        lines += [_NEW, f'Answer with one JSON object, {{"game_state": [every object of the new state]}}{tail}.']
    elif output == "edits":
        tail = ', "score": {the entries of the score that change}' if kind == "full" else ""
        lines += [
            _NEW,
            'Answer with one JSON object: {"edited": [for every object that changes or is new {"uuid": number, and of '
            '"name", "type", "properties": {those with a new value}, "lost": [properties that go], "added": [names of '
            'objects it now contains], "dropped": [names of objects it no longer contains] what changes}], "removed": '
            f"[the uuids of the objects that vanish]{tail}}}. Both lists are empty when no object changes.",
        ]
    else:
        tail = f', "score": {score}' if kind == "full" else ""
        lines += [
            _NEW,
            'Answer with one JSON object: {"modified": [the whole new version of every object that changes or is new], '
            f'"removed": [the uuids of the objects that vanish]{tail}}}. Both lists are empty when no object changes.',
        ]
    if retrieve:
        lines.append("The suggestion is how the most similar known step would answer. It may be wrong.")
    if reasoning:
        lines.append(f'Think it through first. Then write "{MARKER}" and the JSON object after it.')
    else:
        lines.append("Write nothing but the JSON object.")
    return "\n".join(lines)


def rules_text(rules: Rules, author: Author, game: str) -> str:
    """The rules of a game: its objects, its commands, its score. Every block of them."""
    if author == "none":
        return ""
    known = rules.get(author, {})
    if game not in known:
        raise OneiroError(f"there are no {author} rules for the game '{game}'{nearest(game, known)}; use rules=none")
    own = known[game]
    blocks = [block.strip() for block in own["object"].split(SEPARATOR) if block.strip()]
    parts = [
        "Objects:\n" + "\n\n".join(blocks),
        "Commands:\n" + own["action"].strip(),
        "Score:\n" + own["score"].strip(),
    ]
    return "\n\n".join(parts)


def situation_text(case: Situation, step: AskedStep, kind: Kind, layout: StateFormat) -> str:
    """The part of a prompt that is different every time: state, score, UUID base and command."""
    before = full_state(step.before, step.score_before if kind == "full" else None)
    lines = [f"Current state: {show(before, layout)}"]
    if kind == "score":
        if not isinstance(case, Transition):
            raise OneiroError(
                "the score alone can only be asked for where the next state is known; use transition=full"
            )
        lines += [f"Current score: {show(case.score, layout)}", f"Command: {case.action}"]
        return "\n".join([*lines, f"Next state: {show(full_state(case.after, None), layout)}"])
    lines.append(f"UUID base: {first_free(case, step)}")
    if kind != "tick":
        lines.append(f"Command: {case.action}")
    return "\n".join(lines)


COMMAND = "\nCommand: "


def cut(prompt: str) -> tuple[str, str]:
    """A prompt as the part that all commands in one situation share, and the rest, which begins with the command."""
    # The last one: examples in the prompt have commands too.
    at = prompt.rfind(COMMAND) + 1
    return (prompt[:at], prompt[at:]) if at else (prompt, "")


def first_free(case: Situation, step: AskedStep) -> int:
    """The first free uuid; for a tick, objects that the command has just made are already counted."""
    return max([case.uuid_base, *(thing["uuid"] + 1 for thing in step.before if thing["uuid"] >= case.uuid_base)])


def pick_examples(examples: Sequence[Transition], kind: Kind) -> list[Transition]:
    """One or two examples that show what this kind of transition is about.

    The full transition gets a step changed by the command alone and one changed by time alone, where there are such.
    """
    by_action = [t for t in examples if edits(t.state, t.after_action)]
    by_time = [t for t in examples if edits(t.after_action, t.after)]
    if kind == "action":
        return by_action[:1]
    if kind == "tick":
        return by_time[:1]
    if kind == "score":
        return [t for t in examples if t.score != t.score_after][:1]
    return [t for t in by_action if t not in by_time][:1] + [t for t in by_time if t not in by_action][:1]


def rationale(case: Transition, kind: Kind) -> str:
    """The reasons for the answer to one kind of transition, a few lines: what the command, time and the score do.

    Models that are to think before they answer are started on these. The sentences are read off the true states before
    and after each phase, and off the game's own reply where it was recorded, so they are never wrong.
    """
    lines = []
    if kind in ("full", "action"):
        reply = f' The game replies: "{case.observation}"' if case.observation else ""
        lines.append(f"The command is: {case.action}.{reply}")
        lines.append(f"What it does: {_describe_changes(case.state, case.after_action)}")
    if kind in ("full", "tick"):
        lines.append(f"Then time passes: {_describe_changes(case.after_action, case.after)}")
    if kind in ("full", "score"):
        lines.append(f"The score: {describe_score(case.score, case.score_after)}")
    return "\n".join(lines)


def _describe_changes(before: State, after: State) -> str:
    return " ".join(sentences(before, after)) or "nothing changes."


def sentences(before: State, after: State) -> Iterator[str]:
    """One sentence for each difference between two states."""
    old, new = by_uuid(before), by_uuid(after)
    changes = edits(before, after)
    for place in changes:
        if place[1] == "created":
            thing = new[place[0]]
            yield f"{thing['name']} comes into being as a {thing['type']} with {_json(thing['properties'])}."
        elif place[1] == "removed":
            yield f"{old[place[0]]['name']} vanishes."
    yield from _moves(old, new)
    for place, value in changes.items():
        if place[0] in old and place[0] in new and place[1] not in ("contains", "created", "removed"):
            yield _change(old[place[0]], place, value)


def _moves(old: dict[int, Object], new: dict[int, Object]) -> Iterator[str]:
    """Where each object goes: from the contents of one object to those of another."""
    was = {child: thing["name"] for thing in old.values() for child in thing["contains"]}
    now = {child: thing["name"] for thing in new.values() for child in thing["contains"]}
    for child in sorted(was.keys() | now.keys()):  # sets have no order of their own, and the text is learned
        source, target = was.get(child), now.get(child)
        if source == target:
            continue
        if source is None:
            yield f"{child} is now in {target}."
        elif target is None:
            yield f"{child} is no longer in {source}."
        else:
            yield f"{child} moves from {source} to {target}."


def _change(thing: Object, place: tuple[Any, ...], value: Any) -> str:
    name, key = thing["name"], place[-1]
    before = thing["properties"].get(key, GONE) if place[1] == "properties" else thing.get(key, GONE)
    if value is GONE:
        return f"{name} loses {key}."
    if before is GONE:
        return f"{name} gains {key} {_json(value)}."
    return f"{key} of {name} changes from {_json(before)} to {_json(value)}."


def describe_score(before: Score, after: Score) -> str:
    if same(before, after):
        return f"it stays {_json(after.get('score'))}."
    parts = (
        []
        if same(before.get("score"), after.get("score"))
        else [f"{_json(before.get('score'))} becomes {_json(after.get('score'))}"]
    )
    if after.get("gameWon") and not before.get("gameWon"):
        parts.append("the game is won")
    elif after.get("gameOver") and not before.get("gameOver"):
        parts.append("the game is lost")
    return f"{', and '.join(parts) or 'its entries change'}."


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
