"use strict";
// Everything here is a convenience: pages are whole without it. No text is ever written as markup.
const $ = (query, root = document) => root.querySelector(query);
const $$ = (query, root = document) => [...root.querySelectorAll(query)];
const tip = $("#tip"), live = +document.body.dataset.live;
let shown = location.search, seen = live ? $("main").innerHTML : "";

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = !text;
  tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  tip.style.top = Math.max(8, y - tip.offsetHeight - 12) + "px";
}

// Curves: the nearest step under the pointer or the arrow keys; a click or Enter opens its episodes.
function readCurve(svg) {
  const series = $$(".series", svg).map(group => ({...group.dataset, points: JSON.parse(group.dataset.points)}));
  const xs = [...new Set(series.flatMap(one => one.points.map(point => point[2])))].sort((a, b) => a - b);
  const cursor = $(".cursor", svg);
  let at = -1, nearest = null;
  function move(place, y) {
    at = Math.max(0, Math.min(place, xs.length - 1));
    const hits = series.map(one => ({one, point: one.points.find(point => point[2] === xs[at])})).filter(hit => hit.point);
    nearest = hits.reduce((best, hit) => !best || Math.abs(hit.point[3] - y) < Math.abs(best.point[3] - y) ? hit : best, null);
    cursor.hidden = false;
    cursor.setAttribute("x1", xs[at]); cursor.setAttribute("x2", xs[at]);
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const lines = hits.map(hit => `${hits.length > 1 ? hit.one.label + ": " : ""}${+hit.point[1].toPrecision(4)}`);
    showTip(`step ${nearest.point[0]}\n${lines.join("\n")}`, box.left + xs[at] * scale, box.top + nearest.point[3] * scale);
  }
  const leave = () => { cursor.hidden = true; tip.hidden = true; };
  const open = () => { if (nearest && nearest.one.link) location.href = nearest.one.link.replace("{}", nearest.point[0]); };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / box.width, x = (event.clientX - box.left) * zoom;
    move(xs.reduce((best, value, place) => Math.abs(value - x) < Math.abs(xs[best] - x) ? place : best, 0), (event.clientY - box.top) * zoom);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("click", open);
  svg.addEventListener("keydown", event => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") { event.preventDefault(); move(at + (event.key === "ArrowRight" ? 1 : -1), nearest ? nearest.point[3] : 0); }
    if (event.key === "Enter") open();
  });
}

// Replay: the panels of one turn at a time, cloned into one place so that the eye stays there.
function readReplay(section) {
  const frames = $$(".turn"), frame = $(".frame", section), slider = $("input", section), says = $("output", section), button = $("[data-do=play]", section);
  let timer = 0;
  function show(place) {
    const number = Math.max(0, Math.min(place, frames.length - 1));
    slider.max = frames.length - 1; slider.value = number;
    frame.replaceChildren(...$$(".panel", frames[number]).filter(panel => $("svg, img", panel)).map(panel => panel.cloneNode(true)));
    says.textContent = `turn ${number + 1} of ${frames.length}: ${$$("h2 kbd", frames[number]).map(kbd => kbd.textContent).join(" ") || "no action"}`;
    return number;
  }
  function stop() { clearInterval(timer); timer = 0; button.textContent = "Play"; }
  function play() {
    if (timer) return stop();
    if (+slider.value >= frames.length - 1) show(0);
    button.textContent = "Pause";
    timer = setInterval(() => { if (show(+slider.value + 1) >= frames.length - 1) stop(); }, +$("select", section).value);
  }
  const moves = {back: () => { stop(); show(+slider.value - 1); }, on: () => { stop(); show(+slider.value + 1); }, play};
  $$("button", section).forEach(one => one.addEventListener("click", moves[one.dataset.do]));
  slider.addEventListener("input", () => { stop(); show(+slider.value); });
  section.hidden = false;
  show(0);
  return moves;
}

// What is shown of an episode is part of its address.
function readToggles() {
  const boxes = $$("[data-toggle]"), hidden = new Set((new URLSearchParams(location.search).get("hide") || "").split(",").filter(Boolean));
  const apply = () => boxes.forEach(box => { box.checked = !hidden.has(box.dataset.toggle); $("main").classList.toggle("no-" + box.dataset.toggle, !box.checked); });
  boxes.forEach(box => box.addEventListener("change", () => {
    box.checked ? hidden.delete(box.dataset.toggle) : hidden.add(box.dataset.toggle);
    const url = new URL(location);
    hidden.size ? url.searchParams.set("hide", [...hidden].join(",")) : url.searchParams.delete("hide");
    history.replaceState(null, "", url);
    shown = location.search;
    apply();
  }));
  apply();
}

