"""The back office's grids, as templates are composed from them."""

from __future__ import annotations

from collections.abc import Callable

from oneiro_web.sites.dice import load_words
from oneiro_web.sites.shopping_admin.pages.catalogue import REVIEW_SOURCE
from oneiro_web.sites.shopping_admin.pages.customers import SOURCE as CUSTOMERS
from oneiro_web.sites.store.tasks import canceled, canceling, last_id, money, returned
from oneiro_web.templates.base import Content, Slots
from oneiro_web.templates.schema import Act, Entity, Field, Filter, Row, Sort
from oneiro_web.templates.table import Step, choose, click, write

WORDS = load_words("store")["tasks"]
APPLY = (click("button", "Apply Filters"),)
SITE = "shopping_admin"


def day(stamp: str) -> str:
    return stamp[:10]


def dollars(cents: int) -> str:
    return f"{cents / 100:.2f}"


def by_column(name: str, words: str, column: str, label: str, *phrases: str) -> tuple[Sort, Sort]:
    """A grid's column, sorted both ways; `{}` in the phrases is `highest` or `lowest`, or what `words` says."""
    high, low = words.split("/")
    up: tuple[Step, ...] = (click("link", label),)
    return (
        Sort(
            f"{high}-{name}", tuple(text.format(high) for text in phrases), column, (*up, click("link", f"{label} ↑"))
        ),
        Sort(f"{low}-{name}", tuple(text.format(low) for text in phrases), column, up, down=False),
    )


def row_link(name: str, title: str) -> tuple[Step, ...]:
    return (click("link", name, within=title),)


def with_stocks(content: Content, row: Row, slots: Slots) -> Slots:
    return {**slots, "order": row["id"], "stocks": returned(content, row["id"]), "row": {"status": "canceled"}}


def with_last(content: Content, row: Row, slots: Slots) -> Slots:
    return {**slots, "last": last_id(content, "order_comment")}


def edit(table: str, column: str, value: str, name: str, phrases: tuple[str, ...], steps: tuple[Step, ...],
         when: Callable[[Row], bool] | None = None) -> Act:  # fmt: skip
    """An act that leaves a row of a table with another value."""
    return Act(
        name,
        phrases,
        steps,
        when or (lambda row: row[column] != value),
        fill=lambda content, row, slots: {**slots, "row": {column: value}},
        edits=f"{table} rowid",
    )


def is_open(row: Row) -> bool:
    return row["status"] in ("pending", "processing")


ORDERS = Entity(
    "orders",
    "order",
    SITE,
    "SELECT * FROM sales_order ORDER BY id DESC",
    Field("number", "ID"),
    (click("link", "Orders"),),
    submit=APPLY,
    fields=(
        Field("customer_name", "customer"),
        Field("total", "grand total", "money", money),
        Field("created_at", "purchase date", "date", day),
        Field("ship_phone", "shipping phone number", on_page=True),
    ),
    filters=(
        Filter("number", ("{number}", "with the ID {number}"), label="ID", unique=True),
        Filter("customer", ('of the customer "{customer}"', "that {customer} placed"), label="Customer",
               column="customer_name"),
        Filter("email", ("of the customer with the email {email}", "placed by {email}"), label="Customer Email",
               column="customer_email"),
        Filter("status", ('with the status "{status}"', 'in status "{status}"'), "choice", "Status",
               shown=str.capitalize),
        Filter("since", ("placed since {since}", "with a purchase date from {since} on"), "from", "Purchase Date from",
               "created_at", "created_at_from", read=day),
        Filter("total", ("of ${total} or more", "with a grand total from ${total}"), "from", "Grand Total from",
               "total", "total_from", shown=dollars),
    ),
    pairs=("customer+status", "status+since", "status+total", "customer+total"),
    sorts=(
        *by_column("total", "highest/lowest", "total", "Grand Total", "with the {} grand total"),
        *by_column("date", "latest/earliest", "created_at", "Purchase Date", "with the {} purchase date"),
    ),
    sorted=("customer",),
    acts=(
        edit("sales_order", "status", "on hold", "hold", ("Put {row} on hold.", "Set {row} on hold for now."),
             (click("button", "Hold"),), when=is_open),
        Act("cancel", ("Cancel {row}.", "The customer no longer wants {row}. Cancel it."), (click("button", "Cancel"),),
            is_open, fill=with_stocks, rows=lambda slots: canceled(SITE, slots), changes=canceling),
        Act("comment", ('Add the comment "{text}" to {row}.', 'Leave the note "{text}" on {row}.'),
            (write("Comment", "{text}"), click("button", "Submit Comment")), texts=tuple(WORDS["notes"]),
            fill=with_last,
            rows={"SELECT order_id, text, notified FROM order_comment WHERE id > :last": (":rowid", ":text", 0)},
            changes={"order_comment": "id > :last"}),
    ),
    counts=("status", "since", "total", "status+since", "status+total"),
    page="/admin/sales/order",
    open=row_link("View", "{rownumber}"),
    row_page="/admin/sales/order/view/order_id/{rowid}",
)  # fmt: skip

