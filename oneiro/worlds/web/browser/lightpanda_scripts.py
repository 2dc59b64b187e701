"""What runs inside Lightpanda's pages: functions with an element as `this`, and readings of the whole document."""

from __future__ import annotations

from oneiro.worlds.web.browser.chromium_scripts import HOME
from oneiro.worlds.web.browser.document import INDEX

FLAW = """form => form && !form.noValidate &&
  [...form.elements].find(part => part.willValidate && !part.validity.valid)"""
"""The first control that keeps a form from being sent."""
CLICK = (
    "function() {"
    + HOME
    + """
  if (!element || element.matches(":disabled")) return "";
  if (element.closest("option")) return "option";
  if (element.closest("select") || element.type === "date") { element.focus(); return ""; }
  let popup = "";
  const follow = event => {
    const link = event.composedPath().find(part => part.tagName === "A" && part.target === "_blank");
    if (link && !event.defaultPrevented) { event.preventDefault(); popup = link.href; }
  };
  addEventListener("click", follow);
  for (const name of ["mousedown", "mouseup"]) element.dispatchEvent(new MouseEvent(name, {bubbles: true}));
  const focused = element.closest("a[href], button, input, textarea, summary, [tabindex]");
  const bare = focused && focused.tagName === "SUMMARY" && !focused.hasAttribute("tabindex");
  if (bare) focused.setAttribute("tabindex", "0");  // Lightpanda gives a summary no focus
  focused ? focused.focus() : document.activeElement.blur();
  if (bare) focused.removeAttribute("tabindex");
  const more = element.closest("summary")?.parentElement, open = more?.open;
  element.click();
  if (more && more.open === open) more.open = !open;
  removeEventListener("click", follow);
  const invalid = focused && focused.type === "submit" && (FLAW)(focused.form);
  if (invalid) invalid.focus();
  return popup ? "popup " + popup : invalid ? "invalid " + invalid.validationMessage : "";
}""".replace("FLAW", FLAW)
)
ENTERED = """(() => {
  const field = document.activeElement;
  const invalid = field && field.tagName === "INPUT" && (FLAW)(field.form);
  if (invalid) invalid.focus();
  return invalid ? invalid.validationMessage : "";
})()""".replace("FLAW", FLAW)
"""What kept the form of the focused field from being sent by Enter."""
HOVER = (
    "function() {"
    + HOME
    + """
  for (const name of ["mouseover", "mouseenter", "mousemove"])
    element && element.dispatchEvent(new MouseEvent(name, {bubbles: name !== "mouseenter"}));
}"""
)
INSERT = (
    "function(clear, text) {"
    + HOME
    + """
  const field = element.tagName === "LABEL" && element.control ? element.control : element;
  if (field.type === "number") text = text.replace(/[^0-9+.eE-]/g, "");
  field.value = (clear ? "" : field.value) + text;
  field.dispatchEvent(new Event("input", {bubbles: true}));
  field.dispatchEvent(new Event("change", {bubbles: true}));
}"""
)
ELEMENTS = 'globalThis[Symbol.for("oneiro")]'
LIVE = """(() => {
  const kept = [...document.documentElement.getElementsByTagName("*")].slice(0, NODES);
  const copy = document.documentElement.cloneNode(true);
  const copies = copy.getElementsByTagName("*");
  kept.forEach((element, index) => {
    const mark = copies[index], tag = element.tagName;
    mark.setAttribute("INDEX", index);
    const note = (name, on) => on ? mark.setAttribute(name, "") : mark.removeAttribute(name);
    if (tag === "INPUT") {
      if (element.value !== (element.getAttribute("value") || "")) mark.setAttribute("value", element.value);
      note("checked", element.checked);
    }
    if (tag === "TEXTAREA") mark.textContent = element.value;
    if (tag === "OPTION") note("selected", element.selected);
  });
  globalThis[Symbol.for("oneiro")] = kept;
  const html = copy.outerHTML;
  return {html: html.slice(0, BYTES), cut: html.length > BYTES || copies.length > NODES,
          url: location.href, focus: kept.indexOf(document.activeElement)};
})()""".replace("INDEX", INDEX)
"""The document as it is now; its elements are kept in `ELEMENTS`."""


ACCEPT = """(() => {
  const confirmed = confirm, prompted = prompt;
  confirm = text => (confirmed(text), true);
  prompt = (text, otherwise) => (prompted(text), otherwise || "");
})()"""
"""Lightpanda dismisses dialogs; here every browser accepts them."""
