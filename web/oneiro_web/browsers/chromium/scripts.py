"""The scripts that run in pages of Chromium, in a world of ours that the pages cannot see."""

from oneiro_web.browsers.text.document import INDEX

WORLD = "oneiro"
"""The isolated JavaScript world of ours in every page: pages cannot see or change it."""
LISTEN = """addEventListener("invalid", event => {
  if (!globalThis.oneiroComplaint) globalThis.oneiroComplaint = event.target.validationMessage;
}, true)"""
HOME = """
  let element = this.nodeType === 1 ? this : this.parentElement;
  const around = element && element.getRootNode();
  if (around instanceof ShadowRoot && around.host.tagName === "INPUT") element = around.host;
"""
"""The element that is meant: that of a text, and the input whose inner part was named."""
POINT = (
    "function() {"
    + HOME
    + """
  if (!element) return null;
  const tag = element.tagName.toLowerCase();
  if (tag === "option" || tag === "select") return {tag};
  if (element.type === "date") return {tag: "select"};
  element.scrollIntoViewIfNeeded();
  let box = element.getBoundingClientRect();
  if (this.nodeType === 3 && element.contains(this)) {
    const range = document.createRange();
    range.selectNodeContents(this);
    box = range.getBoundingClientRect();
  }
  const x = box.x + box.width / 2, y = box.y + box.height / 2;
  const hit = document.elementFromPoint(x, y);
  return {tag, x, y, hit: !!hit && (element.contains(hit) || hit.contains(element))};
}"""
)
PICK = """function(wanted) {
  let select = this.closest("select"), option = this.closest("option");
  if (!select && this.tagName === "LABEL" && this.control && this.control.tagName === "SELECT") select = this.control;
  if (!select || select.disabled) return "not a select";
  if (wanted !== null) {
    const names = [...select.options].filter(o => !o.disabled);
    const clean = text => text.replace(/\\s+/g, " ").trim().toLowerCase();
    wanted = clean(wanted);
    option = names.find(o => clean(o.label) === wanted) || names.find(o => clean(o.label).includes(wanted));
    if (!option) return "no option";
    select.focus();
  }
  if (option.disabled) return "";
  option.selected = select.multiple ? !option.selected : true;
  select.dispatchEvent(new Event("input", {bubbles: true}));
  select.dispatchEvent(new Event("change", {bubbles: true}));
  return "";
}"""
FIELD = (
    "function(clear) {"
    + HOME
    + """
  let field = element;
  if (field && field.tagName === "LABEL" && field.control) field = field.control;
  const kinds = ["checkbox", "radio", "submit", "reset", "button", "image", "file", "hidden", "range", "color"];
  const text = field && (field.tagName === "TEXTAREA" || field.isContentEditable ||
    (field.tagName === "INPUT" && !kinds.includes(field.type)));
  if (!text || field.readOnly || field.disabled || field.matches(":disabled")) return "";
  field.scrollIntoViewIfNeeded();
  field.focus();
  if (field.type === "date") return "date";
  if (clear) field.select ? field.select() : document.execCommand("selectAll");
  else if (field.setSelectionRange) {
    const end = field.value.length;
    try { field.setSelectionRange(end, end); } catch { field.select(); getSelection().collapseToEnd(); }
  }
  return field.type || "text";
}"""
)
SET_DATE = (
    "function(value) {"
    + HOME
    + """
  const field = element;
  field.value = value;
  field.dispatchEvent(new Event("input", {bubbles: true}));
  field.dispatchEvent(new Event("change", {bubbles: true}));
}"""
)
SETTLE = """new Promise(done => setTimeout(() => {
  const complaint = globalThis.oneiroComplaint || "";
  globalThis.oneiroComplaint = "";
  done(complaint);
}, 0))"""
FORGET = """for (const control of document.querySelectorAll("input, textarea, select")) {
  if (control.tagName === "SELECT") {
    const options = [...control.options];
    options.forEach(option => option.selected = option.defaultSelected);
    if (!control.multiple && control.selectedIndex < 0) control.selectedIndex = options.findIndex(o => !o.disabled);
  } else if (["checkbox", "radio"].includes(control.type)) control.checked = control.defaultChecked;
  else if (control.type !== "file" && control.value !== control.defaultValue) control.value = control.defaultValue;
}"""
"""On the way back, what was typed into a page is forgotten."""
MARKED = """(() => {
  const kept = [...document.documentElement.getElementsByTagName("*")];
  const copy = document.documentElement.cloneNode(true);
  const copies = copy.getElementsByTagName("*");
  kept.forEach((element, index) => {
    const mark = copies[index];
    mark.setAttribute("INDEX", index);
    if (element.checkVisibility && !element.checkVisibility() && !element.closest("head, select, details"))
      mark.setAttribute("hidden", "");
    if (element.tagName === "INPUT") {
      mark.setAttribute("value", element.value);
      element.checked ? mark.setAttribute("checked", "") : mark.removeAttribute("checked");
    }
    if (element.tagName === "TEXTAREA") mark.textContent = element.value;
    if (element.tagName === "OPTION")
      element.selected ? mark.setAttribute("selected", "") : mark.removeAttribute("selected");
    if (element.tagName === "DETAILS")
      element.open ? mark.setAttribute("open", "") : mark.removeAttribute("open");
  });
  globalThis.oneiroElements = kept;
  return copy.outerHTML.slice(0, LIMIT);
})()""".replace("INDEX", INDEX)
