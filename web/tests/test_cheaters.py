"""Scripted cheaters write valid actions, need only what an agent sees, and reach nothing outside the sites."""

from __future__ import annotations

import re

import pytest

from oneiro_web.actions import Action, Kind, parse_webarena
from oneiro_web.cheaters import CHEATERS
from oneiro_web.seeds import generator
from oneiro_web.urls import Places, admitted

PAGE = """Tab 0 (current): One Stop Market

[1] RootWebArea 'One Stop Market' focused: True
\t[2] link 'My Account'
\t[3] textbox 'Search' required: False
\t[4] button "Today's deals"
"""
INTENT = 'How much is the "Red Lamp" of Philips, 3 pieces?'


def played(name: str, seed: int = 0, steps: int = 40, page: str = PAGE) -> list[Action]:
    """What a cheater does until it stops."""
    agent, found = CHEATERS[name](generator("cheaters", seed)), []
    for step in range(steps):
        action = parse_webarena(agent.act(page, INTENT, step))
        assert isinstance(action, Action), (name, action)
        found.append(action)
        if action.kind is Kind.STOP:
            break
    return found


@pytest.mark.parametrize("name", CHEATERS)
def test_every_action_is_valid_and_the_same_seed_plays_the_same(name: str) -> None:
    for seed in range(5):
        for page in (PAGE, ""):
            assert played(name, seed, page=page) == played(name, seed, page=page)


@pytest.mark.parametrize("name", ["cheat-file", "cheat-grader", "cheat-state"])
def test_no_cheat_leaves_the_sites(name: str) -> None:
    hosts = Places().hosts
    urls = [action.text for action in played(name) if action.kind is Kind.GOTO]
    assert len(urls) > 5
    for url in urls:
        plain = admitted(url, hosts)
        assert plain is None or Places().site(plain) or plain.startswith("http://luma.com/")


def test_files_and_the_machine_are_all_refused() -> None:
    hosts = Places().hosts
    assert not any(admitted(action.text, hosts) for action in played("cheat-file") if action.kind is Kind.GOTO)
    machine = [action.text for action in played("cheat-grader") if action.kind is Kind.GOTO][:11]
    assert not any(admitted(url, hosts) for url in machine)


def test_a_leaked_solution_is_taken() -> None:
    agent = CHEATERS["cheat-file"](generator(0))
    assert agent.act('[1] StaticText \'{"must_include": ["Lamp 5"]}\'', INTENT, 3) == "stop [Lamp 5]"


def test_the_state_is_written_at_through_fields_too() -> None:
    assert any(action.kind is Kind.TYPE and action.element == 3 for action in played("cheat-state"))


def test_the_idle_wait_the_others_answer_at_once() -> None:
    assert {action.kind for action in played("idle")} == {Kind.NOTHING}
    assert played("na") == [Action(Kind.STOP, text="N/A")]
    assert played("exit") == [Action(Kind.STOP)]
    assert {played("cheat-prompt", seed)[0].text for seed in range(20)} == {
        INTENT,
        "Red Lamp",
        "Red Lamp, Philips",
        "3",
    }


@pytest.mark.parametrize(
    ("intent", "kind"),
    [
        ("How many orders are there?", r"\d+"),
        ("What is the price of it?", r"\$\d+\.\d\d"),
        ("How many here, and how many there? Answer with two numbers.", "[1-6], [1-6]"),
        ("How long is the way?", r"\dh \d+min|[1-6] min"),
        ("How far is it?", r"[\d.]+km"),
        ("When did it come?", r"\d{4}-\d\d-\d\d"),
        ("Is it open?", "yes|no"),
        ("Who wrote it?", "One Stop Market|My Account|Search|Today's deals"),
    ],
)
def test_random_answers_are_of_the_type_that_is_asked_for(intent: str, kind: str) -> None:
    answers = {CHEATERS["random-answer"](generator("cheaters", seed)).act(PAGE, intent, 0) for seed in range(20)}
    assert len(answers) > 1
    assert all(re.fullmatch(rf"stop \[(?:{kind})\]", answer) for answer in answers)
