"""The back office: grids, reports, and what each form changes."""

from __future__ import annotations

import html
import re
from collections import Counter
from urllib.parse import urlencode

import pytest

from web.tests.store_client import ADMIN, SHOP, Changes, Client, plain_product


@pytest.fixture
def admin():
    return Client(ADMIN)


def test_the_orders_grid_filters_sorts_and_pages(admin):
    query = {
        "status": "complete",
        "created_at_from": "1/1/2025",
        "created_at_to": "2025-12-31",
        "total_from": "50",
        "total_to": "500",
        "sort": "total",
        "dir": "desc",
    }
    sql = (
        "SELECT number FROM sales_order WHERE status = 'complete' AND created_at LIKE '2025%'"
        " AND total BETWEEN 5000 AND 50000 ORDER BY total DESC, id DESC"
    )
    expected = [row[0] for row in admin.db.execute(sql)]
    assert len(expected) > 20
    shown = []
    for page in range(1, -(-len(expected) // 20) + 1):
        text = admin.get(f"/admin/sales/order?{urlencode({**query, 'p': page})}")
        assert f"{len(expected)} records found" in text
        shown += re.findall(r"<td>(\d{9})</td>", text)
    assert shown == expected
    assert "Please enter an amount." in admin.get("/admin/sales/order?total_from=lots")
    assert "Please enter a date" in admin.get("/admin/sales/order?created_at_to=soon")


def test_an_order_is_held_released_commented_shipped_and_canceled(admin):
    first, second = [row[0] for row in admin.db.execute("SELECT id FROM sales_order WHERE status = 'pending' LIMIT 2")]
    base = "/admin/sales/order"
    with Changes(admin) as changes:
        admin.post(f"{base}/hold/order_id/{first}")
    changes.are(changed={"sales_order": 1})
    assert tuple(admin.one("SELECT status, held_status FROM sales_order WHERE id = ?", first)) == ("on hold", "pending")
    with Changes(admin) as changes:
        admin.post(f"{base}/cancel/order_id/{first}")
        admin.post(f"{base}/ship/order_id/{first}", carrier="UPS", tracking="1")
        assert "required field" in admin.post(f"{base}/comment/order_id/{first}", 400, comment=" ")
    changes.are()
    admin.post(f"{base}/unhold/order_id/{first}")
    with Changes(admin) as changes:
        assert "choose a carrier" in admin.post(f"{base}/ship/order_id/{first}", 400, carrier="Pigeon")
        assert "at most 40" in admin.post(f"{base}/ship/order_id/{first}", 400, carrier="UPS", tracking="1" * 41)
    changes.are()
    with Changes(admin) as changes:
        admin.post(f"{base}/comment/order_id/{first}", comment="On its way", notify="1")
    changes.are(added={"order_comment": 1})
    assert tuple(admin.one("SELECT text, notified, status FROM order_comment ORDER BY id DESC")) == (
        "On its way",
        1,
        "pending",
    )
    with Changes(admin) as changes:
        text = admin.post(f"{base}/ship/order_id/{first}", carrier="UPS", tracking="1Z999")
    changes.are(added={"shipment": 1}, changed={"sales_order": 1})
    assert "1Z999" in text and admin.value("SELECT status FROM sales_order WHERE id = ?", first) == "complete"
    products = admin.value("SELECT count(*) FROM order_item WHERE order_id = ?", second)
    with Changes(admin) as changes:
        admin.post(f"{base}/cancel/order_id/{second}")
    changes.are(added={"order_comment": 1}, changed={"sales_order": 1, "product": products})
    form = {
        "ship_name": "Ann Lee",
        "ship_street": "1 New Road",
        "ship_city": "Ames",
        "ship_region": "Iowa",
        "ship_postcode": "50010",
        "ship_country": "US",
        "ship_phone": "1",
    }
    with Changes(admin) as changes:
        assert "required field" in admin.post(f"{base}/address/order_id/{second}", 400, **{**form, "ship_city": ""})
    changes.are()
    with Changes(admin) as changes:
        admin.post(f"{base}/address/order_id/{second}", **form)
    changes.are(changed={"sales_order": 1})


def product_form(row, **changes):
    """The product form as its page shows it, with some fields changed."""
    names = ("name", "sku", "brand", "status", "stock", "category_id", "short_description", "description")
    special = "" if row["special_price"] is None else f"{row['special_price'] / 100:.2f}"
    return {
        **{name: row[name] for name in names},
        "price": f"{row['price'] / 100:.2f}",
        "special_price": special,
        **changes,
    }


def test_a_product_is_edited_and_disabled(admin):
    row = plain_product(admin)
    path = f"/admin/catalog/product/edit/id/{row['id']}"
    with Changes(admin) as changes:
        admin.post(path, **product_form(row))
    changes.are()
    with Changes(admin) as changes:
        admin.post(path, **product_form(row, price="12.34", stock="7", options="Color: Red, Blue"))
    changes.are(changed={"product": 1}, added={"product_option": 2})
    assert tuple(admin.one("SELECT price, stock FROM product WHERE id = ?", row["id"])) == (1234, 7)
    sku = admin.value("SELECT sku FROM product WHERE id != ?", row["id"])
    with Changes(admin) as changes:
        for name, value, error in (
            ("price", "x", "valid price"),
            ("stock", "-1", "valid number"),
            ("name", "", "required"),
            ("sku", sku, "must be unique"),
            ("status", "gone", "choose a status"),
            ("category_id", "999", "choose a category"),
        ):
            assert error in admin.post(path, 400, **product_form(row, **{name: value}))
    changes.are()
    shop = Client(SHOP, admin.web)
    assert shop.send("GET", f"/{row['slug']}.html").status == 200
    admin.post(path, **product_form(row, status="disabled"))
    assert shop.send("GET", f"/{row['slug']}.html").status == 404


def test_a_new_product_is_in_the_store(admin):
    form = {
        "name": "Energy <Bulk> Man Tee",
        "sku": "EB-1",
        "price": "60",
        "stock": "50",
        "status": "enabled",
        "category_id": "1",
        "options": "Size: S, M\nColor: Yellow",
    }
    with Changes(admin) as changes:
        admin.post("/admin/catalog/product/new", 400, **{**form, "price": ""})
    changes.are()
    with Changes(admin) as changes:
        admin.post("/admin/catalog/product/new", **form)
        admin.post("/admin/catalog/product/new", **{**form, "sku": "EB-2"})
    changes.are(added={"product": 2, "product_option": 6})
    text = Client(SHOP, admin.web).get("/energy-bulk-man-tee.html")
    assert "Energy &lt;Bulk&gt; Man Tee" in text and "$60.00" in text
    Client(SHOP, admin.web).get("/energy-bulk-man-tee-302.html")


def test_reviews_are_changed_in_bulk_edited_and_deleted(admin):
    pending = [row[0] for row in admin.db.execute("SELECT id FROM review WHERE status = 'pending' ORDER BY id")]
    with Changes(admin) as changes:
        assert "Please select" in admin.post("/admin/review/product", action="approved", chosen="x,99999")
        assert "Please select" in admin.post("/admin/review/product", action="burn", chosen=str(pending[0]))
        path = f"/admin/review/product/edit/id/{pending[0]}"
        admin.post(path, 400, nickname="A", title="", text="T", stars="9", status="pending")
    changes.are()
    with Changes(admin) as changes:
        admin.post("/admin/review/product", action="not approved", chosen=",".join(map(str, pending[:3])))
    changes.are(changed={"review": 3})
    with Changes(admin) as changes:
        admin.post("/admin/review/product", action="delete", chosen=",".join(map(str, pending[:2])))
        admin.post(f"/admin/review/product/delete/id/{pending[2]}")
    changes.are(removed={"review": 3})
    with Changes(admin) as changes:
        path = f"/admin/review/product/edit/id/{pending[3]}"
        admin.post(path, nickname="A", title="New", text="T", stars="2", status="approved")
    changes.are(changed={"review": 1})


def test_a_customer_is_edited(admin):
    path = "/admin/customer/index/edit/id/2"
    form = {"first_name": "Ann", "last_name": "Lee", "email": "ann@lee.example", "group_name": "Wholesale"}
    with Changes(admin) as changes:
        assert "valid email" in admin.post(path, 400, **{**form, "email": "ann"})
        assert "choose a group" in admin.post(path, 400, **{**form, "group_name": "Kings"})
        assert "already an account" in admin.post(path, 400, **{**form, "email": SHOP.user})
    changes.are()
    old = admin.value("SELECT email FROM customer WHERE id = 2")
    subscribed = admin.value("SELECT count(*) FROM subscriber WHERE email = ?", old)
    with Changes(admin) as changes:
        admin.post(path, **form)
    changes.are(changed={"customer": 1, **({"subscriber": 1} if subscribed else {})})


def test_a_price_rule_is_made_applies_and_is_disabled(admin):
    form = {
        "name": "Summer",
        "active": "1",
        "customer_group": "All",
        "coupon": "SUN",
        "action": "by_percent",
        "amount": "50",
        "minimum": "",
    }
    with Changes(admin) as changes:
        for name, value in (
            ("amount", "101"),
            ("amount", ""),
            ("name", ""),
            ("from_date", "soon"),
            ("coupon", "SPRING"),
            ("action", "x"),
            ("active", "2"),
            ("customer_group", "x"),
            ("minimum", "x"),
        ):
            text = admin.post("/admin/sales_rule/promo_quote/new", 400, **{**form, name: value})
            assert text.count('class="error"') == 1
    changes.are()
    with Changes(admin) as changes:
        admin.post("/admin/sales_rule/promo_quote/new", **form)
    changes.are(added={"cart_rule": 1})
    shop = Client(SHOP, admin.web)
    shop.post("/checkout/cart/add", product=plain_product(shop)["id"], qty="1")
    assert "Discount (SUN)" in shop.post("/checkout/cart/coupon", coupon_code="SUN")
    rule = admin.value("SELECT max(id) FROM cart_rule")
    with Changes(admin) as changes:
        admin.post(f"/admin/sales_rule/promo_quote/edit/id/{rule}", **{**form, "active": "0"})
    changes.are(changed={"cart_rule": 1})
    assert "Discount (SUN)" not in shop.get("/checkout/cart")


def test_a_written_page_is_retitled(admin):
    with Changes(admin) as changes:
        assert "required field" in admin.post("/admin/cms/page/edit/page_id/2", 400, title="", body="x", active="1")
    changes.are()
    with Changes(admin) as changes:
        admin.post("/admin/cms/page/edit/page_id/2", title="Our Story", body="Long ago.", active="1")
    changes.are(changed={"cms_page": 1})
    assert "Our Story" in Client(SHOP, admin.web).get("/page/about-us")


def test_reports_agree_with_the_orders(admin):
    sql = "SELECT * FROM sales_order WHERE created_at LIKE '2025-0%' AND status != 'canceled'"
    orders = admin.db.execute(sql).fetchall()
    text = admin.get("/admin/reports/report_sales/sales?period=month&from=2025-01-01&to=9/30/2025")
    assert f"${sum(row['total'] for row in orders) / 100:,.2f}" in text
    months = Counter(row["created_at"][:7] for row in orders)
    rows = re.findall(r"<tr>\s*<td>(2025-\d\d)</td>\s*<td>(\d+)</td>", text)
    assert {month: int(count) for month, count in rows} == months
    sold = Counter()
    for row in orders:
        for item in admin.db.execute("SELECT name, quantity FROM order_item WHERE order_id = ?", (row["id"],)):
            sold[item["name"]] += item["quantity"]
    text = admin.get("/admin/reports/report_sales/bestsellers?period=year&from=2025-01-01&to=2025-09-30")
    best = [
        (html.unescape(name), int(n))
        for name, n in re.findall(r"<td>2025</td>\s*<td>(.*?)</td>\s*<td>.*?</td>\s*<td>(\d+)</td>", text)
    ]
    assert len(best) == 5 and all(sold[name] == n for name, n in best)
    assert [n for _, n in best] == sorted(sold.values(), reverse=True)[:5]
    used = sum(row["coupon"] != "" for row in orders)
    text = admin.get("/admin/reports/report_sales/coupons?period=year&from=2025-01-01&to=2025-09-30")
    assert re.findall(r"<td>SPRING</td>\s*<td>(\d+)</td>", text) == [str(used)]
    low = admin.value("SELECT count(*) FROM product WHERE stock < 10")
    assert f"{low} records found" in admin.get("/admin/reports/report_product/lowstock")
    for query in ("from=2025-01-01", "from=x&to=2025-01-01", "from=2025-02-01&to=2025-01-01"):
        assert admin.send("GET", f"/admin/reports/report_sales/sales?{query}").status == 400


def test_the_dashboard_counts_what_was_not_canceled(admin):
    total, average = admin.one("SELECT sum(total), avg(total) FROM sales_order WHERE status != 'canceled'")
    text = admin.get("/admin")
    assert f"${total / 100:,.2f}" in text and f"${average / 100:,.2f}" in text
