"use strict";
// What a page can do besides being read. Without this script everything is there: it fetches nothing, and adds
// only buttons: to sort a table, to copy it, and to show a plot with a linear axis.

const button = (text, press) => {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", () => press(made));
  return made;
};

const tools = (...made) => {
  const bar = document.createElement("div");
  bar.className = "tools";
  bar.append(...made);
  return bar;
};

// Plots: what is moved between a logarithmic and a linear axis has both of its places.
const PLACES = { path: "d", polyline: "points", polygon: "points", text: "y" };

const switched = (figure, pressed) => {
  for (const part of figure.querySelectorAll("[data-linear]")) {
    const place = PLACES[part.localName];
    const other = part.dataset.linear;
    part.dataset.linear = part.getAttribute(place);
    part.setAttribute(place, other);
  }
  pressed.setAttribute("aria-pressed", figure.classList.toggle("is-linear"));
};

for (const figure of document.querySelectorAll("figure:has([data-linear])")) {
  const made = button("Linear scale", (pressed) => switched(figure, pressed));
  made.setAttribute("aria-pressed", "false");
  figure.querySelector("figcaption").after(tools(made));
}

// Tables: cells as text, as Markdown and as CSV, with the rules of the program's own writers.
const rowsOf = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
const escaped = (text) => text.replace(/[\\`*_|<[\]~$&]/g, "\\$&").replace(/\s+/g, " ");
const isRight = (cell) => cell.classList.contains("r");

const asMarkdown = (table) => {
  const [head, ...body] = rowsOf(table).map((cells) => `| ${cells.map(escaped).join(" | ")} |`);
  const rules = [...table.tHead.rows[0].cells].map((cell) => (isRight(cell) ? "--:" : "---"));
  return [head, `|${rules.join("|")}|`, ...body, ""].join("\n");
};

// A spreadsheet evaluates a cell that begins as a formula: an apostrophe marks it as text.
const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/;
const QUANTITY = /^([<>≤≥] ?)?([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?([%A-Za-z/]{0,6})$/;
const csvCell = (text) => {
  const safe = FORMULA.test(text) && !QUANTITY.test(text) && text !== "-" ? `'${text}` : text;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
const asCsv = (table) => rowsOf(table).map((cells) => `${cells.map(csvCell).join(",")}\n`).join("");

const copied = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // An address that browsers do not trust with the clipboard
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
};

const copies = (name, table, write) => button(`Copy as ${name}`, async (pressed) => {
  await copied(write(table));
  pressed.textContent = "Copied";
  setTimeout(() => { pressed.textContent = `Copy as ${name}`; }, 1500);
});

// What a cell is sorted by: a quantity by its base unit, changes as ratios, other text as text.
const UNITS = { K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };
const RATES = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };
const TIMES = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600 };

const quantity = (text) => {
  const found = QUANTITY.exec(beginOf(text));
  if (!found) return NaN;
  const value = Number(found[2]);
  const unit = found[3];
  if (unit === "%") return 1 + value / 100;
  if (unit in TIMES) return value * TIMES[unit];
  const prefixes = unit.endsWith("/s") ? RATES : UNITS;
  return value * (unit.length > 1 ? prefixes[unit[0]] ?? 1 : 1);
};
// Of a span, such as 8–16 us, its begin
const beginOf = (text) => {
  const [begin, end] = text.split("–");
  const unit = end && !/[A-Za-z%]/.test(begin) ? / [A-Za-z%/]+$/.exec(end)?.[0] ?? "" : "";
  return begin.trim() + unit;
};

const sorted = (table, head) => {
  const column = head.cellIndex;
  const body = table.tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = [...body.rows].map((row) => [row, row.cells[column].textContent.trim()]);
  const isEmpty = ([, text]) => text === "-" || text === "";
  const filled = rows.filter((each) => !isEmpty(each));
  const isNumeric = filled.every(([, text]) => !Number.isNaN(quantity(text)));
  const compared = isNumeric
    ? ([, one], [, two]) => quantity(one) - quantity(two)
    : ([, one], [, two]) => one.localeCompare(two, "en", { numeric: true });
  filled.sort((one, two) => (up ? compared(one, two) : compared(two, one)));
  body.append(...[...filled, ...rows.filter(isEmpty)].map(([row]) => row));
};

for (const table of document.querySelectorAll("table")) {
  const bar = tools(copies("Markdown", table, asMarkdown), copies("CSV", table, asCsv));
  table.closest(".scroll").after(bar);
  if (table.tBodies[0].rows.length < 2) continue;
  for (const head of table.tHead.rows[0].cells) {
    const sort = button(head.textContent, () => sorted(table, head));
    sort.className = "sort";
    head.replaceChildren(sort);
  }
}
