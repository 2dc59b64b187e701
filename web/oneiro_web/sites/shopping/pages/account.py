"""A customer's account at the store: log-in, addresses, newsletter; and the contact form."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from oneiro_web.sites.base import Visit
from oneiro_web.sites.shopping.pages.cart import ADDRESS_FIELDS, LABELS, addresses_of
from oneiro_web.sites.shopping.pages.catalogue import customer, show
from oneiro_web.sites.store.forms import email_error, missing, next_path, row_id

HOME = "/customer/account"
SHORTEST_PASSWORD = 8


def log_in_page(visit: Visit, status: int = 200, error: str = "") -> Response:
    after = visit.form.get("next") or visit.query.get("next", "")
    return show(visit, "login", status, error=error, form=visit.form, after=after)


def log_in(visit: Visit) -> Response:
    email = visit.form.get("email", "").lower()
    known = visit.one("SELECT password FROM customer WHERE email = ?", email)
    if known is None or known["password"] != visit.form.get("password"):
        return log_in_page(visit, 400, "The account sign-in was incorrect. Please check your email and password.")
    return visit.log_in(email, next_path(visit, HOME))


def log_out(visit: Visit) -> Response:
    return visit.log_out("/")


def create_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    return show(visit, "create", status, errors=errors or {}, form=visit.form)


def password_errors(form: dict[str, str]) -> dict[str, str]:
    """What is wrong with a new password and its confirmation."""
    errors = {}
    if len(form.get("password", "")) < SHORTEST_PASSWORD:
        errors["password"] = f"Minimum length of this field must be equal or greater than {SHORTEST_PASSWORD} symbols."
    elif form["password"] != form.get("password_confirmation"):
        errors["password_confirmation"] = "Please enter the same value again."
    return errors


def person_errors(visit: Visit, own: int = 0) -> dict[str, str]:
    """What is wrong with a name and an e-mail address; `own` is the customer who may keep theirs."""
    email = visit.form.get("email", "").lower()
    errors = missing(visit.form, ("first_name", "last_name", "email"))
    if email and email_error(email):
        errors["email"] = email_error(email)
    elif visit.one("SELECT 1 FROM customer WHERE email = ? AND id != ?", email, own):
        errors["email"] = "There is already an account with this email address."
    return errors


def create(visit: Visit) -> Response:
    form = visit.form
    errors = {**person_errors(visit), **password_errors(form)}
    if errors:
        return create_page(visit, 400, errors)
    email = form["email"].lower()
    new = visit.change(
        "INSERT INTO customer (email, password, first_name, last_name, created_at) VALUES (?, ?, ?, ?, ?)",
        email, form["password"], form["first_name"], form["last_name"], visit.now(),
    )  # fmt: skip
    if form.get("is_subscribed"):
        set_subscription(visit, email, new, "subscribed")
    return visit.log_in(email, HOME)


def dashboard(visit: Visit) -> Response:
    owner = customer(visit)
    return show(
        visit, "account", owner=owner, addresses=default_addresses(visit, owner["id"]),
        orders=visit.rows("SELECT * FROM sales_order WHERE customer_id = ? ORDER BY id DESC LIMIT 5", owner["id"]),
        subscribed=is_subscribed(visit),
    )  # fmt: skip


def default_addresses(visit: Visit, owner: int) -> list[tuple[str, str, Any]]:
    """The two default addresses: their kind, title and row (None without one)."""
    sql = "SELECT * FROM address WHERE customer_id = ? AND {} = 1"
    return [
        (kind, f"Default {kind.title()} Address", visit.one(sql.format(f"default_{kind}"), owner))
        for kind in ("billing", "shipping")
    ]


def edit_page(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    form = visit.form or dict(customer(visit))
    return show(visit, "account_edit", status, errors=errors or {}, form=form)


def edit(visit: Visit) -> Response:
    """Name, e-mail address and, with the old one, a new password."""
    owner, form = customer(visit), visit.form
    errors = person_errors(visit, owner["id"])
    email = form.get("email", "").lower()
    if (email != owner["email"] or form.get("password")) and form.get("current_password") != owner["password"]:
        errors["current_password"] = "The password doesn't match this account. Verify the password and try again."
    if form.get("password"):
        errors.update(password_errors(form))
    if errors:
        return edit_page(visit, 400, errors)
    visit.change(
        "UPDATE customer SET first_name = ?, last_name = ?, phone = ?, password = ? WHERE id = ?",
        form["first_name"], form["last_name"], form.get("phone", ""), form.get("password") or owner["password"],
        owner["id"],
    )  # fmt: skip
    change_email(visit, owner["id"], owner["email"], email)
    return visit.redirect(HOME, "You saved the account information.")


def change_email(visit: Visit, owner: int, old: str, new: str) -> None:
    """A customer's new address, who stays logged in and subscribed."""
    if new != old:
        visit.change("UPDATE customer SET email = ? WHERE id = ?", new, owner)
        visit.change("UPDATE session SET user = ? WHERE site = 'shopping' AND user = ?", new, old)
        visit.change("DELETE FROM subscriber WHERE email = ?", new)
        visit.change("UPDATE subscriber SET email = ? WHERE email = ?", new, old)


def addresses(visit: Visit) -> Response:
    owner = customer(visit)["id"]
    others = [row for row in addresses_of(visit, owner) if not (row["default_billing"] or row["default_shipping"])]
    return show(visit, "addresses", defaults=default_addresses(visit, owner), others=others)