PRODUCTS = Entity(
    "products",
    "product",
    SITE,
    "SELECT * FROM product ORDER BY id",
    Field("name", "name"),
    (click("link", "Products"),),
    submit=APPLY,
    fields=(
        Field("sku", "SKU"),
        Field("price", "price", "money", money),
        Field("stock", "quantity", "number", least=10),
        Field("brand", "brand"),
    ),
    filters=(
        Filter("name", ('"{name}"', 'named "{name}"'), label="Name", unique=True, tells=("brand",)),
        Filter("sku", ("with the SKU {sku}", "whose SKU is {sku}"), label="SKU", unique=True),
        Filter("brand", ("of the brand {brand}", "that {brand} makes"), label="Brand"),
        Filter("status", ('with the status "{status}"', 'in status "{status}"'), "choice", "Status",
               shown=str.capitalize),
        Filter("price", ("that cost ${price} or more", "with a price from ${price}"), "from", "Price from", "price",
               "price_from", shown=dollars),
        Filter("stock", ("with a quantity of {stock} or more", "with at least {stock} in stock"), "from",
               "Quantity from", "stock", "stock_from"),
    ),
    pairs=("brand+price", "brand+stock", "price+stock"),
    sorts=(
        *by_column("price", "highest/lowest", "price", "Price", "with the {} price"),
        *by_column("stock", "highest/lowest", "stock", "Quantity", "with the {} quantity"),
    ),
    sorted=("brand",),
    acts=(
        edit("product", "status", "disabled", "disable",
             ("Disable {row}.", "Take {row} out of the store by disabling it."),
             (choose("Enable Product", "Disabled"), click("button", "Save"))),
        Act("offer", ("Give {row} a special price of ${text}.", "Put {row} on offer for ${text}."),
            (write("Special Price", "{text}"), click("button", "Save")),
            lambda row: row["special_price"] is None and row["price"] > 900,
            texts=("4.95", "5.49", "6.25", "7.50", "7.99", "8.75"),
            fill=lambda content, row, slots: {
                **slots, "row": {"special_price": int(slots["text"].replace(".", ""))}
            }, edits="product rowid"),
    ),
    counts=("price", "stock", "price+stock"),
    page="/admin/catalog/product",
    open=row_link("Edit", "{rowname}"),
    row_page="/admin/catalog/product/edit/id/{rowid}",
)  # fmt: skip

