"""Data files of verl and of what is built on it (RLVR-World, SPA): dialogues in, rows of SFT or prompts for RL out.

    dialogues = read_dialogues("wm_train.parquet")
    rows = sft_rows(dialogues, language)        # for `oneiro.learning.sft.train`

A row of such a file has `prompt`, messages or a text; SFT rows an answer (`response`, or the last of `messages`); RL
rows `reward_model.ground_truth`. The same columns are read from Parquet, JSON and JSON lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro.episode import Row
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.tasks.base import Messages
from oneiro.worlds.levels import read_rows

ANSWERS = ("response", "answer", "output")


@dataclass(frozen=True)
class Dialogue:
    """One example: what the model is told, and what it should answer."""

    messages: Messages
    response: str | None
    """None: a prompt of RL, whose answer is only checked."""
    truth: Any = None
    """What a reward function compares an answer with."""
    source: str = ""


def read_dialogues(path: str | Path) -> list[Dialogue]:
    """All rows of a `.parquet`, `.json` or `.jsonl` file."""
    dialogues = []
    for number, row in enumerate(read_rows(Path(path)), 1):
        try:
            dialogues.append(_dialogue(row))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OneiroError(f"{path}, row {number}: no dialogue ({first_line(error, 120)})") from error
    return dialogues


def _dialogue(row: Mapping[str, Any]) -> Dialogue:
    given = row["messages"] if row.get("messages") is not None else row["prompt"]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else [_message(one) for one in given]
    response = next((str(row[name]) for name in ANSWERS if row.get(name) is not None), None)
    if response is None and len(messages) > 1 and messages[-1]["role"] == "assistant":
        response = messages.pop()["content"]
    if not messages:
        raise ValueError("it has no prompt")
    check = row.get("reward_model") or {}
    return Dialogue(messages, response, check.get("ground_truth"), str(row.get("data_source") or ""))


def _message(one: Mapping[str, Any]) -> dict[str, str]:
    return {"role": str(one["role"]), "content": str(one["content"])}


def sft_rows(dialogues: Iterable[Dialogue], language: LanguageModel) -> list[Row]:
    """Token rows in the model's own chat template, the loss on the answer and its end; prompts of RL are left out."""
    chat = ChatFormat(language.tokenizer)
    return [chat.answer_row(chat.whole(one.messages), one.response) for one in dialogues if one.response is not None]
