"""The back office of the store: its pages and their addresses."""

from __future__ import annotations

from oneiro_web.sites.base import Site, route
from oneiro_web.sites.shopping_admin.pages import catalogue, customers, marketing, reports, sales
from oneiro_web.sites.store.content import STORE

WALL = "/admin/auth/login"

PAGES = (
    route("/admin", reports.dashboard, login=WALL),
    route("/admin/auth/login", customers.log_in_page),
    route("/admin/auth/login", customers.log_in, post=True),
    route("/admin/auth/logout", customers.log_out),
    route("/admin/sales/order", sales.orders, login=WALL),
    route("/admin/sales/order/view/order_id/{id}", sales.order, login=WALL),
    route("/admin/sales/order/cancel/order_id/{id}", sales.cancel, post=True, login=WALL),
    route("/admin/sales/order/hold/order_id/{id}", sales.hold, post=True, login=WALL),
    route("/admin/sales/order/unhold/order_id/{id}", sales.unhold, post=True, login=WALL),
    route("/admin/sales/order/comment/order_id/{id}", sales.comment, post=True, login=WALL),
    route("/admin/sales/order/ship/order_id/{id}", sales.ship, post=True, login=WALL),
    route("/admin/sales/order/address/order_id/{id}", sales.address_page, login=WALL),
    route("/admin/sales/order/address/order_id/{id}", sales.address, post=True, login=WALL),
    route("/admin/catalog/product", catalogue.products, login=WALL),
    route("/admin/catalog/product/new", catalogue.new_page, login=WALL),
    route("/admin/catalog/product/new", catalogue.new, post=True, login=WALL),
    route("/admin/catalog/product/edit/id/{id}", catalogue.edit_page, login=WALL),
    route("/admin/catalog/product/edit/id/{id}", catalogue.edit, post=True, login=WALL),
    route("/admin/review/product", catalogue.reviews, login=WALL),
    route("/admin/review/product", catalogue.change_reviews, post=True, login=WALL),
    route("/admin/review/product/edit/id/{id}", catalogue.review_page, login=WALL),
    route("/admin/review/product/edit/id/{id}", catalogue.edit_review, post=True, login=WALL),
    route("/admin/review/product/delete/id/{id}", catalogue.delete_review, post=True, login=WALL),
    route("/admin/customer/index", customers.customers, login=WALL),
    route("/admin/customer/index/edit/id/{id}", customers.edit_page, login=WALL),
    route("/admin/customer/index/edit/id/{id}", customers.edit, post=True, login=WALL),
    route("/admin/sales_rule/promo_quote", marketing.rules, login=WALL),
    route("/admin/sales_rule/promo_quote/new", marketing.new_rule_page, login=WALL),
    route("/admin/sales_rule/promo_quote/new", marketing.new_rule, post=True, login=WALL),
    route("/admin/sales_rule/promo_quote/edit/id/{id}", marketing.rule_page, login=WALL),
    route("/admin/sales_rule/promo_quote/edit/id/{id}", marketing.edit_rule, post=True, login=WALL),
    route("/admin/search/term", marketing.terms, login=WALL),
    route("/admin/cms/page", marketing.pages, login=WALL),
    route("/admin/cms/page/edit/page_id/{id}", marketing.page_page, login=WALL),
    route("/admin/cms/page/edit/page_id/{id}", marketing.edit_page, post=True, login=WALL),
    route("/admin/reports/report_sales/sales", reports.sales, login=WALL),
    route("/admin/reports/report_sales/bestsellers", reports.bestsellers, login=WALL),
    route("/admin/reports/report_sales/coupons", reports.coupons, login=WALL),
    route("/admin/reports/report_product/lowstock", reports.low_stock, login=WALL),
)

SITE = Site(
    "shopping_admin",
    "Luma Back Office",
    "luma.com",
    "/admin",
    STORE,
    "admin",
    PAGES,
    account=("admin", "admin1234"),
)
