"""SFT examples: a teacher's answers that turn out to be right.

A teacher is any chat server. What it answers is kept on disk as it comes, right or wrong, question by question, so a
run that is cut short goes on where it was and no answer is paid for twice; only right answers become examples
(rejection sampling). Another teacher, or the same one sampled otherwise, is asked anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from oneiro.runtime import files
from oneiro.runtime.clock import spent
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import derive
from oneiro.sampling.server import Completion, Server, ServerConfig
from oneiro.tasks.base import Messages
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.worlds.textgame.state import Transition

SAMPLED_BY = {"model", "temperature", "top_p", "max_tokens", "seed", "extra"}
"""The settings of a server that its answers depend on."""
REFUSED = re.compile(r"HTTP (400|413|422)\b")
"""How a server says that it cannot take one question, e.g. since it is too long, though it may take others."""


@dataclass(frozen=True, slots=True)
class SftExample:
    """One question and the answer to be learned."""

    id: str
    game: str
    messages: Messages
    answer: str


def taught_examples(
    task: TextGamePredictor,
    cases: Iterable[Transition],
    teacher: ServerConfig,
    cache: Path,
    *,
    samples: int = 4,
    batch: int = 64,
    max_characters: int = 16_000,
    advance: Callable[[int], None] = lambda cases: None,
    refuse: Callable[[str], None] = lambda reason: None,
) -> Iterator[SftExample]:
    """The teacher's first right answer of `samples` to each case, in order; cases it never gets right are left out.

    `cache` is a folder with one file for each question. Answers longer than `max_characters` count as wrong. `advance`
    is told after each batch how many cases it had, `refuse` of every question that the server will not take. A batch
    without a single reply, or with nothing but refusals, ends it all with the server's error.
    """
    cases, kept = iter(cases), _Kept(teacher, Path(cache))
    while waiting := list(islice(cases, batch)):
        prompts = [task.prompt(case) for case in waiting]
        # By file: a question that was drawn twice is asked once.
        questions = {kept.path(messages): messages for messages in prompts}
        refusals = _ask_all(kept, questions, samples)
        # One question may be too long for a server; a whole batch of them is a wrong address or model.
        if len(refusals) == batch:
            raise OneiroError(f"the teacher takes no question: {refusals[0]}")
        for reason in refusals:
            refuse(reason)
        advance(len(waiting))
        for case, messages in zip(waiting, prompts, strict=True):
            texts = kept.answers(kept.path(messages))[:samples]
            # By the strict scorer always: what is learned must be true, whatever a table is scored by.
            right = (text for text in texts if len(text) <= max_characters and task.judge(text, case).exact)
            if (answer := next(right, None)) is not None:
                yield SftExample(case.id, case.game, messages, answer)


def _ask_all(kept: _Kept, questions: Mapping[Path, Messages], samples: int) -> list[str]:
    """Has the answers that are missing, side by side; returns what the server said to questions it refused."""
    new = {path: messages for path, messages in questions.items() if len(kept.answers(path)) < samples}
    with spent("waiting"), ThreadPoolExecutor(kept.teacher.concurrency, thread_name_prefix="oneiro-teacher") as pool:
        futures = [pool.submit(kept.ask, path, messages, samples) for path, messages in new.items()]
        try:
            replies = [reply for future in futures for reply in future.result()]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # questions under way are waited for: they are paid for
            raise
    errors = [reply.error for reply in replies if reply.error is not None]
    refusals = [error for error in errors if REFUSED.search(error)]
    # Single failures are left out and asked again next time; a server that is down would waste the whole run.
    if errors and len(errors) == len(replies) and len(refusals) < len(errors):
        raise OneiroError(f"the teacher does not reply: {errors[0]}; see to its server and start again")
    return refusals


@dataclass(frozen=True)
class _Kept:
    """A teacher's answers on disk, and the way to more of them."""

    teacher: ServerConfig
    cache: Path

    def path(self, messages: Messages) -> Path:
        request = [self.teacher.model_dump(mode="json", include=SAMPLED_BY), messages]
        return self.cache / f"{blake2b(json.dumps(request, sort_keys=True).encode(), digest_size=16).hexdigest()}.json"

    def answers(self, path: Path) -> list[str]:
        """What is there of one question; none where the file is damaged, so that it is asked again."""
        try:
            texts = files.read_json(path)["answers"]
        except (OneiroError, KeyError, TypeError, RecursionError):
            return []
        return texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else []

    def ask(self, path: Path, messages: Messages, samples: int) -> list[Completion]:
        """Have the answers that are missing to one question, and keep them at once."""
        have, seed = self.answers(path), self.teacher.seed
        if seed is not None:
            # A seed of their own, else those that are there would come again.
            seed = derive(seed, "teacher", path.stem, len(have))
        server = Server(self.teacher.model_copy(update={"seed": seed}))
        try:
            (replies,) = server.chat([messages], samples - len(have))
        except OneiroError as error:
            if REFUSED.search(str(error)) is None:
                raise
            return [Completion(error=str(error))]
        # Written at once, so that a run that is killed has lost one question and no more.
        if texts := [_text(reply) for reply in replies if reply.error is None]:
            files.write_json(path, {"answers": have + texts})
        return replies


def _text(reply: Completion) -> str:
    """A reply as one text; thinking that the server sent apart is put back between its marks."""
    return f"<think>\n{reply.reasoning.strip()}\n</think>\n\n{reply.text}" if reply.reasoning else reply.text
