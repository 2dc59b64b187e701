"""WebShop: BM25 by hand, the published reward by hand, errands from search to purchase, real files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from math import log
from pathlib import Path

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.worlds import check, make
from oneiro.worlds.shop import webshop as pages
from oneiro.worlds.shop.products import Index, Product, ShopWish, load, terms
from oneiro.worlds.shop.webshop import BASIC_COLOURS, ShopVisit, alike, reward, type_score

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
WISH = ShopWish("running shoes", ("arch support", "rubber sole"), ("blue", "8"), 50.0)


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


# The published reward once more, from its description alone: nothing of oneiro is used but its types, the colours'
# names and the words of a title, which stand in the place of the original's tagger.


def published(bought: Product, chosen: tuple[str, ...], wanted: Product, wish: ShopWish) -> float:
    nouns_bought, nouns_wanted = terms(bought.title), terms(wanted.title)
    common = {noun for noun in nouns_wanted if noun in nouns_bought}
    title = len(common) / len(nouns_wanted) if nouns_wanted else 0.2
    kind = 1.0
    if bought.query != wanted.query and len(bought.categories.intersection(wanted.categories)) < 2 and not title > 0.2:
        kind = 0.5
    if title < 0.1:
        kind = 0.1
    if title == 0:
        kind = 0.0
    texts = [bought.title.lower(), " ".join(bought.features).lower(), bought.description.lower()]
    hits = 0
    for attribute in wish.attributes:
        near = any(token_set(own, attribute) > 85 for own in bought.attributes)
        hits += near or any(text.find(attribute) >= 0 for text in texts)
    for asked in wish.options:
        hits += any(token_set(plain_colour(value), plain_colour(asked)) > 85 for value in chosen)
    hits += bought.price <= wish.limit
    return hits / (len(wish.attributes) + len(wish.options) + 1) * kind


def plain_colour(value: str) -> str:
    found = [colour for colour in sorted(set(BASIC_COLOURS)) if colour in value]
    return found[0] if found else value


def token_set(first: str, second: str) -> int:
    """thefuzz 0.19: whole words in common, then each with the words of its own behind them; the best of three."""

    def cleaned(text: str) -> list[str]:
        kept = "".join(sign for sign in text if not 128 <= ord(sign) <= 255)
        return "".join(sign if sign.isalnum() or sign == "_" else " " for sign in kept).lower().split()

    mine, theirs = set(cleaned(first)), set(cleaned(second))
    if not mine or not theirs:
        return 0
    both = " ".join(sorted(mine & theirs))
    longer = [" ".join([both, " ".join(sorted(own))]).strip() for own in (mine - theirs, theirs - mine)]
    return max(gestalt(both, longer[0]), gestalt(both, longer[1]), gestalt(*longer))


def gestalt(a: str, b: str) -> int:
    """Ratcliff and Obershelp: the longest common run, the first of equals, and the same left and right of it."""

    def matched(a: str, b: str) -> int:
        for length in range(min(len(a), len(b)), 0, -1):
            for start in range(len(a) - length + 1):
                place = b.find(a[start : start + length])
                if place >= 0:
                    left, right = (a[:start], b[:place]), (a[start + length :], b[place + length :])
                    return length + matched(*left) + matched(*right)
        return 0

    if a == b and a:
        return 100
    return round(100 * 2 * matched(a, b) / (len(a) + len(b))) if a and b else 0


WORDS = (
    *("blue", "dark", "navy", "light-grey", "rose", "gold", "stonewash", "heather", "xx-large", "x-large", "8.5"),
    *("wide", "pack", "of", "2", "4", "inch", '10"', "women's", "men", "non-slip", "non", "slip", "machine", "wash"),
    *("washable", "easy", "to", "use", "bpa", "free", "long", "lasting", "(red)", "café", "Ω", "stand", "sole"),
    *("rubber", "shoe", "shoes", "lamp", "lamps", "high_quality", "high", "quality", "🙂", "|", "&"),
)


def random_case(rng: np.random.Generator) -> tuple[Product, tuple[str, ...], Product, ShopWish]:
    def phrase(most: int) -> str:
        return " ".join(str(word) for word in rng.choice(WORDS, int(rng.integers(1, most + 1))))

    def few(most: int, least: int = 0) -> tuple[str, ...]:
        return tuple(phrase(3) for _ in range(int(rng.integers(least, most + 1))))

    def product() -> Product:
        return Product(
            id="P",
            title=phrase(12).title() if rng.random() < 0.95 else "the",
            description=phrase(8).capitalize(),
            features=few(3),
            categories=frozenset(str(name) for name in rng.choice(["", "A", "B", "C", "D"], 2)),
            query=str(rng.choice(["a", "b", "c"])),
            attributes=few(4),
            options=(),
            price=float(rng.integers(1, 100)),
        )

    chosen, wish = few(3), ShopWish("", few(3, least=1), few(3), float(rng.integers(1, 100)))
    if rng.random() < 0.7:  # nearly what was asked for
        chosen = tuple(asked.replace(" ", str(rng.choice([" ", "-", " and "]))) for asked in wish.options)
    bought, wanted = product(), product()
    if rng.random() < 0.6:  # a kindred thing
        bought = replace(bought, title=f"{bought.title} {wanted.title[: int(rng.integers(3, 20))]}")
    return bought, chosen, wanted, wish


def test_the_colours_are_the_published_ones() -> None:
    digest = hashlib.sha256(" ".join(BASIC_COLOURS).encode()).hexdigest()
    assert (
        len(BASIC_COLOURS) == 102 and list(BASIC_COLOURS) == sorted(BASIC_COLOURS) and digest[:16] == "87767f22f7435a0a"
    )


def test_the_reward_equals_a_second_implementation_on_random_cases() -> None:
    rng = np.random.default_rng(0)
    seen = []
    for number in range(400):
        case = random_case(rng)
        expected = published(*case)
        assert reward(*case) == pytest.approx(expected, abs=1e-12), (number, case)
        seen.append(expected)
    assert len(set(seen)) > 30 and sum(value == 0 for value in seen) < 200


@pytest.mark.parametrize(
    ("value", "asked", "same"),
    [
        ("heather grey", "grey", True),  # both are grey: of an option's colours the first in the alphabet counts
        ("navy blue", "royal blue", True),
        ("bright navy", "royal", False),
        ("wine", "red wine", False),  # red comes before wine
        ("non-slip", "non slip", True),
        ("size 8.5", "8 5 size", True),
        ("(6 pack)", "6 pack", True),
        ("café", "caf", True),  # accented letters are dropped
        ("xx-large", "large", True),
        ("8", "9", False),
    ],
)
def test_options_match_as_published(value: str, asked: str, same: bool) -> None:
    worth = reward(SHOE, (value,), SHOE, ShopWish("", (), (asked,), 50.0))
    assert worth == (1.0 if same else 0.5)


def test_texts_are_compared_as_the_file_has_them(tmp_path: Path) -> None:
    row = {
        "asin": "B1",
        "name": "Lamp  Shade",
        "full_description": "",
        "small_description": "Solid wood ",
        "product_category": "Home › ",
    }
    (tmp_path / "products.json").write_text(json.dumps([row]))
    (product,) = load(tmp_path / "products.json", None)
    assert product.features == ("Solid wood ",) and product.categories == {"Home", ""}
    # The title has two spaces, so the phrase is not in it; the published code says so too.
    assert reward(product, (), product, ShopWish("", ("lamp shade",), (), 1e6)) == 0.5
    assert pages.show(ShopVisit(pages.ITEM, item=0), (product,)).startswith("B1 Lamp Shade\n")


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
def test_the_real_products_make_a_sound_world(few_levels: None) -> None:
    files = {"products": str(DATA / "products_100.jsonl.gz"), "instructions": str(DATA / "items_ins_v2_1000.json")}
    assert len(make("webshop", **files).products) == 100
    assert {finding.status for finding in check("webshop", **files)} == {"ok"}