REVIEWS = Entity(
    "reviews",
    "review",
    SITE,
    f"SELECT * FROM {REVIEW_SOURCE} ORDER BY id DESC",
    Field("id", "ID", "number"),
    (click("link", "Reviews"),),
    submit=APPLY,
    fields=(
        Field("nickname", "nickname"),
        Field("product", "product"),
        Field("created_at", "creation date", "date", day),
    ),
    filters=(
        Filter("nickname", ('of "{nickname}"', "that {nickname} wrote"), label="Nickname"),
        Filter("product", ('of the "{product}"', 'about the "{product}"'), label="Product"),
        Filter("status", ('with the status "{status}"', 'in status "{status}"'), "choice", "Status",
               shown=str.title),
        Filter("stars", ("with {stars} stars or more", "with at least {stars} stars"), "from", "Stars from", "stars",
               "stars_from"),
        Filter("since", ("written since {since}", "created on {since} or later"), "from", "Created from",
               "created_at", "created_at_from", read=day),
    ),
    pairs=("nickname+product", "product+status", "status+since", "stars+since"),
    sorts=by_column("date", "latest/earliest", "created_at", "Created", "with the {} creation date"),
    sorted=("product",),
    acts=(
        edit("review", "status", "approved", "approve", ("Approve {row}.", "Set {row} to approved."),
             (choose("Status", "Approved"), click("button", "Save Review"))),
        edit("review", "status", "not approved", "reject",
             ("Reject {row}: it is not approved.", "Set {row} to not approved."),
             (choose("Status", "Not Approved"), click("button", "Save Review"))),
        Act("delete", ("Delete {row}.", "Remove {row} for good."), (click("button", "Delete Review"),),
            rows={"SELECT count(*) FROM review WHERE id = :rowid": (0,)}, changes={"review": "id = :rowid"}),
    ),
    counts=("since", "status", "status+since", "stars+since"),
    page="/admin/review/product",
    open=row_link("Edit", "Select {rowid}"),
    row_page="/admin/review/product/edit/id/{rowid}",
)  # fmt: skip

CUSTOMER = Entity(
    "customers",
    "customer",
    SITE,
    f"SELECT * FROM {CUSTOMERS} ORDER BY id",
    Field("name", "name"),
    (click("link", "Customers"),),
    submit=APPLY,
    fields=(
        Field("email", "email"),
        Field("phone", "phone number"),
        Field("postcode", "ZIP code"),
        Field("created_at", "date of registration", "date", day),
    ),
    filters=(
        Filter("name", ('"{name}"', "named {name}"), label="Name", unique=True),
        Filter("email", ("with the email {email}", "whose email is {email}"), label="Email", unique=True),
        Filter("phone", ("with the phone number {phone}", "whose phone number is {phone}"), label="Phone", unique=True),
        Filter("region", ("from {region}", "who live in {region}"), label="State/Province"),
        Filter("group", ('of the group "{group}"', "in the customer group {group}"), "choice", "Group", "group_name"),
        Filter("since", ("registered since {since}", "who have been customers since {since} or later"), "from",
               "Customer Since from", "created_at", "created_at_from", read=day),
    ),
    pairs=("group+region", "group+since", "region+since"),
    sorts=by_column("date", "latest/earliest", "created_at", "Customer Since", "with the {} date of registration"),
    sorted=("group", "region"),
    acts=tuple(
        edit("customer", "group_name", group, f"to-{group.lower()}",
             (f"Move {{row}} to the customer group {group}.", f"Make {{row}} a {group} customer."),
             (choose("Group", group), click("button", "Save Customer")))
        for group in ("Wholesale", "Retailer")
    ),
    counts=("since",),
    page="/admin/customer/index",
    open=row_link("Edit", "{rowemail}"),
    row_page="/admin/customer/index/edit/id/{rowid}",
)  # fmt: skip

TERMS = Entity(
    "terms",
    "search term",
    SITE,
    "SELECT * FROM search_term ORDER BY uses DESC",
    Field("term", "search query"),
    (click("link", "Search Terms"),),
    submit=APPLY,
    fields=(Field("uses", "number of uses", "number"),),
    filters=(
        Filter("term", ('"{term}"', 'for "{term}"'), label="Search Query", unique=True),
        Filter("uses", ("used {uses} times or more", "with at least {uses} uses"), "from", "Uses from", "uses",
               "uses_from"),
        Filter("results", ("with {results} results or more", "that find at least {results} products"), "from",
               "Results from", "results", "results_from"),
    ),
    pairs=("uses+results",),
    sorts=(
        *by_column("uses", "highest/lowest", "uses", "Uses", "with the {} number of uses"),
        *by_column("results", "highest/lowest", "results", "Results", "with the {} number of results"),
    ),
    counts=("uses", "results"),
    page="/admin/search/term",
)  # fmt: skip

ENTITIES = (ORDERS, PRODUCTS, REVIEWS, CUSTOMER, TERMS)
