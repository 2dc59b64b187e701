"""Tables of settings equal the classes, and lists of games, variants, views and algorithms are complete."""

from __future__ import annotations

import re

from oneiro.learning import algorithms
from oneiro.recipe import find, listing, load, read
from oneiro.recipe.mistakes import models_in
from oneiro.systems.spa.recipe import VARIANTS
from oneiro.tasks.textgame.predictor import TextGamePredictorConfig
from oneiro.worlds import make, names
from oneiro.worlds.registry import world_class
from oneiro.worlds.robot.collect import PERTURBATIONS
from oneiro.worlds.textgame.games import GAMES
from oneiro_web.env import WebConfig
from tests.docs.pages import DOCS, ROOT
from tools.settings_page import classes, lines, meanings


def test_every_setting_says_what_it_means() -> None:
    """The page of settings has no empty cell but for names of algorithms, which their own section explains."""
    silent = [
        f"{kind.__name__}.{name}"
        for kind in classes()
        for name, field in kind.model_fields.items()
        if name != "name" and name not in meanings(kind) and not list(models_in(field.annotation))
    ]
    assert silent == []


def test_the_page_of_settings_has_every_section_once() -> None:
    page = "\n".join(lines())
    assert page.count("\n## RlSettings\n") == page.count("\n## SpaRecipe\n") == 1
    assert "| `lr` | `0.001` |" in page and "`spa: rl.learner.optimiser`" in page
    assert page.count("\n## WebConfig\n") == 1 and "`world: web`" in page
    assert page.count("| `seed` | `0` | Everything random") == 1  # what all recipes have stands under Recipe


def test_the_table_of_the_web_has_its_settings_with_their_defaults() -> None:
    page = (DOCS / "web.md").read_text()
    rows = page.partition("| setting of `web` |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", rows, re.MULTILINE))
    assert set(shown) == set(WebConfig.model_fields)
    for name, field in WebConfig.model_fields.items():
        if isinstance(field.default, str | int | float) and field.default != "":
            assert shown[name].strip("`").replace(",", "") == as_yaml(field.default), name


def as_yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_page_of_text_games_has_every_setting_with_its_default_first() -> None:
    page = (DOCS / "rlvr.md").read_text()
    shown = dict(re.findall(r"^\| `(\w+)` \| `([\w-]+)`, ", page, re.MULTILINE))
    defaults = {name: str(field.default).lower() for name, field in TextGamePredictorConfig.model_fields.items()}
    assert {name: default for name, default in shown.items() if name in defaults} == defaults


def test_every_game_is_on_the_page_of_text_games() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "rlvr.md").read_text(), re.MULTILINE)
    assert sorted(set(listed) & set(GAMES)) == sorted(GAMES)


def test_every_world_with_its_settings_and_views_is_on_the_page_of_worlds() -> None:
    page = (DOCS / "worlds.md").read_text()
    for name in (
        "2048",
        "bandit",
        "countdown",
        "cube",
        "frozen-lake",
        "math",
        "physics",
        "sokoban",
        "sudoku",
        "webshop",
    ):
        assert name in names() and f"| `{name}`" in page
        for setting in set(world_class(name).Config.model_fields) - {"max_actions", "view"}:
            assert f"`{setting}`" in page, f"{name}: {setting}"
        for view in make(name).views:
            assert f"`{view}`" in page, f"{name}: {view}"


def test_every_perturbation_is_on_the_page_of_the_robot() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "robot.md").read_text(), re.MULTILINE)
    assert set(PERTURBATIONS) <= set(listed)


def test_every_variant_and_algorithm_is_explained() -> None:
    spa, learning = ((DOCS / f"{page}.md").read_text() for page in ("spa", "learning"))
    shown = set(re.findall(r"^\| `([\w-]+)` \|", spa.partition("## Variants")[2].partition("##")[0], re.MULTILINE))
    assert shown == {name for name in VARIANTS if not re.fullmatch(r"epochs-[2-5]", name)}
    for kind in vars(algorithms).values():
        if isinstance(kind, type) and issubclass(kind, algorithms.Algorithm) and kind is not algorithms.Algorithm:
            (row,) = re.findall(rf"^\| `{re.escape(kind().name)}` \|.*$", learning, re.MULTILINE)
            assert all(f"`{name}`" in row for name in kind.model_fields if name != "name"), kind


def test_every_recipe_of_spa_is_on_its_page() -> None:
    page = (DOCS / "spa.md").read_text()
    assert [card.name for card in listing() if card.name.startswith("spa/") and f"`{card.name}`" not in page] == []


def test_every_file_recipe_and_setting_of_the_papers_page_exists() -> None:
    text = (DOCS / "papers.md").read_text()
    for path in re.findall(r"`(oneiro/[^`]+)`", text):
        assert (ROOT / path).exists(), path
    for overrides in re.findall(r"`((?:rl|model|dialogue)[\w.]*=[^`]+)`", text):
        load("spa/frozen-lake", overrides.split())
    for recipe in re.findall(r"`((?:spa|rlvr|webrl)/[\w-]+)`", text):
        find(recipe)


def test_the_readme_gives_the_demo_the_time_that_its_recipe_gives_it() -> None:
    (line,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("make demo   ")]
    assert read(find("spa/frozen-lake"))["takes"] in line
