"""Tasks that end on a page of the back office."""

from __future__ import annotations

from oneiro_web.sites.shopping_admin.tasks.parts import open_order
from oneiro_web.templates.table import ShowPage, by, click, enter, pick

TEMPLATES = (
    ShowPage(
        "shopping_admin/open-buyer",
        "Open the page of the customer who placed order {number}.",
        "Take me to the customer record behind order {number}.",
        skills="filter navigate",
        draw=pick("SELECT number, customer_id AS id, customer_name AS customer FROM sales_order ORDER BY id"),
        way=[by(open_order, "{number}"), click("link", "{customer}")],
        page="/admin/customer/index/edit/id/{id}",
    ),
    ShowPage(
        "shopping_admin/open-product",
        "Open the product with the SKU {sku} for editing.",
        "Go to the edit page of the product {sku}.",
        skills="filter navigate",
        draw=pick("SELECT id, sku FROM product ORDER BY id"),
        way=[click("link", "Products"), enter("SKU", "{sku}"), click("link", "Edit", within="{sku}")],
        page="/admin/catalog/product/edit/id/{id}",
    ),
)
