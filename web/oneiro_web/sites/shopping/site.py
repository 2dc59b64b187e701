"""The store: its pages and their addresses."""

from __future__ import annotations

from oneiro_web.sites.base import Site, route
from oneiro_web.sites.shopping.pages import account, cart, catalogue, orders
from oneiro_web.sites.store.content import STORE
from oneiro_web.sites.store.orders import SHOPPER

WALL = "/customer/account/login"

PAGES = (
    route("/", catalogue.home),
    route("/catalogsearch/result", catalogue.search),
    route("/catalogsearch/advanced", catalogue.advanced),
    route("/catalogsearch/advanced/result", catalogue.advanced_result),
    route("/review/product/list/id/{id}", catalogue.reviews),
    route("/review/product/list/id/{id}", catalogue.post_review, post=True),
    route("/page/{slug}", catalogue.information),
    route("/contact", account.contact),
    route("/contact", account.send_contact, post=True),
    route("/contact/sent", account.contact_sent),
    route("/newsletter/subscriber/new", account.subscribe, post=True),
    route("/newsletter/subscriber/thanks", account.subscribe_thanks),
    route("/newsletter/manage", account.newsletter, login=WALL),
    route("/newsletter/manage", account.save_newsletter, post=True, login=WALL),
    route("/checkout/cart", cart.cart, login=WALL),
    route("/checkout/cart/add", cart.add, post=True, login=WALL),
    route("/checkout/cart", cart.update, post=True, login=WALL),
    route("/checkout/cart/remove", cart.remove, post=True, login=WALL),
    route("/checkout/cart/coupon", cart.coupon, post=True, login=WALL),
    route("/checkout", cart.checkout, login=WALL),
    route("/checkout", cart.place, post=True, login=WALL),
    route("/checkout/success/{id}", cart.success, login=WALL),
    route("/wishlist", cart.wishlist, login=WALL),
    route("/wishlist/add", cart.wish, post=True, login=WALL),
    route("/wishlist/remove", cart.unwish, post=True, login=WALL),
    route("/wishlist/cart", cart.wish_to_cart, post=True, login=WALL),
    route("/customer/account", account.dashboard, login=WALL),
    route("/customer/account/login", account.log_in_page),
    route("/customer/account/login", account.log_in, post=True),
    route("/customer/account/logout", account.log_out),
    route("/customer/account/create", account.create_page),
    route("/customer/account/create", account.create, post=True),
    route("/customer/account/edit", account.edit_page, login=WALL),
    route("/customer/account/edit", account.edit, post=True, login=WALL),
    route("/customer/address", account.addresses, login=WALL),
    route("/customer/address/new", account.new_address_page, login=WALL),
    route("/customer/address/new", account.new_address, post=True, login=WALL),
    route("/customer/address/edit/id/{id}", account.edit_address_page, login=WALL),
    route("/customer/address/edit/id/{id}", account.edit_address, post=True, login=WALL),
    route("/customer/address/delete/id/{id}", account.delete_address, post=True, login=WALL),
    route("/sales/order/history", orders.history, login=WALL),
    route("/sales/order/view/order_id/{id}", orders.view, login=WALL),
    route("/sales/order/reorder/order_id/{id}", orders.reorder, post=True, login=WALL),
    route("/sales/order/cancel/order_id/{id}", orders.cancel, post=True, login=WALL),
    route("/{path:path}.html", catalogue.listing_or_product),
)

SITE = Site(
    "shopping",
    "One Stop Market",
    "onestopmarket.com",
    "/",
    STORE,
    SHOPPER,
    PAGES,
    account=(SHOPPER, "shopper-1"),
)
