"""Rulebook games as a world: splits by words and links of rules, goals, and the oracle that reaches them."""

from __future__ import annotations

import json

from oneiro.runtime.seeds import generator
from oneiro.worlds import make
from oneiro.worlds.base import in_split
from oneiro.worlds.rules.rulebook.drawing import RulebookGame, alter, draw_game, is_held_out, links
from oneiro.worlds.rules.rulebook.language import Machine, Property, Verb, parse_rules
from oneiro.worlds.rules.rulebook.world import RulebookWorld, follow, search
from oneiro.worlds.textgame.state import edits

GAMES = [draw_game(generator("test games", number)) for number in range(80)]


def words_of(games: list[RulebookGame]) -> set[str]:
    verbs = {verb.name for game in games for verb in game.book.verbs}
    kinds = {kind.name for game in games for kind in game.book.properties}
    return verbs | kinds | {name for game in games for name in game.objects}


def test_test_games_have_words_and_links_that_training_games_never_have() -> None:
    train, test = ([game for game in GAMES if in_split(game.key, split)] for split in ("train", "eval"))
    assert len(train) > 20 and len(test) > 20 and len(train) + len(test) == len(GAMES)
    assert not words_of(train) & words_of(test)
    assert not any(is_held_out(link) for game in train for link in links(game.book))
    assert all(any(is_held_out(link) for link in links(game.book)) for game in test)


def test_games_are_of_the_promised_size() -> None:
    for game in GAMES:
        assert 6 <= len(game.objects) <= 9 and len({*game.objects}) == len(game.objects)
        assert 3 <= len(game.book.properties) <= 4 and len(game.book.verbs) == 4 and 4 <= len(game.book.rules) <= 6
        assert any(rule.trigger.kind == "change" for rule in game.book.rules)


def test_links_name_the_kinds_of_effects() -> None:
    kinds = (Property("heat", "number"), Property("open", "flag"))
    rules = "zop X: X.heat += 2\nwhen X.heat changes: X.open flips\nwhen X.open changes: X.heat = 0"
    book = parse_rules(rules, kinds, (Verb("zop", 1),))
    assert sorted(links(book)) == [
        ("flag flips", "number ="),
        ("number +=", "flag flips"),
        ("number =", "flag flips"),
    ]


def test_an_altered_book_differs_in_one_rule_and_still_reads_back() -> None:
    rng, altered = generator("test alter"), 0
    for game in GAMES[:30]:
        book = alter(rng, game.book, 1)
        assert parse_rules(str(book), book.properties, book.verbs) == book
        assert [a == b for a, b in zip(book.rules, game.book.rules, strict=True)].count(False) <= 1
        altered += book != game.book
    assert altered > 15


def test_the_oracle_follows_a_shortest_plan_and_wins() -> None:
    world = make("rulebook")
    assert isinstance(world, RulebookWorld)
    for seed in range(4):
        _, info = world.reset(seed=seed, options={"split": "eval"})
        rewards = []
        while not world.over:
            action = world.oracle()
            assert action is not None
            rewards.append(world.step(action)[1])
        assert rewards == [0.0] * (info["optimum"] - 1) + [1.0]


def test_search_finds_the_shortest_way_and_nothing_beyond_its_depth() -> None:
    kinds = (Property("heat", "number"), Property("open", "flag"))
    rules = "zop X: if X.heat > 1, X.open = yes\nmib X: X.heat += 1"
    game = RulebookGame(parse_rules(rules, kinds, (Verb("zop", 1), Verb("mib", 1))), ("tok",))
    act = follow(game, Machine(game.book))
    start = (((0, False),), 0)
    assert search(game, start, ((0, 1, True),), act, 3) == ["mib tok", "mib tok", "zop tok"]
    assert search(game, start, ((0, 1, True),), act, 2) is None
    assert search(game, start, (), act, 3) == []


def test_states_are_json_as_the_text_games_have_them() -> None:
    world = make("rulebook", view="json")
    assert isinstance(world, RulebookWorld)
    first, _ = world.reset(seed=3)
    action = world.oracle()
    assert action is not None
    before = json.loads(first)
    after = json.loads(world.step(action)[0])
    changes = edits(before[:-1], after[:-1])
    assert changes and all(place[1] == "properties" for place in changes)
    assert (before[-1], after[-1]) == ({"step": 0}, {"step": 1})


def test_an_action_that_is_none_changes_nothing() -> None:
    world = make("rulebook")
    assert isinstance(world, RulebookWorld)
    world.reset(seed=1)
    things, names = world.things, world.game.objects
    two = next(verb.name for verb in world.game.book.verbs if verb.objects == 2)
    for action in ("", "nonsense", f"{two} {names[0]}", f"{two} {names[0]} {names[0]}", f"{two} {names[0]} rock"):
        assert world.step(action)[4]["valid"] is False and world.things == things
