"""Dialogue as token ids: a chat template taken apart once, so that earlier tokens are never produced again.

The template is rendered with placeholders and cut into the literal text around them. A conversation then grows by
appending ids: what the model sampled stays what it sampled. A template that rewrites earlier turns (for example by
dropping their thoughts) is recognised, and each turn then starts a new row.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.episode import Row, Tokens, given
from oneiro.runtime import threads
from oneiro.runtime.errors import Notice, OneiroError, first_line

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAX_CACHED_TEXTS = 65536
"""Texts whose ids are kept."""
MIN_CHARS_PER_THREAD = 20_000
"""About ten milliseconds."""
_SYSTEM, _USER, _REPLY, _AGAIN = (f"\ue000{name}\ue001" for name in ("system", "user", "reply", "again"))


def set_template(tokenizer: Any, wanted: str | None, model: str) -> None:
    """Give a tokenizer the template that `model.chat_template` names. One without a template gets ChatML with a line
    that says so: it decides what the model reads, and is saved with the weights.
    """
    if wanted == "chatml":
        tokenizer.chat_template = CHATML
    elif wanted is not None:
        try:
            tokenizer.chat_template = Path(wanted).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise OneiroError(
                f"model.chat_template: cannot read '{wanted}' ({first_line(error)}); give chatml or a Jinja file"
            ) from error
    elif not tokenizer.chat_template:
        tokenizer.chat_template = CHATML
        warnings.warn(
            f"the tokenizer of '{model}' has no chat template: ChatML is used, and saved with the weights; "
            "model.chat_template=chatml chooses it, model.chat_template=FILE another",
            Notice,
            stacklevel=3,
        )


class ChatFormat:
    """The literal parts of a tokenizer's chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.end = tokenizer.eos_token_id
        once = self._render([("user", _USER)])
        self.before_user, self.to_reply = _cut(once, _USER)
        self.with_system = True
        try:
            self.before_system, rest = _cut(self._render([("system", _SYSTEM), ("user", _USER)]), _SYSTEM)
            self.after_system = _cut(rest, _USER)[0]
        except Exception:  # templates without a system role raise whatever their author chose
            self.with_system = False
        twice = self._render([("user", _USER), ("assistant", f"<think>{_REPLY}</think>{_REPLY}"), ("user", _AGAIN)])
        self.rewrites = twice.count(_REPLY) != 2 or not twice.startswith(once)
        if not self.rewrites:
            self.to_user = _cut(twice.rsplit(_REPLY, 1)[1], _AGAIN)[0]
        self._ids: dict[str, Tokens] = {}

    def _render(self, messages: list[tuple[str, str]]) -> str:
        conversation = [{"role": role, "content": content} for role, content in messages]
        try:
            return self.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of its author's: it may raise anything
            reason = first_line(error, 150)
            raise OneiroError(
                f"the tokenizer's chat template cannot be used ({reason}); set another model.chat_template"
            ) from error

    def encode(self, text: str) -> Tokens:
        """Ids of a text, which are remembered."""
        known = self._ids.get(text)
        return self.encode_all([text])[0] if known is None else known

    def encode_all(self, texts: Sequence[str]) -> list[Tokens]:
        """Ids of each text: new ones on all cores at once, since a page takes milliseconds."""
        known = self._ids
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if len(known) + len(new) > MAX_CACHED_TEXTS:
            # Not cleared: another thread may be reading it.
            known, new = {}, list(dict.fromkeys(texts))
            self._ids = known
        known.update(zip(new, self._encode(new), strict=True))
        return [known[text] for text in texts]

    def _encode(self, texts: list[str]) -> list[Tokens]:
        # The library's own `encode` spends three quarters of its time on options that are not used here, and the
        # backend's keeps the interpreter's lock: a page takes milliseconds, in which no thread could feed a GPU.
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or backend.truncation or backend.padding:
            return [np.array(self.tokenizer.encode(text, add_special_tokens=False), np.int32) for text in texts]

        def ids(part: list[str]) -> list[Tokens]:
            return [np.array(one.ids, np.int32) for one in backend.encode_batch_fast(part, add_special_tokens=False)]

        useful = min(len(texts), sum(map(len, texts)) // MIN_CHARS_PER_THREAD)
        if useful < 2:
            return ids(texts)
        count = min(useful, threads.cores())
        # Threads of our own: those of the tokenizer would warn at every fork.
        with ThreadPoolExecutor(count) as pool:
            parts = list(pool.map(ids, (texts[first::count] for first in range(count))))
        return [parts[place % count][place // count] for place in range(len(texts))]

    def opening(self, user: str, system: str = "") -> Tokens:
        """Ids up to the point where the first reply begins."""
        if system and self.with_system:
            head = self.before_system + system + self.after_system
        else:
            head = self.before_user
            user = f"{system}\n\n{user}" if system else user
        return np.concatenate([self.encode(head), self.encode(user), self.encode(self.to_reply)])

    def answer_row(self, prompt: Tokens, answer: str) -> Row:
        """A row of SFT: the loss is on the answer and its end."""
        reply = given(self.encode(answer), "assistant", ce=1.0)
        return Row([given(prompt), reply, given([self.end], "assistant", ce=1.0)])

    def whole(self, messages: list[dict[str, str]]) -> Tokens:
        """Ids of a conversation rendered anew: only for templates that rewrite earlier turns."""
        return self.encode(self._render([(m["role"], m["content"]) for m in messages]))

    def next_user(self, user: str, ended: bool) -> Tokens:
        """Ids between a reply and the next one; `ended` says that the reply already holds its end token."""
        glue = self.encode(self.to_user)
        if ended and len(glue) and glue[0] == self.end:
            glue = glue[1:]
        return np.concatenate([glue, self.encode(user), self.encode(self.to_reply)])


def _cut(text: str, mark: str) -> tuple[str, str]:
    before, separator, after = text.partition(mark)
    if not separator:
        raise OneiroError("the tokenizer's chat template drops message text; set another model.chat_template")
    return before, after
