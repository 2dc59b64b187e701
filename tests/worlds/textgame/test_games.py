"""Every game keeps the promises of all games, and each does by hand-worked steps what its rules say."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable

import pytest

from oneiro.runtime.seeds import generator
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, record
from oneiro.worlds.textgame.game import GameRules, solve
from oneiro.worlds.textgame.games import GAMES
from oneiro.worlds.textgame.scene import Scene, Thing
from oneiro.worlds.textgame.state import difference, edits, same_state

every_game = pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)


def level(game: GameRules, seed: int) -> Scene:
    return game.level(generator("test", game.name, seed))


def play(game: GameRules, scene: Scene, *commands: str) -> Scene:
    """Carry out commands given by nouns, `take kettle`; a noun stands for the only thing of that name in reach."""
    for command in commands:
        full = next(
            verb.command(*things)
            for verb, things in game.commands(scene)
            if command == verb.pattern.format(*(thing.noun for thing in things))
        )
        stepped = game.step(scene, full)
        assert stepped.possible, f"{command}: {stepped.reply}"
        scene = stepped.after
    return scene


def find(game: GameRules, wanted: Callable[[Scene], bool]) -> Scene:
    """The first level with some trait."""
    return next(scene for seed in range(2000) if wanted(scene := level(game, seed)))


def noun(scene: Scene, name: str) -> Thing:
    (found,) = [thing for thing in scene.things.values() if thing.noun == name]
    return found


def walk(game: GameRules, seed: int, steps: int) -> list[tuple[Scene, str]]:
    """A random course: scenes and the commands given in them; half of the commands can be done."""
    rng, scene, course = generator("walk", game.name, seed), level(game, seed), []
    for _ in range(steps):
        known = [(verb.command(*things), verb.check(scene, *things)) for verb, things in game.commands(scene)]
        possible = [command for command, refusal in known if not refusal]
        chosen = possible if rng.random() < 0.7 else [command for command, _ in known]
        course.append((scene, chosen[int(rng.integers(len(chosen)))]))
        scene = game.step(scene, course[-1][1]).after
        if scene.over:
            break
    return course


def test_there_are_at_least_eight_games() -> None:
    assert len(GAMES) >= 8
    assert all(name == game.name for name, game in GAMES.items())


@every_game
def test_a_winning_plan_exists_and_wins_with_the_full_score(game: GameRules) -> None:
    for seed in range(2):
        scene = level(game, seed)
        plan = solve(game, scene)
        assert plan is not None and len(plan) >= 2
        for command in plan:
            assert not scene.over
            scene = game.step(scene, command).after
        assert scene.over and scene.won and scene.score == game.max_score


@every_game
def test_the_same_seed_gives_the_same_level_and_other_seeds_give_others(game: GameRules) -> None:
    assert level(game, 3).key() == level(game, 3).key()
    assert len({level(game, seed).key() for seed in range(40)}) >= 30


@every_game
def test_a_step_leaves_the_scene_it_started_from_alone(game: GameRules) -> None:
    for scene, command in walk(game, 0, 15):
        before = scene.key()
        game.step(scene, command)
        assert scene.key() == before


@every_game
def test_new_objects_are_numbered_from_the_uuid_base_and_differences_lead_on(game: GameRules) -> None:
    for seed in range(2):
        for scene, command in walk(game, seed, 15):
            case = record(game, scene, command, "x/1", "train")
            new = {thing["uuid"] for thing in case.after_action + case.after} - {thing["uuid"] for thing in case.state}
            assert not new or min(new) == case.uuid_base
            for before, after in (
                (case.state, case.after),
                (case.state, case.after_action),
                (case.after_action, case.after),
            ):
                assert same_state(difference(before, after).apply(before), after)


@every_game
def test_states_are_plain_json_in_which_every_thing_is_in_one_place(game: GameRules) -> None:
    for scene, _ in walk(game, 1, 25):
        state = scene.state()
        assert json.loads(json.dumps(state)) == state
        names = [thing["name"] for thing in state]
        inside = [name for thing in state for name in thing["contains"]]
        assert len(set(names)) == len(names) == len(scene.things)
        assert sorted(inside) == sorted(names[1:])
        assert names[0] not in inside


@every_game
def test_a_scene_is_read_back_from_its_state(game: GameRules) -> None:
    for scene, _ in walk(game, 2, 10):
        again = Scene.from_state(scene.state(), scene.score_json(), scene.next_uuid)
        assert again is not None and again.key() == scene.key()


@every_game
def test_the_score_never_falls_and_stays_within_its_bounds(game: GameRules) -> None:
    for seed in range(4):
        for scene, command in walk(game, seed, 25):
            after = game.step(scene, command).after
            assert scene.score <= after.score <= game.max_score
            assert after.won <= after.over


@every_game
def test_what_is_no_command_is_no_step(game: GameRules) -> None:
    scene = level(game, 0)
    for nonsense in ("", "dance", "take", "take the moon (ID: 99)", "take player", "x" * 5000, "put a in b"):
        stepped = game.step(scene, nonsense)
        assert not stepped.understood and stepped.after is scene


@every_game
def test_the_rules_tell_of_every_command_and_every_type(game: GameRules) -> None:
    text = " ".join(game.rules.values())
    for verb in game.verbs:
        assert verb.pattern.format("X", "Y") in text
    generic = {"Agent", "Room", "House", "Object", "Container", "Device"}
    seen = {thing.type for seed in range(5) for scene, _ in walk(game, seed, 15) for thing in scene.things.values()}
    for kind in seen - generic:
        assert kind.lower().removeprefix("left").removeprefix("right") in text.lower(), kind


def exhaustive(game: GameRules, scene: Scene, limit: int) -> int | None:
    """Commands in a shortest plan over *all* commands, by a search of its own."""
    front, seen = deque([(scene, 0)]), {scene.key()}
    while front:
        here, length = front.popleft()
        if length == limit:
            continue
        for verb, things in game.commands(here):
            there = game.step(here, verb.command(*things)).after
            if there.won:
                return length + 1
            if not there.over and there.key() not in seen:
                seen.add(there.key())
                front.append((there, length + 1))
    return None


@pytest.mark.parametrize("name", [pytest.param("mix-paint", marks=pytest.mark.thorough), "balance-scale", "open-chest"])
def test_no_plan_is_shorter_than_the_solver_s(name: str) -> None:
    game = GAMES[name]
    scene = min((level(game, seed) for seed in range(12)), key=lambda scene: len(solve(game, scene) or [0] * 99))
    plan = solve(game, scene)
    assert plan is not None
    assert exhaustive(game, scene, len(plan) - 1) is None


def test_over_all_games_objects_are_created_removed_renamed_and_retyped_by_action_and_by_time() -> None:
    seen = set()
    for case in crawl(GAMES, "train", CrawlConfig(levels=1, still=1)):
        for phase, before, after in (
            ("action", case.state, case.after_action),
            ("time", case.after_action, case.after),
        ):
            seen |= {(phase, place[1]) for place in edits(before, after)}
    assert {("action", "created"), ("action", "removed"), ("time", "created"), ("time", "removed")} <= seen
    assert {("time", "name"), ("time", "type"), ("time", "properties"), ("action", "contains")} <= seen


def test_a_refused_command_lets_time_pass_all_the_same() -> None:
    game = GAMES["brew-tea"]
    scene = find(game, lambda scene: scene.the("Stove")["heat"] == 20)
    scene = play(game, scene, "take kettle", "fill kettle from sink", "put kettle in stove", "turn on stove")
    assert noun(scene, "water")["temperature"] == 40
    sink = scene.the("Sink").name
    stepped = game.step(scene, f"take {sink}")
    assert stepped.understood and not stepped.possible
    assert stepped.after_action.key() == scene.key()
    assert noun(stepped.after, "water")["temperature"] == 60


def test_water_boils_at_a_hundred_and_makes_tea_of_the_bag() -> None:
    game = GAMES["brew-tea"]
    scene = find(game, lambda scene: scene.the("Stove")["heat"] == 40 and scene.the("Cupboard")["isOpen"])
    scene = play(game, scene, "take kettle", "fill kettle from sink", "put kettle in stove", "turn on stove")
    water = noun(scene, "water")
    assert (water["temperature"], scene.score) == (60, 0)
    scene = play(game, scene, "wait")
    assert (noun(scene, "water")["temperature"], scene.score) == (100, 1)
    scene = play(game, scene, "wait", "take kettle", "pour kettle into cup", "take tea bag")
    assert noun(scene, "water")["temperature"] == 100
    base = scene.next_uuid
    scene = play(game, scene, "put tea bag in cup")
    assert water.uuid not in scene.things and not scene.of_type("TeaBag")
    assert scene.the("Tea").uuid == base and scene.won and scene.score == 2


def test_a_seed_becomes_a_sprout_and_a_plant_and_keeps_its_uuid() -> None:
    game = GAMES["grow-beans"]
    scene = find(game, lambda scene: scene.the("Seed")["ripeAt"] == 3 and not scene.the("Pot")["hasSoil"])
    seed = scene.the("Seed").uuid
    scene = play(game, scene, "take bag of soil", "fill pot from bag of soil", "take seed", "put seed in pot")
    assert not scene.of_type("SoilBag") and scene.the("Pot")["hasSoil"]
    scene = play(game, scene, "take watering can", "fill watering can from barrel", "water pot with watering can")
    assert (scene.things[seed]["growth"], scene.the("Pot")["moisture"], scene.score) == (1, 1, 0)
    assert scene.the("WateringCan")["water"] == 2
    scene = play(game, scene, "wait")
    sprout = scene.things[seed]
    assert (sprout.name, sprout.type, sprout["isMoveable"]) == (f"sprout (ID: {seed})", "Sprout", False)
    assert (scene.the("Pot")["moisture"], scene.score) == (0, 1)
    scene = play(game, scene, "wait")
    assert scene.things[seed]["growth"] == 2
    scene = play(game, scene, "water pot with watering can")
    assert scene.things[seed].type == "BeanPlant" and scene.the("Beans") and scene.score == 2
    assert play(game, scene, "take beans").won


def test_a_loop_with_a_broken_wire_stays_dark_and_a_whole_one_shines() -> None:
    game = GAMES["light-bulb"]
    scene = find(game, lambda scene: scene.parent(scene.the("Battery")) is scene.room)
    good = [wire.noun for wire in scene.of_type("Wire") if not wire["isBroken"]]
    (bad, *_) = [wire.noun for wire in scene.of_type("Wire") if wire["isBroken"]]
    dark = play(game, scene, *(f"connect {wire} to {part}" for wire in (bad, good[0]) for part in ("battery", "bulb")))
    assert not dark.the("Bulb")["isLit"] and not dark.over
    assert sorted(dark.the("Bulb")["joined"]) == dark.the("Bulb")["joined"]
    lit = play(game, scene, *(f"connect {wire} to {part}" for wire in good for part in ("battery", "bulb")))
    assert lit.the("Bulb")["isLit"] and lit.won
    off = play(game, dark, f"disconnect {bad} from bulb", f"connect {good[1]} to bulb")
    assert not off.the("Bulb")["isLit"]


def test_bread_bakes_in_a_hot_closed_oven_and_burns_if_forgotten() -> None:
    game = GAMES["bake-bread"]
    scene = find(
        game,
        lambda scene: (
            len(scene.the("Bowl").contains) == 3
            and (scene.the("Oven")["heat"], scene.the("Oven")["bakes"], scene.the("Oven")["isOpen"]) == (90, 2, True)
        ),
    )
    scene = play(game, scene, "mix bowl")
    assert scene.score == 1 and not scene.of_type("Flour", "Yeast", "Water")
    scene = play(game, scene, "take dough", "put dough in oven", "close oven", "turn on oven")
    assert (scene.the("Oven")["temperature"], scene.the("Dough")["baked"]) == (110, 0)
    scene = play(game, scene, "wait")
    assert (scene.the("Oven")["temperature"], scene.the("Dough")["baked"]) == (200, 1)
    scene = play(game, scene, "wait")
    assert scene.the("Bread")["extra"] == 0 and scene.score == 2
    assert play(game, scene, "open oven", "take bread").won
    burnt = play(game, scene, "wait", "wait", "wait")
    assert burnt.the("Bread")["isBurnt"] and burnt.over and not burnt.won and burnt.score == 2


def test_laundry_gets_clean_with_soap_and_dries_on_the_line() -> None:
    game = GAMES["do-laundry"]
    scene = find(
        game,
        lambda scene: (
            (scene.the("Washer")["cycle"], scene.the("Washer")["isOpen"], scene.the("Soap")["doses"]) == (2, True, 1)
        ),
    )
    name = scene.the("Laundry").noun
    loaded = play(game, scene, f"take {name}", f"put {name} in washer")
    washed = play(game, loaded, "close washer", "turn on washer", "wait")
    assert (washed.the("Laundry")["isDirty"], washed.the("Laundry")["wetness"]) == (True, 2)
    scene = play(game, loaded, "take box of soap", "add box of soap to washer", "close washer", "turn on washer")
    assert not scene.of_type("Soap")
    assert (scene.the("Washer")["timer"], scene.the("Washer")["isOn"]) == (1, True)
    scene = play(game, scene, "wait")
    assert (scene.the("Washer")["isOn"], scene.the("Washer")["hasSoap"], scene.score) == (False, False, 1)
    scene = play(game, scene, "open washer", f"take {name}", f"put {name} in line")
    assert scene.the("Laundry")["wetness"] == 1
    assert play(game, scene, "wait").won


def test_a_washer_does_not_start_while_it_is_open() -> None:
    game = GAMES["do-laundry"]
    scene = find(game, lambda scene: scene.the("Washer")["isOpen"])
    assert not game.step(scene, f"turn on {scene.the('Washer').name}").possible


def test_both_sides_of_a_door_open_together_and_lead_to_each_other() -> None:
    game = GAMES["open-chest"]
    scene = find(game, lambda scene: len(scene.of_type("Door")) == 2 and not scene.of_type("Door")[0]["isOpen"])
    here = scene.room.name
    scene = play(game, scene, "open door")
    assert all(door["isOpen"] for door in scene.of_type("Door"))
    scene = play(game, scene, "go through door")
    assert scene.room.name != here
    assert play(game, scene, "go through door").room.name == here


def test_only_the_key_of_the_same_colour_fits_the_chest() -> None:
    game = GAMES["open-chest"]
    scene = find(game, lambda scene: len({scene.parent(t).uuid for t in scene.of_type("Chest", "Holder")}) == 1)
    scene.move(scene.agent, scene.parent(scene.the("Chest")) or scene.room)
    chest = scene.the("Chest")
    wrong = next(key for key in scene.of_type("Key") if key["colour"] != chest["colour"])
    scene.move(wrong, scene.agent)
    assert game.step(scene, f"unlock {chest.name} with {wrong.name}").reply == "The key does not fit."
    assert game.step(scene, f"open {chest.name}").reply == f"The {chest.name} is locked."
    key = f"{chest['colour']} key"
    scene = play(game, scene, f"open {scene.the('Holder').noun}", f"take {key}")
    assert scene.score == 1
    scene = play(game, scene, f"unlock chest with {key}")
    assert scene.score == 2
    assert play(game, scene, "open chest", "take gem").won


def test_water_becomes_ice_in_the_freezer_and_melts_away_outside() -> None:
    game = GAMES["make-ice"]
    scene = find(game, lambda scene: (scene.the("Freezer")["cools"], scene.the("Freezer")["coldest"]) == (30, -30))
    if not scene.the("Freezer")["isOpen"]:
        scene = play(game, scene, "open freezer")
    scene = play(game, scene, "take tray", "fill tray from tap", "put tray in freezer")
    water = scene.the("Water").uuid
    scene = play(game, scene, "close freezer")
    assert (scene.things[water].name, scene.things[water]["temperature"]) == (f"ice (ID: {water})", -10)
    scene = play(game, scene, "wait")
    assert scene.things[water]["temperature"] == -30 and scene.things[water].type == "Ice"
    scene = play(game, scene, "open freezer", "take ice")
    assert scene.things[water]["temperature"] == -10
    assert play(game, scene, "put ice in glass").won
    gone = play(game, scene, "wait", "wait")
    assert water not in gone.things and gone.score == 1


def test_two_paints_vanish_into_a_third_and_the_wrong_colour_loses() -> None:
    game = GAMES["mix-paint"]
    scene = find(game, lambda scene: scene.the("Note")["wanted"] == "orange" and scene.the("Cabinet")["isOpen"])
    base = scene.next_uuid
    mixed = play(game, scene, "mix red paint with yellow paint")
    assert mixed.things[base].name == f"orange paint (ID: {base})" and len(mixed.of_type("Paint")) == 3
    assert mixed.score == 1
    assert play(game, mixed, "take brush", "paint canvas with orange paint").won
    lost = play(game, mixed, "take brush", "paint canvas with white paint")
    assert lost.over and not lost.won
    mud = play(game, mixed, "mix blue paint with orange paint")
    assert noun(mud, "brown paint")


def test_the_scale_tilts_to_the_heavier_pan_and_is_level_at_equal_loads() -> None:
    game = GAMES["balance-scale"]
    scene = find(game, lambda scene: scene.the("Iron")["weight"] == 6)
    stones = {stone["weight"]: stone.noun for stone in scene.of_type("Stone")}
    one = play(game, scene, f"take {stones[4]}", f"put {stones[4]} in right pan")
    assert (one.the("Scale")["tilt"], one.score) == ("left", 1)
    over = play(game, one, f"take {stones[max(stones)]}", f"put {stones[max(stones)]} in right pan")
    assert over.the("Scale")["tilt"] == "right"
    assert play(game, one, f"take {stones[2]}", f"put {stones[2]} in right pan").won


def test_logs_burn_up_and_a_marshmallow_must_not_be_roasted_too_long() -> None:
    game = GAMES["roast-marshmallow"]
    scene = find(
        game,
        lambda scene: (
            (scene.the("Trunk")["burns"], scene.the("Matches")["left"], scene.the("Marshmallow")["roasted"])
            == (3, 1, 0)
        ),
    )
    scene = play(game, scene, "take axe", "chop trunk with axe", "take marshmallow", "take matches")
    assert [log.uuid for log in scene.of_type("Log")] == [scene.next_uuid - 2, scene.next_uuid - 1]
    scene = play(game, scene, "take log", "put log in fire pit", "light fire pit with matches")
    assert not scene.of_type("Matches") and len(scene.of_type("Log")) == 1
    assert (scene.the("FirePit")["fuel"], scene.score) == (2, 1)
    scene = play(game, scene, "roast marshmallow over fire pit")
    assert (scene.the("FirePit")["fuel"], scene.the("Marshmallow")["roasted"]) == (1, 1)
    golden = play(game, scene, "roast marshmallow over fire pit")
    assert golden.score == 2 and golden.the("Ash") and not golden.the("FirePit")["isBurning"]
    assert play(game, golden, "eat marshmallow").won
    scene.the("FirePit")["fuel"] = 9
    burnt = play(game, scene, "roast marshmallow over fire pit", "roast marshmallow over fire pit")
    assert burnt.over and not burnt.won


def test_coins_count_up_and_a_press_of_the_button_spends_them() -> None:
    game = GAMES["buy-snack"]

    def simple(scene: Scene) -> bool:
        coins = sorted(coin["value"] for coin in scene.of_type("Coin"))
        price = next(b["price"] for b in scene.of_type("Button") if b["sells"] == scene.the("Note")["wanted"])
        return coins == [5, 10, 25] and price == 10 and scene.the("Purse")["isOpen"]

    scene = find(game, simple)
    snack = scene.the("Note")["wanted"]
    assert not game.step(scene, f"press {noun(scene, f'{snack} button').name}").possible
    scene = play(game, scene, "take quarter", "insert quarter into machine")
    assert (scene.the("Machine")["credit"], len(scene.of_type("Coin")), scene.score) == (25, 2, 1)
    scene = play(game, scene, f"press {snack} button")
    assert scene.the("Machine")["credit"] == 15
    assert scene.inside(scene.the("Hatch"))[0].noun == snack
    assert play(game, scene, f"take {snack}").won
