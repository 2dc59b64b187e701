"""Tables of settings equal the classes, and lists of games, variants, views and algorithms are complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from oneiro.learning import algorithms
from oneiro.recipe import Recipe, find, listing, load, read
from oneiro.recipe.mistakes import models_in
from oneiro.sampling.server import ServerConfig
from oneiro.systems import recipe_class
from oneiro.systems.spa.recipe import VARIANTS
from oneiro.tasks.textgame.predictor import TextGamePredictorConfig
from oneiro.worlds import make, names
from oneiro.worlds.registry import world_class
from oneiro.worlds.robot.policies import PERTURBATIONS
from oneiro.worlds.textgame.games import GAMES
from oneiro_web.env import WebConfig
from tests.docs.pages import DOCS, ROOT

HEADING = re.compile(r"^\| setting(?: of `(\w+)`)? \| default \|.*\n\|[-| :]+\|\n((?:\|.*\n?)+)", re.MULTILINE)
SYSTEM = {
    "rlvr": "rlvr/text-game",
    "web-pages": "rlvr/web-page",
    "rules": "rlvr/physics",
    "rulebooks": "rlvr/rules",
    "video": "rlvr/video",
    "robot": "rlvr/video",
    "planning": "plan/frozen-lake",
    "dyna": "dyna/frozen-lake",
}
"""Page -> the system whose sections it explains; the others explain those of SPA."""
APART: dict[str, type[BaseModel]] = {"server": ServerConfig, "recipe": Recipe, "web": WebConfig}
"""Sections that are no part of a recipe class."""
REQUIRED = {
    "models": ("model", "lora"),
    "sampling": ("sampling", "server"),
    "learning": ("sft", "rl", "learner", "optimiser", "loss", "filter"),
    "agents": ("dialogue", "evaluation"),
    "recipes": ("recipe",),
    "spa": ("self_play", "rollout", "collapse_monitor", ""),
    "web-pages": ("task", "data", "sft_data", "evaluation", ""),
    "rules": ("task", "data", "sft_data", "evaluation", ""),
    "rulebooks": ("task", "data", "sft_data", "evaluation", ""),
    "planning": ("planner",),
    "dyna": ("dyna",),
    "video": ("data", "layout", "tokenizer", "reconstruction", "model", "pretrain", "reward", "rollout", "evaluation"),
}
"""Page -> the tables it must have."""


def tables(page: Path) -> dict[str, str]:
    """Section -> the rows of its table; "" is the recipe itself."""
    return dict(HEADING.findall(page.read_text() + "\n"))


def section_of(section: str, recipe: BaseModel | type[BaseModel]) -> BaseModel | type[BaseModel] | None:
    """A section, however deep it lies; the nearest one counts. With its values where the recipe gives it any."""
    level = [recipe]
    while level:
        below: list[BaseModel | type[BaseModel]] = []
        for settings in level:
            kind = settings if isinstance(settings, type) else type(settings)
            for name, field in kind.model_fields.items():
                default = default_of(settings, name)
                found = [default] if isinstance(default, BaseModel) else list(models_in(field.annotation))
                if name == section and found:
                    return found[0]
                below += found
        level = below
    return None


def default_of(settings: BaseModel | type[BaseModel], name: str) -> object:
    if isinstance(settings, BaseModel):
        return getattr(settings, name)
    return settings.model_fields[name].get_default(call_default_factory=True, validated_data={})


def explained() -> Iterator[tuple[Path, str]]:
    for page in sorted(DOCS.glob("*.md")):
        yield from ((page, section) for section in tables(page))


@pytest.mark.parametrize(("page", "section"), list(explained()), ids=lambda value: getattr(value, "stem", value))
def test_the_settings_in_a_table_are_those_of_the_class(page: Path, section: str) -> None:
    """Every field is in the table with its default, and nothing else is. Sections have tables of their own."""
    recipe = recipe_class(SYSTEM.get(page.stem, "spa"))
    found = recipe if not section else APART.get(section) or section_of(section, recipe)
    assert found is not None, f"no section '{section}' in {recipe.__name__}"
    kind = found if isinstance(found, type) else type(found)
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", tables(page)[section], re.MULTILINE))
    defaults = {name: default_of(kind, name) for name in kind.model_fields}
    elsewhere: set[str] = set()
    if kind is recipe:
        elsewhere = {name for name, default in defaults.items() if isinstance(default, BaseModel)}
        assert all(f"`{name}`" in page.read_text() for name in elsewhere)
        elsewhere |= set(Recipe.model_fields)
    assert set(shown) == set(defaults) - elsewhere
    for name, default in defaults.items():
        if name in shown and isinstance(default, str | int | float) and default != "":
            # The class's own default, or what the recipe sets in its place.
            assert shown[name].strip("`").replace(",", "") in {as_yaml(default), as_yaml(default_of(found, name))}, name


def as_yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("page", "sections"), REQUIRED.items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_page_has_the_tables_of_its_sections(page: str, sections: tuple[str, ...]) -> None:
    assert set(sections) <= set(tables(DOCS / f"{page}.md"))


def test_the_page_of_text_games_has_every_setting_with_its_default_first() -> None:
    page = (DOCS / "text-games.md").read_text()
    shown = dict(re.findall(r"^\| `(\w+)` \| `([\w-]+)`, ", page, re.MULTILINE))
    defaults = {name: str(field.default).lower() for name, field in TextGamePredictorConfig.model_fields.items()}
    assert {name: default for name, default in shown.items() if name in defaults} == defaults


def test_every_game_is_on_the_page_of_text_games() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "text-games.md").read_text(), re.MULTILINE)
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