def address_form(visit: Visit, title: str, status: int = 200, **values: Any) -> Response:
    """The form for an address, new or old."""
    values = {"errors": {}, "form": visit.form, **values}
    return show(visit, "address_edit", status, title=title, labels=LABELS, **values)


def new_address_page(visit: Visit) -> Response:
    owner = customer(visit)
    known = {
        "first_name": owner["first_name"],
        "last_name": owner["last_name"],
        "phone": owner["phone"],
        "country": "United States",
    }
    return address_form(visit, "Add New Address", form=known)


def new_address(visit: Visit) -> Response:
    owner = customer(visit)["id"]
    errors = missing(visit.form, ADDRESS_FIELDS)
    if errors:
        return address_form(visit, "Add New Address", 400, errors=errors)
    marks = ", ".join("?" * len(ADDRESS_FIELDS))
    new = visit.change(
        f"INSERT INTO address (customer_id, {', '.join(ADDRESS_FIELDS)}) VALUES (?, {marks})",
        owner, *(visit.form[key] for key in ADDRESS_FIELDS),
    )  # fmt: skip
    set_defaults(visit, owner, new)
    return visit.redirect("/customer/address", "You saved the address.")


def set_defaults(visit: Visit, owner: int, address: int) -> None:
    """Make an address the default where its form says so; there is one of each kind."""
    for column in ("default_billing", "default_shipping"):
        if visit.form.get(column):
            visit.change(
                f"UPDATE address SET {column} = (id = ?) WHERE customer_id = ? AND {column} != (id = ?)",
                address,
                owner,
                address,
            )


def edit_address_page(visit: Visit) -> Response:
    row = visit.require("SELECT * FROM address WHERE id = ? AND customer_id = ?", row_id(visit), customer(visit)["id"])
    return address_form(visit, "Edit Address", form=dict(row))


def edit_address(visit: Visit) -> Response:
    owner = customer(visit)["id"]
    row = visit.require("SELECT id FROM address WHERE id = ? AND customer_id = ?", row_id(visit), owner)
    errors = missing(visit.form, ADDRESS_FIELDS)
    if errors:
        return address_form(visit, "Edit Address", 400, errors=errors)
    sets = ", ".join(f"{key} = ?" for key in ADDRESS_FIELDS)
    visit.change(f"UPDATE address SET {sets} WHERE id = ?", *(visit.form[key] for key in ADDRESS_FIELDS), row["id"])
    set_defaults(visit, owner, row["id"])
    return visit.redirect("/customer/address", "You saved the address.")


def delete_address(visit: Visit) -> Response:
    """Any but a default one."""
    sql = "SELECT * FROM address WHERE id = ? AND customer_id = ?"
    row = visit.require(sql, row_id(visit), customer(visit)["id"])
    if row["default_billing"] or row["default_shipping"]:
        return visit.redirect("/customer/address", "A default address cannot be deleted.")
    visit.change("DELETE FROM address WHERE id = ?", row["id"])
    return visit.redirect("/customer/address", "You deleted the address.")


def is_subscribed(visit: Visit) -> bool:
    return bool(visit.one("SELECT 1 FROM subscriber WHERE email = ? AND status = 'subscribed'", visit.user))


def set_subscription(visit: Visit, email: str, owner: int | None, status: str) -> None:
    """The newsletter for an e-mail address, on or off."""
    visit.change(
        "INSERT INTO subscriber (email, customer_id, status) VALUES (?, ?, ?)"
        " ON CONFLICT (email) DO UPDATE SET status = excluded.status",
        email, owner, status,
    )  # fmt: skip


def subscribe(visit: Visit) -> Response:
    """The newsletter form at the foot of every page."""
    email = visit.form.get("email", "").lower()
    if email_error(email):
        return show(visit, "subscribe", 400, error=email_error(email), email=email)
    owner = visit.value("SELECT id FROM customer WHERE email = ?", email)
    set_subscription(visit, email, owner, "subscribed")
    return visit.redirect("/newsletter/subscriber/thanks")


def subscribe_thanks(visit: Visit) -> Response:
    return show(visit, "subscribe", error="", email="")


def newsletter(visit: Visit) -> Response:
    return show(visit, "newsletter", subscribed=is_subscribed(visit))


def save_newsletter(visit: Visit) -> Response:
    wanted = bool(visit.form.get("is_subscribed"))
    if wanted != is_subscribed(visit):
        set_subscription(visit, visit.user, customer(visit)["id"], "subscribed" if wanted else "unsubscribed")
    return visit.redirect(
        HOME, "We have saved your subscription." if wanted else "We have removed your newsletter subscription."
    )


def contact(visit: Visit, status: int = 200, errors: dict[str, str] | None = None) -> Response:
    form = visit.form
    if not form and visit.user:
        owner = customer(visit)
        form = {
            "name": f"{owner['first_name']} {owner['last_name']}",
            "email": owner["email"],
            "telephone": owner["phone"],
        }
    return show(visit, "contact", status, errors=errors or {}, form=form)


def send_contact(visit: Visit) -> Response:
    form = visit.form
    errors = missing(form, ("name", "email", "comment"))
    if form.get("email") and email_error(form["email"]):
        errors["email"] = email_error(form["email"])
    if errors:
        return contact(visit, 400, errors)
    visit.change(
        "INSERT INTO contact_message (name, email, phone, message, created_at) VALUES (?, ?, ?, ?, ?)",
        form["name"], form["email"], form.get("telephone", ""), form["comment"], visit.now(),
    )  # fmt: skip
    return visit.redirect("/contact/sent")


def contact_sent(visit: Visit) -> Response:
    return show(visit, "contact_sent")
