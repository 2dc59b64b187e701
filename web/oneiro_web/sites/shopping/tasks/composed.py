"""The store's lists, as templates are composed from them."""

from __future__ import annotations

from oneiro_web.sites.shopping.tasks.cart import WISHED
from oneiro_web.sites.shopping.tasks.parts import OWN, open_orders, search_product
from oneiro_web.sites.store.tasks import day, money
from oneiro_web.templates.schema import Act, Entity, Field, Filter, Sort
from oneiro_web.templates.table import by, choose, click

SITE = "shopping"
NAME = Field("name", "name")


def dollars(cents: int) -> str:
    return f"{cents / 100:.2f}"


def by_order(name: str, column: str, option: str, down: bool, *phrases: str) -> Sort:
    direction = (choose("Direction", "Descending"),) if down else ()
    return Sort(name, phrases, column, (choose("Sort By", option), *direction), down, in_form=True)


SORTS = (
    by_order("cheapest", "final_price", "Price", False, "that is the cheapest", "with the lowest price"),
    by_order("dearest", "final_price", "Price", True, "that is the most expensive", "with the highest price"),
    by_order("best", "rating", "Rating", True, "with the best rating", "that is rated best"),
)
WISHES = (
    Act("wish", ("Add {row} to my wish list.", "Keep {row} on my wish list for later."),
        (click("button", "Add to Wish List"),), lambda row: not row["wished"],
        fill=lambda content, row, slots: {**slots, "id": row["id"]}, rows={WISHED: (1,)},
        changes={"wishlist_item": f"{OWN} AND product_id = :rowid"}),
)  # fmt: skip
SOURCE = (
    "SELECT l.id, l.name, l.slug, l.sku, l.brand, l.final_price, l.rating, l.reviews, c.name AS category, "
    "c.path AS path, parent.name AS department, l.id IN (SELECT product_id FROM wishlist_item WHERE "
    f"{OWN}) AS wished FROM listed l JOIN category c ON c.id = l.category_id "
    "LEFT JOIN category parent ON parent.id = c.parent_id WHERE l.status = 'enabled' AND {} ORDER BY l.position"
)
FIELDS = (Field("final_price", "price", "money", money), Field("sku", "SKU", on_page=True))
PRICE = Filter("price", ("that cost ${price} or more", "with a price from ${price}"), "from", "Price from",
               "final_price", "price_from", shown=dollars, narrow=True)  # fmt: skip
OPEN = (click("link", "{rowname}"),)

FOUND = Entity(
    "found-products",
    "product",
    SITE,
    SOURCE.format("1"),
    NAME,
    (),
    fields=FIELDS,
    filters=(Filter("name", ('"{name}"', 'named "{name}"'), label="Search", param="q", unique=True),),
    acts=WISHES,
    page="/catalogsearch/result",
    open=OPEN,
    row_page="/{rowslug}.html",
    size=12,
)
"""By the search on every page."""

OF_BRAND = Entity(
    "brand-products",
    "product",
    SITE,
    # a brand whose words stand in no other product's name; brands are few, so they are looked for once, not by product
    SOURCE.format("l.brand NOT IN (SELECT b.brand FROM (SELECT DISTINCT brand, "
                  "lower(substr(brand, 1, instr(brand || ' ', ' ') - 1)) AS word FROM product) b "
                  "JOIN (SELECT DISTINCT brand, lower(name) AS name FROM product) o "
                  "ON o.brand != b.brand AND instr(o.name, b.word))"),
    NAME,
    (by(search_product, "{brand}"),),
    submit=(click("button", "Apply"),),
    scope=("brand",),
    of=(" of the brand {brand}", " that {brand} makes"),
    fields=FIELDS,
    filters=(PRICE,),
    sorts=SORTS,
    acts=WISHES,
    open=OPEN,
    row_page="/{rowslug}.html",
    size=12,
)  # fmt: skip
"""By a search for the brand."""

IN_CATEGORY = Entity(
    "category-products",
    "product",
    SITE,
    SOURCE.format("c.level = 2 AND (SELECT count(*) FROM category o WHERE o.name = c.name) = 1"),
    NAME,
    (click("link", "{department}"), click("link", "{category}")),
    submit=(click("button", "Apply"),),
    scope=("category", "department", "path"),
    of=(" in the category {category} of {department}", " under {category} in {department}"),
    fields=FIELDS,
    filters=(PRICE,),
    sorts=SORTS,
    acts=WISHES,
    open=OPEN,
    row_page="/{rowslug}.html",
    size=12,
)
"""By the menu."""

MY_ORDERS = Entity(
    "my-orders",
    "order",
    SITE,
    f"SELECT *, substr(created_at, 1, 10) AS placed FROM sales_order WHERE {OWN} ORDER BY id DESC LIMIT 10",
    Field("number", "order number"),
    (by(open_orders),),
    fields=(
        Field("total", "order total", "money", money),
        Field("subtotal", "subtotal", "money", money, on_page=True),
    ),
    filters=(
        Filter("number", ("{number}", "with the number {number}"), "named"),
        Filter("day", ("of {day}", "that I placed on {day}"), "named", column="created_at", read=day),
        Filter("total", ("with a total of {total}", "for {total}"), "named", shown=money),
        Filter("status", ('with the status "{status}"', 'that is "{status}"'), "named", shown=str.capitalize),
    ),
    pairs=("day+status", "total+status"),
    open=(click("link", "View Order", within="{rownumber}"),),
    row_page="/sales/order/view/order_id/{rowid}",
    size=10,
)

ENTITIES = (FOUND, OF_BRAND, IN_CATEGORY, MY_ORDERS)
