"""Chat templates: what they render, and what they cannot do."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.models import chat as chats
from oneiro.models.chat import ChatFormat
from oneiro.models.language import CHATML, LanguageModel
from oneiro.runtime import threads
from oneiro.runtime.errors import OneiroError


def rendered(language: LanguageModel, *messages: tuple[str, str]) -> list[int]:
    text = language.tokenizer.apply_chat_template(
        [{"role": role, "content": content} for role, content in messages], tokenize=False, add_generation_prompt=True
    )
    return language.encode(text)


def test_a_conversation_that_grows_is_the_template_rendered_anew(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    assert chat.with_system and not chat.rewrites and chat.end == 2
    assert chat.opening("hello").tolist() == rendered(tiny, ("user", "hello"))
    opening = chat.opening("hello", "world")
    assert opening.tolist() == rendered(tiny, ("system", "world"), ("user", "hello")) and opening.dtype == np.int32
    reply = tiny.encode("Up")
    whole = rendered(tiny, ("user", "hello"), ("assistant", "Up"), ("user", "Down"))
    cut, ended = chat.next_user("Down", ended=False), chat.next_user("Down", ended=True)
    assert [*chat.opening("hello"), *reply, *cut] == whole and cut.tolist() == [2, *ended]
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Up"}]
    assert chat.whole(messages).tolist() == rendered(tiny, ("user", "hello"), ("assistant", "Up"))


def test_many_texts_are_encoded_as_each_alone(tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"go {'up and ' * (7 * number % 90)}down" for number in range(200)]
    alone = [tiny.encode(text) for text in texts]
    monkeypatch.setattr(chats, "MAX_CACHED_TEXTS", 150)  # more than may be kept
    for cores in (1, 3):
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        chat = ChatFormat(tiny.tokenizer)
        again = [*chat.encode_all(texts[:100]), *chat.encode_all([*texts, *texts[:3]])]
        assert [ids.tolist() for ids in again] == [*alone[:100], *alone, *alone[:3]]


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}[{{ m.content }}]"
    "{% endfor %}>"
)


NO_THOUGHTS = "{% for m in messages %}[{{ m.content.split('</think>')[-1] }}]{% endfor %}"


@pytest.mark.parametrize(
    ("template", "system", "rewrites"),
    [(CHATML, True, False), (NO_SYSTEM, False, True), (NO_THOUGHTS, True, True)],
)
def test_what_a_template_can_and_does(tiny: LanguageModel, template: str, system: bool, rewrites: bool) -> None:
    tiny.tokenizer.chat_template = template
    chat = ChatFormat(tiny.tokenizer)
    assert (chat.with_system, chat.rewrites) == (system, rewrites)
    if not system:
        # What has no place of its own stands before the user's first words.
        assert tiny.decode(chat.opening("hello", "world")) == "[world\n\nhello]>"
        assert tiny.decode(chat.opening("hello")) == "[hello]>"


def test_a_template_that_loses_or_breaks_is_one_line(tiny: LanguageModel) -> None:
    tiny.tokenizer.chat_template = "always the same"
    with pytest.raises(OneiroError, match="drops message text"):
        ChatFormat(tiny.tokenizer)
    tiny.tokenizer.chat_template = "{{ raise_exception('never\nthis') }}"
    with pytest.raises(OneiroError, match=r"cannot be used \(never.*set another") as caught:
        ChatFormat(tiny.tokenizer)
    assert "\n" not in str(caught.value)
