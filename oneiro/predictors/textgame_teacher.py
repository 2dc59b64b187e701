"""SFT examples: true answers, with reasons where they are asked for, or a teacher's answers that turn out to be right.

A teacher is any chat server. What it answers is kept on disk as it comes, right or wrong, so a run that is cut short
goes on where it was and no answer is paid for twice; only right answers become examples (rejection sampling).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from oneiro import files
from oneiro.errors import OneiroError
from oneiro.predictors.base import Messages
from oneiro.predictors.textgame import TextGame
from oneiro.sampling.server import Reply
from oneiro.worlds.textgame.state import Transition

Ask = Callable[[Sequence[Messages], int], list[list[Reply]]]
"""Asks for `n` replies to each conversation: `Server(...).chat`."""


@dataclass(frozen=True, slots=True)
class Example:
    """One question and the answer to be learnt."""

    id: str
    game: str
    messages: Messages
    answer: str


def true_examples(task: TextGame, cases: Iterable[Transition]) -> Iterator[Example]:
    """Examples from the truth; with `reasoning` each has its reasons written out."""
    for case in cases:
        yield Example(case.id, case.game, task.prompt(case), task.target(case))


def taught_examples(
    task: TextGame,
    cases: Iterable[Transition],
    ask: Ask,
    cache: Path,
    *,
    samples: int = 4,
    batch: int = 64,
    max_characters: int = 16_000,
    advance: Callable[[int], None] = lambda cases: None,
) -> Iterator[Example]:
    """The teacher's first right answer of `samples` to each case, in order; cases it never gets right are left out.

    `cache` is a folder with one file for each question. Answers longer than `max_characters` count as wrong. `advance`
    is told after each batch how many cases it had. A batch without a single reply ends it all, with the server's error.
    """
    cases = iter(cases)
    while waiting := list(islice(cases, batch)):
        found = _taught(task, waiting, ask, Path(cache), samples, max_characters)
        advance(len(waiting))
        yield from found


def _taught(
    task: TextGame, cases: list[Transition], ask: Ask, cache: Path, samples: int, max_characters: int
) -> list[Example]:
    prompts = [task.prompt(case) for case in cases]
    kept = [cache / f"{_key(messages)}.json" for messages in prompts]
    # By file: a question that was drawn twice is asked once.
    new = {path: place for place, path in enumerate(kept) if not path.is_file()}
    groups = ask([prompts[place] for place in new.values()], samples) if new else []
    errors = [reply.error for group in groups for reply in group if reply.error is not None]
    if errors and len(errors) == sum(map(len, groups)):
        raise OneiroError(f"the teacher does not reply: {errors[0]}; see to its server and start again")
    for (path, place), group in zip(new.items(), groups, strict=True):
        # A question with no reply at all is not kept, so that the next run asks it again.
        if texts := [_text(reply) for reply in group if reply.error is None]:
            files.write_json(path, {"id": cases[place].id, "answers": texts})
    examples = []
    for case, messages, path in zip(cases, prompts, kept, strict=True):
        texts = files.read_json(path)["answers"] if path.is_file() else []
        right = (text for text in texts if len(text) <= max_characters and task.judge(text, case).exact)
        if (found := next(right, None)) is not None:
            examples.append(Example(case.id, case.game, messages, found))
    return examples


def _text(reply: Reply) -> str:
    """A reply as one text; thinking that the server sent apart is put back between its marks."""
    return f"<think>\n{reply.reasoning.strip()}\n</think>\n\n{reply.text}" if reply.reasoning else reply.text


def _key(messages: Messages) -> str:
    return blake2b(json.dumps(messages).encode(), digest_size=16).hexdigest()
