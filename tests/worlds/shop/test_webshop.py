"""WebShop: BM25 by hand, the published reward by hand, errands from search to purchase, real files."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from oneiro.errors import OneiroError
from oneiro.worlds import check, make
from oneiro.worlds.shop.products import Product, Wish, load
from oneiro.worlds.shop.reward import alike, reward, type_score
from oneiro.worlds.shop.search import Index, terms

DATA = Path(__file__).parents[4] / "shared" / "data" / "webshop"

SHOE = Product(
    id="P1",
    title="Alder running shoe",
    description="A shoe for the road.",
    features=("Rubber sole.",),
    categories=frozenset({"Clothing", "Shoes", "Athletic"}),
    query="running shoes",
    attributes=("arch support", "non slip"),
    options=(("color", ("dark blue", "red")), ("size", ("7", "8"))),
    price=40.0,
)
WISH = Wish("running shoes", ("arch support", "rubber sole"), ("blue", "8"), 50.0)


def test_bm25_scores_are_those_of_the_formula() -> None:
    index = Index(["red shoe", "blue shoe shoe", "green lamp"])
    # Two of three documents have 'shoe': rarity log(1 + 1.5/2.5); mean length 7/3.
    rarity = log(1 + 1.5 / 2.5)

    def weight(times: int, length: int) -> float:
        return rarity * times * 1.9 / (times + 0.9 * (0.6 + 0.4 * length * 3 / 7))

    assert dict(index._weights["shoe"]) == pytest.approx({0: weight(1, 2), 1: weight(2, 3)})
    assert index.search("shoes", 10) == [1, 0]
    assert index.search("the red shoes", 10)[0] == 0
    assert index.search("☃", 10) == [] and index.search("", 10) == []


def test_words_lose_case_plural_and_stopwords() -> None:
    assert terms("I am looking for the Shoes, glass & 2 lamps!") == ["shoe", "glass", "2", "lamp"]


def test_the_reward_is_the_published_formula() -> None:
    # Two attributes, two options and the price: five things to match.
    assert reward(SHOE, ("dark blue", "8"), SHOE, WISH) == 1.0
    assert reward(SHOE, ("dark blue",), SHOE, WISH) == pytest.approx(4 / 5)
    assert reward(SHOE, (), SHOE, WISH) == pytest.approx(3 / 5)
    assert reward(replace(SHOE, price=60.0), ("red", "8"), SHOE, WISH) == pytest.approx(3 / 5)
    assert reward(SHOE, (), SHOE, replace(WISH, limit=0.0, options=())) == 1.0
    lamp = replace(SHOE, title="Corvo desk lamp", query="desk lamps", categories=frozenset({"Home"}), attributes=())
    assert reward(lamp, (), SHOE, WISH) == 0.0


def test_the_kind_of_thing_bought_has_four_grades() -> None:
    wanted = replace(SHOE, title=" ".join(f"word{n}" for n in range(20)), query="a", categories=frozenset({"x", "y"}))
    other = replace(wanted, query="b", categories=frozenset({"z"}))
    assert type_score(replace(other, title="else"), wanted) == 0.0
    assert type_score(replace(other, title="word1"), wanted) == 0.1
    assert type_score(replace(other, title="word1 word2 word3"), wanted) == 0.5
    assert type_score(replace(other, title="word1 word2 word3", query="a"), wanted) == 1.0
    assert type_score(replace(other, title="word1 word2 word3", categories=frozenset({"x", "y"})), wanted) == 1.0
    assert type_score(replace(other, title="word1 word2 word3 word4 word5"), wanted) == 1.0


def test_phrases_are_alike_if_they_share_their_words() -> None:
    assert (
        alike("arch support", "support arch")
        and alike("non slip sole", "non slip")
        and alike("light weight", "light weights")
    )
    assert not alike("red", "blue") and not alike("", "blue") and not alike("size 7", "size 10 wide")


def test_an_errand_goes_from_search_to_purchase() -> None:
    world = make("webshop")
    shown, info = world.reset(seed=0)
    assert "Actions: search[words]" in shown and world.step("click[Buy Now]")[4]["valid"] is False
    shown, *_ = world.step(f"search[{world.goal.wish.text}]")
    assert "Results 1 to 10" in shown and "click[Next >]" in shown
    first = shown.split("\n")[2].split()[0]
    world.step("click[next >]")
    assert world.step("click[< prev]")[0] == shown
    item, *_ = world.step(f"Click[{first.lower()}]")
    assert first in item and "click[Buy Now]" in item
    assert world.step("click[Description]")[0].split("\n")[1].startswith("Description:")
    assert world.step("click[< Prev]")[0] == item
    _, paid, done, _, info = world.step("click[buy now]")
    assert done and 0 <= paid <= 1 and info["score"] == paid
    assert world.step("click[Buy Now]")[1] == 0.0


def test_an_option_is_replaced_within_its_kind() -> None:
    world = make("webshop")
    world.reset(seed=0)
    world.step(world.oracle())
    world.step(world.oracle())
    colours = dict(world.goal.product.options)["color"]
    for colour in colours[:2]:
        world.step(f"click[{colour}]")
    assert dict(world.visit.chosen)["color"] == colours[1] and len(world.visit.chosen) == 1


def test_binary_pays_only_a_perfect_purchase() -> None:
    for binary in (False, True):
        world = make("webshop", binary=binary)
        world.reset(seed=0)
        for _ in range(2):
            world.step(world.oracle())
        _, paid, _, _, info = world.step("click[Buy Now]")
        assert 0 < info["score"] < 1 and paid == (0.0 if binary else info["score"])
        world.reset(seed=0)
        while not world.over:
            _, paid, _, _, info = world.step(world.oracle())
        assert paid == 1.0 and info["success"]


def test_raw_items_are_read_like_indexed_ones(tmp_path: Path) -> None:
    raw = {
        "asin": "B1",
        "name": "Blue Lamp",
        "full_description": "Shines.",
        "small_description": ["Bright."],
        "pricing": "$10.00 - $20.00",
        "product_category": "Home › Lamps",
        "query": "Lamps",
        "customization_options": {"Color": [{"value": "Blue/Green"}, {"value": "Red"}]},
    }
    (tmp_path / "items.json").write_text(json.dumps([raw, {"asin": "", "name": "no id"}]))
    wish = {
        "B1": {
            "attributes": ["bright light"],
            "instruction": "Find me a lamp",
            "instruction_attributes": ["bright light"],
        }
    }
    (tmp_path / "ins.json").write_text(json.dumps(wish))
    (product,) = load(tmp_path / "items.json", tmp_path / "ins.json")
    assert (product.price, product.options) == (15.0, (("color", ("blue | green", "red")),))
    assert product.attributes == ("bright light",) and product.wishes[0].text == "Find me a lamp"
    (tmp_path / "none.json").write_text("[]")
    with pytest.raises(OneiroError, match="holds no product"):
        load(tmp_path / "none.json", None)
    with pytest.raises(OneiroError, match="instructions need a products file"):
        make("webshop", instructions=str(tmp_path / "ins.json"))


@pytest.mark.skipif(not DATA.exists(), reason="the WebShop files are not beside the project")
def test_the_real_products_make_a_sound_world() -> None:
    files = {"products": str(DATA / "products_100.jsonl.gz"), "instructions": str(DATA / "items_ins_v2_1000.json")}
    assert len(make("webshop", **files).products) == 100
    assert {finding.status for finding in check("webshop", **files)} == {"ok"}