// A box with more text than it shows can be scrolled by keys too.
const reachBoxes = () => $$(".box, .scroll").forEach(box => { if (box.scrollHeight > box.clientHeight || box.scrollWidth > box.clientWidth) box.tabIndex = 0; });
document.addEventListener("toggle", reachBoxes, true);

let replay = null;
function read() {
  reachBoxes();
  $$("svg.curve").forEach(readCurve);
  replay = $(".replay") && readReplay($(".replay"));
  if ($("[data-toggle]")) readToggles();
}
read();

// Keys. Pages with a next and a previous one (episodes) turn them; lists and decisions move by one.
const ROWS = "tr[data-row], .decision";
let row = -1;
function step(by) {
  const turned = $(by > 0 ? "a[rel=next]" : "a[rel=prev]"), rows = $$(ROWS);
  if (!rows[row + by] && turned?.href) return turned.click();
  if (!rows.length) return;
  rows[row]?.classList.remove("at");
  row = Math.max(0, Math.min(row + by, rows.length - 1));
  rows[row].classList.add("at");
  rows[row].scrollIntoView({block: rows[row].tagName === "TR" ? "nearest" : "start"});
  $("a", rows[row])?.focus({preventScroll: true});
}
// What an address shows now.
const load = async address => new DOMParser().parseFromString(await (await fetch(address)).text(), "text/html").querySelector("main");
// A newer page in the place of this one; whoever walks by keys stays where they are.
function renew(fresh) {
  const held = document.activeElement.closest("main a")?.textContent;
  $("main").replaceWith(document.adoptNode(fresh));
  read();
  if (held) $$("main a").find(link => link.textContent === held)?.focus({preventScroll: true});
  row = $$(ROWS).findIndex(one => one.contains(document.activeElement));
  $$(ROWS)[row]?.classList.add("at");
}
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const writing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox" && event.target.type !== "range";
  if (event.key === "Escape") { writing ? event.target.blur() : $("#up") && $("#up").click(); return; }
  if (writing) return;
  if (event.key === "/") { const field = $("input[type=search]"); if (field) { event.preventDefault(); field.focus(); } return; }
  const act = $$("[data-key]").find(one => one.dataset.key === event.key);
  if (act) { event.preventDefault(); if (!moving) act.click(); else if (!event.repeat) waiting.push(event.key); return; }
  if (event.target.closest("svg.curve")) return;
  if (event.key === "j") step(1);
  if (event.key === "k") step(-1);
  if (event.key === "x") $("tr.at input[type=checkbox]")?.click();
  if (replay && event.target.tagName !== "BUTTON" && event.target.type !== "range") {
    const key = {ArrowLeft: "back", ArrowRight: "on", " ": "play"}[event.key];
    if (key) { event.preventDefault(); replay[key](); }
  }
});

// Play: moves change the page in place, one at a time: the links of a page know only the moves before it.
// Opening a model takes a while the first time, so its button says so.
const waiting = [];
let moving = false;
document.addEventListener("click", async event => {
  const link = event.target.closest("main a[href^='play?']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || !link.href) return;
  if (!$(".table")) { link.textContent = "Opening the model …"; return; }
  event.preventDefault();
  if (moving) return;
  moving = true;
  try {
    renew(await load(link.href));
    history.pushState(null, "", link.href);
    shown = location.search;
  } catch { waiting.length = 0; location.href = link.href; }
  moving = false;
  const key = waiting.shift();
  const next = $$("[data-key]").find(one => one.dataset.key === key);
  if (next) next.click(); else waiting.length = 0;
});
// Back to another session; a link to a part of this page is no other one.
addEventListener("popstate", () => { if (location.search !== shown) location.reload(); });

// A run at work: look again now and then, and change the page only where something is new and nobody is busy on it.
if (live) setInterval(async () => {
  if (document.hidden || !tip.hidden || /^(INPUT|SELECT)$/.test(document.activeElement.tagName) || $("input:checked")) return;
  try {
    const fresh = await load(location.href);
    if (fresh.innerHTML !== seen) { seen = fresh.innerHTML; renew(fresh); }
  } catch { /* the board was closed; the page stays as it is */ }
}, live * 1000);
