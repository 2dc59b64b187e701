from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from oneiro.agents import reply as replies
from oneiro.agents.reply import TAG_TOKENS, read, substitute, write
from tests.worlds.test_parsers import replies as what_models_write


def test_what_is_written_is_read_back() -> None:
    text = write(["Up", "Left"], "P _", "_ P", thought=" go ")
    reply = read(text, world_model=True)
    assert reply.formatted and reply.actions == ("Up", "Left")
    assert reply.body(reply.observation) == "P _" and reply.body(reply.prediction) == "_ P"


def test_a_reply_may_begin_with_a_blank_line() -> None:
    reply = read("\n\n" + write(["Up"], "P _", "_ P"), world_model=True)
    assert reply.actions == ("Up",) and reply.body(reply.observation) == "P _"


def test_an_empty_think_block_before_the_real_one_is_still_a_reply() -> None:
    reply = read("<think></think><think> hm </think> <answer> Up </answer>")
    assert reply.formatted and reply.actions == ("Up",)
    late = "<think></think><observation>a</observation><prediction>b</prediction></think><answer>Up</answer>"
    assert read(late, world_model=True).formatted and read(late).body(read(late).observation) == "a"


@pytest.mark.parametrize(
    "text",
    [
        "Up",
        "<answer>Up</answer>",
        "<think>no end <answer>Up</answer>",
        "<answer>Up</answer><think>late</think>",
        "<think>x</think><answer>Up",
        "text before <think>x</think><answer>Up</answer>",
    ],
)
def test_other_forms_are_malformed_and_name_no_action(text: str) -> None:
    reply = read(text)
    assert not reply.formatted and reply.actions == ()


def test_a_world_model_reply_needs_both_states_in_order() -> None:
    assert not read("<think><observation>a</observation></think><answer>Up</answer>", world_model=True).formatted
    swapped = "<think><prediction>b</prediction><observation>a</observation></think><answer>Up</answer>"
    assert not read(swapped, world_model=True).formatted
    assert read(swapped).formatted


def test_surplus_actions_are_cut() -> None:
    assert read(write(["a", "b", "c"]), actions_per_turn=2).actions == ("a", "b")


def test_substitution_is_by_place_and_takes_any_text() -> None:
    reply = read(
        "<think><observation>1 _</observation> I think _ <prediction>x</prediction></think><answer>Up</answer>"
    )
    pieces = substitute(reply, r"\1 \g<0> $1", "2 2")
    assert "".join(text for _, text in pieces) == (
        r"<think><observation>\1 \g<0> $1</observation> I think _ "
        "<prediction>2 2</prediction></think><answer>Up</answer>"
    )
    assert [text for tag, text in pieces if tag] == [r"\1 \g<0> $1", "2 2"]


PARTS = [*TAG_TOKENS, "||", "Up", "<", ">", "/", "\n", "\x00", "\ud800", "é", "<think", "answer>", "</", " " * 50]
HOSTILE = [mark * 20_000 for mark in (*TAG_TOKENS, "||", "<", "</", "<think></think>", "<answer>Up</answer>")]
HOSTILE += [
    "<think>" * 50_000 + "<observation>" * 50_000 + "</think>" + "<answer>" + "||" * 50_000 + "</answer>",
    "<think>" + "<observation>x" * 20_000 + "</think>" * 20_000 + "<answer>Up</answer>",
    "<think>" + "<observation></observation><prediction>" * 10_000 + "</think><answer>" * 10_000,
]


def spoken(count: int) -> Iterator[str]:
    """Hostile replies, shuffled tags, and well-formed replies with something put in, taken out or repeated."""
    yield from HOSTILE
    rng = np.random.default_rng(0)
    for kind in rng.random(count).tolist():
        if kind < 0.5:
            yield "".join(PARTS[i] for i in rng.integers(0, len(PARTS), rng.integers(0, 30)))
            continue
        text = write(["Up", "Left"], "P _\n_ G", "_ P\n_ G", thought=" go ")
        at, end = sorted(rng.integers(0, len(text) + 1, 2).tolist())
        part = PARTS[int(rng.integers(len(PARTS)))]
        yield (
            text[:at] + part + text[at:] if kind < 0.7 else text[:at] + text[end:] if kind < 0.85 else text + text[at:]
        )


