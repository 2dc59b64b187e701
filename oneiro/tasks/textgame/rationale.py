"""Says in plain sentences why the true answer is what it is: what the command, time and the score do.

Models that are to think before they answer are started on these. The sentences are read off the true states before and
after each phase, and off the game's own reply where it was recorded, so they are never wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from oneiro.worlds.textgame.state import GONE, Kind, Object, Score, State, Transition, by_uuid, edits, same


def rationale(case: Transition, kind: Kind) -> str:
    """The reasons for the answer to one kind of transition, a few lines."""
    lines = []
    if kind in ("full", "action"):
        reply = f' The game replies: "{case.observation}"' if case.observation else ""
        lines.append(f"The command is: {case.action}.{reply}")
        lines.append(f"What it does: {_describe_changes(case.state, case.after_action)}")
    if kind in ("full", "tick"):
        lines.append(f"Then time passes: {_describe_changes(case.after_action, case.after)}")
    if kind in ("full", "score"):
        lines.append(f"The score: {score_told(case.score, case.score_after)}")
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
    for child in sorted(was.keys() | now.keys()):
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
    """One changed property, name or type."""
    name, key = thing["name"], place[-1]
    before = thing["properties"].get(key, GONE) if place[1] == "properties" else thing.get(key, GONE)
    if value is GONE:
        return f"{name} loses {key}."
    if before is GONE:
        return f"{name} gains {key} {_json(value)}."
    return f"{key} of {name} changes from {_json(before)} to {_json(value)}."


def score_told(before: Score, after: Score) -> str:
    """What happens to the score, in one sentence."""
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
