// The steps of a migration over time, in a lane for each side: what ran, what runs, what is to come, and when the API was away.

import { arrange, el, fill, set } from "./dom.js";
import { duration, millis } from "./text.js";

const ZOOMS = [1, 1.5, 2, 3, 5, 8, 13, 21];
const TITLES = { garden: "Garden", source: "Source", destination: "Destination", etcd: "Members of the etcd", owner: "Owner of the etcd" };

/**
 * The picture. `choose` is told which step a person has chosen. Rows keep their elements, so that focus stays where it is while the
 * migration goes on.
 */
export class Timeline {
  constructor(choose) {
    this.choose = choose;
    this.zoom = 0;
    this.withSkipped = false;
    this.made = new Map();
    this.lanes = new Map();
    this.current = null;
    this.axis = el("div", { class: "axis", "aria-hidden": "true" });
    this.marks = el("div", { class: "marks", "aria-hidden": "true" });
    this.body = el("div", { class: "lanes" });
    this.inner = el("div", { class: "inner" }, this.axis, this.marks, this.body);
    const keys = { keydown: (event) => this.#key(event) };
    this.scroller = el("div", { class: "timeline", role: "group", "aria-label": "Timeline of the steps", "aria-describedby": "timeline-keys", on: keys }, this.inner);
    this.node = el("div", {}, this.#tools(), el("p", { id: "timeline-keys", class: "hidden" }, "Arrow keys go from step to step, Enter shows what is known of a step."), this.scroller);
  }

  #tools() {
    const zoom = (by) => () => {
      this.zoom = Math.min(ZOOMS.length - 1, Math.max(0, by === 0 ? 0 : this.zoom + by));
      this.#show();
    };
    const button = (text, label, click) => el("button", { type: "button", class: "quiet small", "aria-label": label, on: { click } }, text);
    const box = el("input", { type: "checkbox", on: { change: () => ((this.withSkipped = box.checked), this.#show()) } });
    return el(
      "div",
      { class: "tools", role: "group", "aria-label": "View of the timeline" },
      button("−", "Zoom out", zoom(-1)),
      button("+", "Zoom in", zoom(1)),
      button("Fit", null, zoom(0)),
      el("label", {}, box, " steps that did not apply"),
      el("span", { class: "legend" }, ["Succeeded", "Running", "Failed", "Skipped", "RolledBack", "to come", "API away"].map((word) => el("span", { data: { state: word } }, word))),
    );
  }

  /** Shows a migration at this time. */
  update(detail, now) {
    this.detail = detail;
    this.now = now;
    this.#show();
  }

  #show() {
    const { detail, now } = this;
    if (!detail) return;
    const lanes = rowsOf(detail, now, this.withSkipped);
    const span = extent(lanes, detail, now);
    this.span = span;
    set(this.inner, { style: { "--zoom": String(ZOOMS[this.zoom]) } });
    fill(this.axis, ticks(span, 8 * ZOOMS[this.zoom]).map(([at, text]) => el("span", { style: { left: percent(at) } }, text)));
    fill(this.marks, marks(detail, now, span));
    const made = new Map();
    const nodes = lanes.filter((lane) => lane.rows.length > 0).map((lane) => this.#lane(lane, span, made));
    this.made = made;
    arrange(this.body, nodes);
    this.#tabStop();
  }

  #lane(lane, span, made) {
    let node = this.lanes.get(lane.key);
    if (!node) {
      const list = el("ol");
      const title = el("h3", { id: `lane-${lane.key}` });
      node = { list, title, section: el("section", { class: "lane", data: { lane: lane.key }, "aria-labelledby": `lane-${lane.key}` }, title, list) };
      this.lanes.set(lane.key, node);
    }
    fill(node.title, TITLES[lane.key] ?? lane.key, lane.seed ? el("span", { class: "small" }, ` ${lane.seed}`) : null);
    arrange(node.list, lane.rows.map((row) => this.#row(`${lane.key}/${row.name}`, row, span, made)));
    return node.section;
  }

  #row(key, row, span, made) {
    const one = this.made.get(key) ?? makeRow(row, () => this.#chosen(key, row.step));
    made.set(key, one);
    one.row = row;
    set(one.button, { "aria-current": this.current === key ? "true" : null, data: { state: row.state } });
    one.name.textContent = row.name;
    one.says.textContent = `, ${row.says}`;
    fill(one.track, row.bars.map((bar) => drawn(bar, span)));
    return one.item;
  }

  #chosen(key, step) {
    this.current = key;
    for (const [other, one] of this.made) set(one.button, { "aria-current": other === key ? "true" : null });
    this.#tabStop();
    this.choose(step);
  }

  /** One step is in the order of the tab key; arrows go to the others. */
  #tabStop() {
    const all = [...this.body.querySelectorAll("button.step")];
    const focused = all.find((button) => button === document.activeElement);
    const current = focused ?? all.find((button) => button.getAttribute("aria-current")) ?? all[0];
    for (const button of all) button.tabIndex = button === current ? 0 : -1;
  }

  #key(event) {
    const all = [...this.body.querySelectorAll("button.step")];
    const at = all.indexOf(document.activeElement);
    if (at < 0) return;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all[Math.min(all.length - 1, Math.max(0, to))].focus();
    this.#tabStop();
  }
}

function makeRow(row, click) {
  const name = el("span", { class: "name" });
  const says = el("span", { class: "hidden" });
  const track = el("span", { class: "track", "aria-hidden": "true" });
  const attributes = { type: "button", class: "step", on: { click } };
  const button = row.step ? el("button", attributes, name, says, track) : el("span", { class: "step" }, name, says, track);
  return { item: el("li", {}, button), button, name, says, track };
}

/** Rows of each lane, with bars that have a beginning and an end in milliseconds. */
function rowsOf(detail, now, withSkipped) {
  const { migration, table, over } = detail;
  const seeds = { source: migration.sourceSeed, destination: migration.destinationSeed };
  const due = over ? new Map() : forecast(detail, now);
  const lanes = ["garden", "source", "destination"].map((side) => {
    const records = migration.sides.find((one) => one.name === side)?.steps ?? [];
    const shown = records.filter((step) => withSkipped || !isIdle(step)).map((step) => recorded(step, side, now, migration.pointOfNoReturn, table));
    const names = new Set(records.filter((step) => step.state !== "Pending").map((step) => step.name));
    const coming = (over || !table ? [] : table.forward).filter((row) => row.side === side && !names.has(row.step) && !isBack(migration));
    const rows = [...shown, ...coming.map((row) => toCome(row, side, due.get(row.step)))];
    rows.sort((a, b) => (a.from ?? Infinity) - (b.from ?? Infinity));
    return { key: side, seed: seeds[side], rows };
  });
  const tracks = ["etcd", "owner"].map((of) => {
    const rows = detail.tracks.filter((track) => track.of === of).map((track, at) => tracked(track, at, seeds, over ? Infinity : now));
    return { key: of, rows };
  });
  return [...tracks, ...lanes];
}

function isIdle(step) {
  return step.state === "Pending" || (step.state === "Skipped" && (millis(step.completed) - millis(step.started) || 0) === 0);
}

function isBack(migration) {
  return ["RollingBack", "RolledBack", "Cancelled"].includes(migration.phase);
}

function recorded(step, side, now, noReturn, table) {
  const from = millis(step.started);
  const isRunning = step.state === "Running";
  const to = isRunning ? Math.max(now, from) : Math.max(from, millis(step.completed) || from);
  const seconds = Number.isNaN(from) ? null : (to - from) / 1000;
  const after = table?.pointOfNoReturn === step.name && noReturn ? ", the point of no return" : "";
  const says = `${side}: ${step.state}${seconds === null ? "" : `, ${isRunning ? "for " : ""}${duration(seconds)}`}${after}`;
  const text = seconds === null ? "" : duration(seconds) + (step.state === "Succeeded" ? "" : ` ${step.state}`);
  const bars = Number.isNaN(from) ? [] : [{ from, to, state: step.state, text, isOpen: isRunning }];
  return { name: step.name, step: { side, name: step.name }, state: step.state, from: Number.isNaN(from) ? null : from, bars, says };
}

function toCome(row, side, due) {
  const bars = due ? [{ from: due.from, to: due.to, state: "to come", text: due.to > due.from ? `about ${duration((due.to - due.from) / 1000)}` : "" }] : [];
  return { name: row.step, step: { side, name: row.step }, state: "to come", from: due?.from ?? null, bars, says: `${side}: to come` };
}

function tracked(track, at, seeds, end) {
  const bars = track.spans.map((span) => ({ from: millis(span.from), to: span.to ? millis(span.to) : end, state: span.state, text: span.says, isInside: true }));
  const name = `${track.name}, ${seeds[track.side] ?? track.side}`;
  return { name, step: null, state: "track", from: at, bars, says: track.spans.map((span) => span.says).join(", then ") };
}

/** When steps that have not begun would begin and end, if each takes as long as it usually did. */
function forecast(detail, now) {
  const { migration, table, durations } = detail;
  const times = new Map();
  if (!table || isBack(migration) || detail.started === null) return times;
  for (const side of migration.sides) {
    for (const step of side.steps) {
      const usual = (durations.steps[step.name]?.medianSeconds ?? 0) * 1000;
      if (step.completed && step.state !== "Pending") times.set(step.name, { to: millis(step.completed), isDone: true });
      else if (step.state === "Running") times.set(step.name, { to: Math.max(now, millis(step.started) + usual), isDone: true });
    }
  }
  for (const row of table.forward) {
    if (times.has(row.step)) continue;
    const from = Math.max(now, ...row.after.map((step) => times.get(step)?.to ?? now));
    times.set(row.step, { from, to: from + (durations.steps[row.step]?.medianSeconds ?? 0) * 1000 });
  }
  return new Map([...times].filter(([, time]) => !time.isDone));
}

function extent(lanes, detail, now) {
  const steps = lanes.filter((lane) => lane.rows.some((row) => row.step)).flatMap((lane) => lane.rows).filter((row) => row.step);
  const times = steps.flatMap((row) => row.bars).flatMap((bar) => [bar.from, bar.to]).filter((time) => !Number.isNaN(time));
  const outage = detail.migration.apiOutage;
  if (outage) times.push(millis(outage.from), millis(outage.to) || now);
  const from = times.length > 0 ? times.reduce((a, b) => Math.min(a, b)) : now;
  const to = times.length > 0 ? times.reduce((a, b) => Math.max(a, b)) : now;
  return { from, to: Math.max(to, from + 1000) };
}

function place(time, span) {
  return Math.min(1, Math.max(0, (time - span.from) / (span.to - span.from)));
}

function percent(part) {
  return `${(part * 100).toFixed(3)}%`;
}

function drawn(bar, span) {
  const from = Number.isNaN(bar.from) ? 0 : place(bar.from, span);
  const to = place(bar.to, span);
  const box = el("span", { class: "bar", title: bar.isInside ? bar.text : null, data: { state: bar.state, open: String(Boolean(bar.isOpen)) }, style: { left: percent(from), width: percent(to - from) } });
  if (!bar.text || (bar.isInside && to - from < 0.06)) return box;
  // The text stands where there is room for it.
  const where = bar.isInside || to - from > 0.35 ? "in" : to < 0.72 ? "behind" : "before";
  const style = where === "behind" ? { left: percent(to) } : where === "before" ? { right: percent(1 - from) } : { left: percent(from), width: percent(to - from) };
  return [box, el("span", { class: "text", data: { where }, style }, bar.text)];
}

function marks(detail, now, span) {
  const { migration, over } = detail;
  const nodes = [];
  const outage = migration.apiOutage;
  if (outage) {
    const [from, to] = [place(millis(outage.from), span), place(millis(outage.to) || now, span)];
    const seconds = outage.seconds ?? ((millis(outage.to) || now) - millis(outage.from)) / 1000;
    nodes.push(el("div", { class: "outage", style: { left: percent(from), width: percent(to - from) } }, el("span", { data: { where: from > 0.7 ? "before" : "behind" } }, `API away ${duration(seconds)}`)));
  }
  const line = (time, kind, text) => {
    const at = place(time, span);
    nodes.push(el("div", { class: "line", data: { kind }, style: { left: percent(at) } }, el("span", { data: { where: at > 0.7 ? "before" : "behind" } }, text)));
  };
  if (migration.pointOfNoReturn) line(millis(migration.pointOfNoReturn), "no-return", "no return");
  if (!over && detail.started) line(now, "now", "now");
  return nodes;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

/** Marks of the axis: parts of the width, and how long after the beginning. */
function ticks(span, wanted) {
  const all = (span.to - span.from) / 1000;
  const step = STEPS.find((one) => all / one <= wanted) ?? Math.ceil(all / wanted / 86400) * 86400;
  const marks = [];
  for (let at = 0; at <= all * 0.97; at += step) marks.push([at / all, at === 0 ? "0" : `+${duration(at)}`]);
  return marks;
}