def reads(texts: Iterable[str]) -> None:
    """Every text becomes a reply, soon; its parts lie inside it, and true states can be put in their place."""
    for number, text in enumerate(texts):
        started = time.process_time()
        reply = read(text, think=number % 5 > 0, world_model=number % 2 > 0, actions_per_turn=number % 7 or None)
        pieces = substitute(reply, "A", "B")
        assert time.process_time() - started < 5, f"slow on {text[:80]!r}"
        for span in (reply.observation, reply.prediction, reply.think, reply.answer):
            assert span is None or 0 <= span[0] <= span[1] <= len(text)
        assert "".join(piece for _, piece in pieces).count("A") <= 1 + text.count("A")
        assert all(action == action.strip() != "" for action in reply.actions)
        assert reply.formatted or not reply.actions


def test_reading_is_total_and_fast_on_hostile_text() -> None:
    reads(spoken(20_000))


@pytest.mark.thorough
def test_reading_is_total_and_fast_on_a_hundred_thousand_replies_and_more() -> None:
    reads(spoken(100_000))
    reads(what_models_write(100_000))


# The published parser -------------------------------------------------------------------------------------------------

BASE = replies.OFFICIAL
STATES = (
    r"<think>\s*<observation>(.*?)</observation>(.*?)<prediction>(.*?)</prediction>\s*</think>\s*<answer>(.*?)</answer>"
)


def published(text: str, think: bool, world_model: bool, most: int | None) -> list[str] | None:
    """RAGEN's way: an expression, marks taken out of the answer one after the other, the first so many actions."""
    found = re.search((STATES if world_model else BASE) if think else "<answer>(.*?)</answer>", text, re.DOTALL)
    if found is None:
        return None
    body = found.groups()[-1]
    for mark in ("<think>", "</think>", "<answer>", "</answer>", "<|im_start|>", "<|im_end|>"):
        body = body.replace(mark, "").strip()
    return [word.strip() for word in body.split("||") if word.strip()][:most]


def test_the_official_parser_finds_what_the_published_expression_finds() -> None:
    matched = 0
    for number, text in enumerate(spoken(20_000)):
        if len(text) > 5_000:
            continue  # where the expression needs minutes
        if number % 3 == 0:
            text = text.replace("</prediction>", "</prediction> \n").replace("</think>", "</think>\t")
        think, world_model, most = number % 5 > 0, number % 2 > 0, number % 4 or None
        expected = published(text, think, world_model, most)
        reply = read(text, think, world_model, most, "official")
        assert reply.formatted is (expected is not None) and list(reply.actions) == (expected or []), text
        matched += expected is not None
        if expected is not None and think:
            found = re.search(STATES if world_model else BASE, text, re.DOTALL)
            assert found is not None and reply.answer == found.span(found.lastindex or 0)
            assert reply.think is not None and reply.think[0] == found.start() + len("<think>")
            if world_model:
                assert reply.observation == found.span(1) and reply.prediction == found.span(3)
            else:
                assert reply.think == found.span(1)
    assert matched > 3_000


def test_the_official_parser_is_linear_on_hostile_text() -> None:
    for text in (*HOSTILE, "<think>" + " " * 200_000, "</think> " * 50_000, "<think> " * 50_000):
        for world_model in (False, True):
            started = time.process_time()
            read(text, True, world_model, None, "official")
            assert time.process_time() - started < 5, f"slow on {text[:80]!r}"


@pytest.mark.parametrize(
    ("text", "strict", "official"),
    [
        ("well: <think>a</think><answer>Up</answer>", (), ("Up",)),  # words before the thoughts
        ("<think>a</think> so <answer>Up</answer>", ("Up",), ()),  # words between thoughts and answer
        ("<think>a</think><answer>Up</answer><answer>Left</answer>", ("Left",), ("Up",)),  # the last, the first
        ("<think>a</think><answer><answer>Up</answer>", ("Up",), ("Up",)),
        ("<think>a</think><answer>Up<think></answer>", ("Up<think>",), ("Up",)),  # marks inside an answer
    ],
)
def test_where_the_two_parsers_differ(text: str, strict: tuple[str, ...], official: tuple[str, ...]) -> None:
    assert read(text).actions == strict and read(text, parser="official").actions == official


def test_without_states_undoes_the_world_model() -> None:
    from oneiro.systems.spa.data import without_states

    reply = replies.read(write(["Up"], "a", "b", thought=" hm "))
    assert without_states(reply) == write(["Up"], thought=" hm ")
