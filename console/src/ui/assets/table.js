// A table of many rows: one page of them at a time, so that a thousand rows cost no more than a hundred.

import { arrange, el, fill, say, set } from "./dom.js";

const PAGE = 100;

/**
 * A table. `columns` have a key, a label, `value` for sorting, and `cell` for what is shown. `update` gets all rows as pairs of key and row;
 * rows that are the same object as before are not made again.
 */
export class Table {
  constructor({ label, columns, sort, descending = false, empty }) {
    this.columns = columns;
    this.sort = sort;
    this.descending = descending;
    this.empty = empty;
    this.page = 0;
    this.all = [];
    this.made = new Map();
    this.label = label;
    this.heads = columns.map((column) => this.#head(column));
    this.body = el("tbody");
    this.caption = el("caption", { class: "hidden" }, label);
    this.table = el("table", { class: "rows" }, this.caption, el("thead", {}, el("tr", {}, this.heads)), this.body);
    this.none = el("p", { class: "empty" });
    this.first = this.#step("Previous page", -1);
    this.last = this.#step("Next page", 1);
    this.where = el("span");
    this.pager = el("nav", { class: "pager", "aria-label": `Parts of the table ${label}` }, this.first, this.where, this.last);
    this.scroller = el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": `Table: ${label}` }, this.table);
    this.node = el("div", { class: "table" }, this.scroller, this.none, this.pager);
    this.#mark();
  }

  #head(column) {
    if (!column.value) return el("th", { scope: "col" }, column.label);
    const click = () => {
      this.descending = this.sort === column.key && !this.descending;
      this.sort = column.key;
      this.page = 0;
      this.#mark();
      this.#show();
      say(`${this.label}: sorted by ${column.label}, ${this.descending ? "descending" : "ascending"}`);
    };
    const button = el("button", { type: "button", class: "sort", on: { click } }, column.label);
    return el("th", { scope: "col", data: { key: column.key } }, button);
  }

  #mark() {
    for (const head of this.heads) {
      const isSorted = head.dataset.key === this.sort;
      const order = this.descending ? "descending" : "ascending";
      set(head, { "aria-sort": isSorted ? order : null });
    }
  }

  #step(label, by) {
    const click = () => {
      this.page += by;
      this.#show();
      this.scroller.scrollTop = 0;
      say(this.where.textContent);
    };
    return el("button", { type: "button", class: "quiet", on: { click } }, label);
  }

  /** Shows these rows; `reset` goes back to the first page. */
  update(pairs, reset = false) {
    this.all = pairs;
    if (reset) this.page = 0;
    this.#show();
  }

  #sorted() {
    const column = this.columns.find((one) => one.key === this.sort);
    if (!column) return this.all;
    const keyed = this.all.map((pair) => [column.value(pair[1]), pair]);
    const way = this.descending ? -1 : 1;
    keyed.sort(([a, [first]], [b, [second]]) => way * compare(a, b) || compare(first, second));
    return keyed.map(([, pair]) => pair);
  }

  #show() {
    const pages = Math.max(1, Math.ceil(this.all.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const shown = this.#sorted().slice(this.page * PAGE, (this.page + 1) * PAGE);
    const made = new Map();
    const nodes = shown.map(([key, row]) => {
      const before = this.made.get(key);
      const node = before?.row === row ? before.node : this.#row(row, before?.node);
      made.set(key, { row, node });
      return node;
    });
    this.made = made;
    arrange(this.body, nodes);
    const from = this.page * PAGE;
    this.where.textContent = `${from + 1} to ${from + shown.length} of ${this.all.length}`;
    this.first.disabled = this.page === 0;
    this.last.disabled = this.page === pages - 1;
    this.pager.hidden = pages === 1;
    this.scroller.hidden = shown.length === 0;
    this.none.hidden = shown.length > 0;
    this.none.textContent = typeof this.empty === "function" ? this.empty() : this.empty;
  }

  #row(row, before) {
    const cells = this.columns.map((column) => {
      const name = column.isHead ? "th" : "td";
      return el(name, { scope: column.isHead ? "row" : null, class: column.class ?? null }, column.cell(row));
    });
    // The element stays, so that focus within the row is not lost where its cell is the same.
    if (!before) return el("tr", {}, cells);
    const focused = before.contains(document.activeElement) ? document.activeElement : null;
    const at = focused ? [...before.querySelectorAll("a, button")].indexOf(focused) : -1;
    fill(before, cells);
    if (at >= 0) before.querySelectorAll("a, button")[at]?.focus();
    return before;
  }
}

const NAMES = new Intl.Collator("en", { numeric: true });

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return NAMES.compare(String(a ?? ""), String(b ?? ""));
}
