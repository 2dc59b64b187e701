"""The store: what its pages show and what each form changes."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from oneiro_web.sites.store.forms import cents
from web.tests.store_client import ADDRESS, ADMIN, DELIVERY, SHOP, Changes, Client, plain_product


@pytest.fixture
def shop():
    return Client()


def test_reading_changes_nothing(shop):
    product = plain_product(shop)
    with Changes(shop) as changes:
        for path in ("/", "/electronics.html", f"/{product['slug']}.html", "/catalogsearch/result?q=tent", "/wishlist"):
            shop.get(path)
    changes.are()


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize(
    ("order", "column"),
    [("name", "lower(name)"), ("price", "final_price"), ("rating", "coalesce(rating, 0)"), ("position", "position")],
)
def test_a_category_is_sorted_filtered_and_paged(shop, order, column, direction):
    sql = (
        "SELECT slug FROM listed WHERE status = 'enabled' AND final_price BETWEEN 2000 AND 20000 AND category_id IN"
        f" (SELECT id FROM category WHERE path LIKE 'electronics%') ORDER BY {column} {direction}, id"
    )
    expected = [row[0] for row in shop.db.execute(sql)]
    assert len(expected) > 12
    shown = []
    for page in range(1, -(-len(expected) // 12) + 1):
        query = urlencode(
            {
                "product_list_order": order,
                "product_list_dir": direction,
                "price_from": "20",
                "price_to": "200",
                "p": page,
            }
        )
        text = shop.get(f"/electronics.html?{query}")
        assert f"of {len(expected)}" in text
        shown += re.findall(r'<h3><a href="/([a-z0-9-]+)\.html">', text)
    assert shown == expected


def test_search_finds_products_with_every_word(shop):
    text = shop.get("/catalogsearch/result?q=CASE+phone")
    names = re.findall(r"<h3><a [^>]*>([^<]*)</a></h3>", text)
    sql = "SELECT name FROM product WHERE name LIKE '%phone%' AND name LIKE '%case%' AND status = 'enabled' ORDER BY id"
    wanted = [row[0] for row in shop.db.execute(sql)]
    assert names == wanted[:12] and f"of {len(wanted)}" in text and wanted
    assert "find products matching" in shop.get("/catalogsearch/result?q=100%25_")
    advanced = shop.get("/catalogsearch/advanced/result?name=tent&price_to=100")
    prices = [cents(text) for text in re.findall(r'<p class="price">(\$[\d.,]+)', advanced)]
    assert prices and all(price <= 10000 for price in prices)


def test_a_product_goes_into_the_cart_and_becomes_an_order(shop):
    product = plain_product(shop)
    with Changes(shop) as changes:
        text = shop.post("/checkout/cart/add", product=product["id"], qty="2")
    changes.are(added={"cart_item": 1})
    assert "to your shopping cart" in text and "My Cart (2)" in text
    assert "My Cart (2)" in shop.get("/checkout/cart")
    assert "to your shopping cart" not in shop.get("/")  # a note is shown once
    shop.post("/checkout/cart/add", product=product["id"], qty="1")
    item = shop.one("SELECT * FROM cart_item")
    assert (item["quantity"], item["options"]) == (3, "")
    with Changes(shop) as changes:
        shop.post("/checkout/cart", **{f"qty_{item['id']}": "2"})
    changes.are(changed={"cart_item": 1})
    with Changes(shop) as changes:
        text = shop.post("/checkout", address="1", **DELIVERY)
    changes.are(
        added={"sales_order": 1, "order_item": 1, "order_comment": 1}, changed={"product": 1}, removed={"cart_item": 1}
    )
    order = shop.one("SELECT * FROM sales_order ORDER BY id DESC")
    address = shop.one("SELECT * FROM address WHERE id = 1")
    assert (order["number"], order["status"], order["created_at"]) == ("000000251", "pending", "2026-06-15 09:01")
    assert order["number"] in text
    assert order["total"] == 2 * product["final_price"] + 500
    assert (order["ship_street"], order["ship_phone"]) == (address["street"], address["phone"])
    assert shop.value("SELECT stock FROM product WHERE id = ?", product["id"]) == product["stock"] - 2
    with Changes(shop) as changes:
        shop.post(f"/sales/order/cancel/order_id/{order['id']}")
    changes.are(added={"order_comment": 1}, changed={"sales_order": 1, "product": 1})
    assert shop.value("SELECT status FROM sales_order WHERE id = ?", order["id"]) == "canceled"
    assert shop.value("SELECT stock FROM product WHERE id = ?", product["id"]) == product["stock"]
    with Changes(shop) as changes:
        assert "can no longer be canceled" in shop.post(f"/sales/order/cancel/order_id/{order['id']}")
    changes.are()
    with Changes(shop) as changes:
        shop.post(f"/sales/order/reorder/order_id/{order['id']}")
    changes.are(added={"cart_item": 1})


def test_options_are_chosen_before_buying(shop):
    row = shop.one(
        "SELECT p.id, o.value FROM product p JOIN product_option o ON o.product_id = p.id WHERE o.name = 'Color'"
        " AND p.status = 'enabled' AND p.stock > 3 AND NOT EXISTS"
        " (SELECT 1 FROM product_option x WHERE x.product_id = p.id AND x.name != 'Color') ORDER BY p.id"
    )
    with Changes(shop) as changes:
        for value in ("", "Plaid"):
            text = shop.post("/checkout/cart/add", 400, product=row["id"], qty="1", option_color=value)
            assert "You need to choose options for your item." in text
        for quantity in ("0", "-1", "many", "9999999999", "998"):
            text = shop.post("/checkout/cart/add", 400, product=row["id"], qty=quantity, option_color=row["value"])
            assert "quantity greater than 0" in text or "not available" in text
    changes.are()
    shop.post("/checkout/cart/add", product=row["id"], qty="1", option_color=row["value"])
    assert shop.value("SELECT options FROM cart_item") == f"Color: {row['value']}"


def test_a_coupon_lowers_the_total(shop):
    product = plain_product(shop)
    shop.post("/checkout/cart/add", product=product["id"], qty="1")
    rule = shop.one("SELECT * FROM cart_rule WHERE coupon LIKE 'WELCOME%'")
    with Changes(shop) as changes:
        for code in ("SPRING", "NOPE", "<b>"):  # over, unknown, hostile
            assert "is not valid" in shop.post("/checkout/cart/coupon", 400, coupon_code=code)
    changes.are()
    with Changes(shop) as changes:
        shop.post("/checkout/cart/coupon", coupon_code=rule["coupon"])
    changes.are(added={"cart": 1})
    shop.post("/checkout", address="1", **DELIVERY)
    order = shop.one("SELECT * FROM sales_order ORDER BY id DESC")
    discount = product["final_price"] * rule["amount"] // 100
    assert (order["coupon"], order["discount"]) == (rule["coupon"], discount)
    assert order["total"] == product["final_price"] - discount + 500
    assert shop.value("SELECT count(*) FROM cart") == 0


def test_checkout_errors_stand_beside_the_field_and_change_nothing(shop):
    shop.post("/checkout/cart/add", product=plain_product(shop)["id"], qty="1")
    with Changes(shop) as changes:
        text = shop.post("/checkout", 400, address="new", city="Ames")
        assert text.count("This is a required field.") == 7
        assert "choose a shipping method" in text and "choose a payment method" in text
        shop.post("/checkout", 400, **{**DELIVERY, "address": "1", "shipping_method": "Free Delivery"})
        shop.post("/checkout", 400, **DELIVERY, address="5")  # somebody else's address
    changes.are()
    shop.post("/checkout", address="new", **DELIVERY, **ADDRESS)
    order = shop.one("SELECT * FROM sales_order ORDER BY id DESC")
    assert (order["ship_name"], order["ship_city"]) == ("Ann Lee", "Ames")


def test_cart_items_are_removed_and_quantities_checked(shop):
    product = plain_product(shop)
    shop.post("/checkout/cart/add", product=product["id"], qty="1")
    item = shop.value("SELECT id FROM cart_item")
    with Changes(shop) as changes:
        assert "number of 0 or more" in shop.post("/checkout/cart", 400, **{f"qty_{item}": "x"})
        assert "not available" in shop.post("/checkout/cart", 400, **{f"qty_{item}": "999"})
    changes.are()
    with Changes(shop) as changes:
        shop.post("/checkout/cart/remove", item=item)
    changes.are(removed={"cart_item": 1})
    assert "You have no items" in shop.get("/checkout")


def test_the_wish_list_takes_a_product_once(shop):
    product = shop.value(
        "SELECT id FROM product WHERE status = 'enabled' AND id NOT IN (SELECT product_id FROM wishlist_item)"
    )
    with Changes(shop) as changes:
        shop.post("/wishlist/add", product=product)
        shop.post("/wishlist/add", product=product)
    changes.are(added={"wishlist_item": 1})
    item = shop.value("SELECT id FROM wishlist_item WHERE product_id = ?", product)
    with Changes(shop) as changes:
        shop.post("/wishlist/remove", item=item)
    changes.are(removed={"wishlist_item": 1})
    plain = plain_product(shop)
    shop.post("/wishlist/add", product=plain["id"])
    item = shop.value("SELECT id FROM wishlist_item WHERE product_id = ?", plain["id"])
    with Changes(shop) as changes:
        shop.post("/wishlist/cart", item=item)
    changes.are(added={"cart_item": 1}, removed={"wishlist_item": 1})


def test_a_review_waits_for_approval(shop):
    product = plain_product(shop)
    path = f"/review/product/list/id/{product['id']}"
    with Changes(shop) as changes:
        text = shop.post(path, 400, nickname="Ann", rating="6")
        assert text.count("This is a required field.") == 2 and "select one of each" in text
    changes.are()
    with Changes(shop) as changes:
        shop.post(path, nickname="Ann", rating="4", title="Zany title", detail="Sturdy.")
    changes.are(added={"review": 1})
    review = shop.one("SELECT * FROM review ORDER BY id DESC")
    assert (review["stars"], review["status"], review["customer_id"]) == (4, "pending", 1)
    assert "Zany title" not in shop.get(path)
    admin = Client(ADMIN, shop.web)
    with Changes(admin) as changes:
        admin.post("/admin/review/product", action="approved", chosen=review["id"])
    changes.are(changed={"review": 1})
    assert "Zany title" in shop.get(path)


def test_addresses_are_added_changed_made_default_and_deleted(shop):
    with Changes(shop) as changes:
        assert shop.post("/customer/address/new", 400, **{**ADDRESS, "city": ""}).count("required field") == 1
        assert "cannot be deleted" in shop.post("/customer/address/delete/id/1")
    changes.are()
    with Changes(shop) as changes:
        shop.post("/customer/address/new", **ADDRESS)
    changes.are(added={"address": 1})
    new = shop.value("SELECT max(id) FROM address")
    with Changes(shop) as changes:
        shop.post(f"/customer/address/edit/id/{new}", **{**ADDRESS, "street": "2 New Road"}, default_shipping="1")
    changes.are(changed={"address": 2})
    rows = {row["id"]: row for row in shop.db.execute("SELECT * FROM address WHERE customer_id = 1")}
    assert (rows[new]["street"], rows[new]["default_shipping"], rows[new]["default_billing"]) == ("2 New Road", 1, 0)
    assert (rows[1]["default_shipping"], rows[1]["default_billing"]) == (0, 1)
    with Changes(shop) as changes:
        shop.post("/customer/address/edit/id/2", **ADDRESS, default_shipping="1")
    changes.are(changed={"address": 2})
    default = "SELECT id FROM address WHERE customer_id = 1 AND default_shipping = 1"
    assert [row[0] for row in shop.db.execute(default)] == [2]
    with Changes(shop) as changes:
        shop.post("/customer/address/delete/id/3")
    changes.are(removed={"address": 1})


def test_the_account_is_edited_and_stays_logged_in(shop):
    with Changes(shop) as changes:
        form = {"first_name": "Ann", "last_name": "Lee", "email": "ann@lee.example"}
        assert "match this account" in shop.post("/customer/account/edit", 400, **form)
        taken = shop.value("SELECT email FROM customer WHERE id = 2")
        assert "already an account" in shop.post("/customer/account/edit", 400, **{**form, "email": taken})
    changes.are()
    with Changes(shop) as changes:
        text = shop.post("/customer/account/edit", **form, current_password="shopper-1")
    changes.are(changed={"customer": 1})
    assert "ann@lee.example" in text and "Ann Lee" in text


def test_the_newsletter_is_subscribed_and_left(shop):
    with Changes(shop) as changes:
        shop.post("/newsletter/manage", is_subscribed="1")
    changes.are(added={"subscriber": 1})
    with Changes(shop) as changes:
        shop.post("/newsletter/manage", is_subscribed="1")
    changes.are()
    with Changes(shop) as changes:
        shop.post("/newsletter/manage")
    changes.are(changed={"subscriber": 1})
    assert shop.value("SELECT status FROM subscriber WHERE email = ?", SHOP.user) == "unsubscribed"
    guest = Client(signed_in=False)
    with Changes(guest) as changes:
        guest.post("/newsletter/subscriber/new", 400, email="nobody")
    changes.are()
    assert "Thank you" in guest.post("/newsletter/subscriber/new", email="a@b.example")
    assert guest.value("SELECT status FROM subscriber WHERE email = 'a@b.example'") == "subscribed"


def test_a_message_is_sent_through_the_contact_form(shop):
    with Changes(shop) as changes:
        text = shop.post("/contact", 400, name="Ann", email="ann", comment="")
        assert "required field" in text and "valid email" in text
    changes.are()
    with Changes(shop) as changes:
        shop.post("/contact", name="Ann", email="ann@lee.example", comment="Where is my order?")
    changes.are(added={"contact_message": 1})


def test_pages_of_an_account_ask_for_log_in_and_lead_back():
    guest = Client(signed_in=False)
    for path in ("/checkout/cart", "/wishlist", "/sales/order/history", "/customer/address"):
        assert guest.send("GET", path).header("location").startswith("/customer/account/login?next=")
    with Changes(guest) as changes:
        for path in ("/checkout/cart/add", "/wishlist/add"):
            assert guest.send("POST", path, {"product": "1"}).status == 303
        assert "sign-in was incorrect" in guest.post("/customer/account/login", 400, email=SHOP.user, password="no")
    changes.are()
    account = {"email": SHOP.user, "password": "shopper-1"}
    reply = guest.send("POST", "/customer/account/login", {**account, "next": "/wishlist"})
    assert reply.header("location") == "/wishlist"
    for elsewhere in ("//evil.example", "http://evil.example", "/checkout/cart/add", "/nowhere"):
        reply = guest.send("POST", "/customer/account/login", {**account, "next": elsewhere})
        assert reply.header("location") == "/customer/account"
    assert "My Wish List" in guest.get("/wishlist")
    guest.get("/customer/account/logout")
    assert guest.send("GET", "/wishlist").status == 303


def test_the_back_office_has_its_own_wall(shop):
    guest = Client(ADMIN, signed_in=False)
    order = guest.value("SELECT id FROM sales_order WHERE status = 'pending'")
    with Changes(guest) as changes:
        for page in ADMIN.pages:
            method = "POST" if "POST" in page.methods else "GET"
            if "auth" not in page.path:
                reply = guest.send(method, page.path.replace("{id}", str(order)))
                assert (reply.status, reply.header("location")[:17]) == (303, "/admin/auth/login")
    changes.are()
    guest.cookies = shop.cookies  # a customer's session does not open it
    assert guest.send("GET", "/admin").status == 303
    reply = guest.send(
        "POST", "/admin/auth/login", {"username": "admin", "password": "admin1234", "next": "/admin/sales/order"}
    )
    assert reply.header("location") == "/admin/sales/order"


def test_an_account_is_created_after_its_errors_are_mended():
    guest = Client(signed_in=False)
    form = {"first_name": "Ann", "last_name": "Lee", "email": "ann@lee.example", "password": "long-enough"}
    with Changes(guest) as changes:
        assert "Minimum length" in guest.post("/customer/account/create", 400, **{**form, "password": "short"})
        assert "the same value" in guest.post("/customer/account/create", 400, **form, password_confirmation="x")
        assert "valid email" in guest.post("/customer/account/create", 400, **{**form, "email": "ann@lee"})
        assert "already an account" in guest.post("/customer/account/create", 400, **{**form, "email": SHOP.user})
    changes.are()
    with Changes(guest) as changes:
        text = guest.post("/customer/account/create", **form, password_confirmation="long-enough", is_subscribed="1")
    changes.are(added={"customer": 1, "subscriber": 1})
    assert "ann@lee.example" in text and "no orders" in text
