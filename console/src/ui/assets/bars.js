// Small pictures within rows: how far a migration is, how long something lasts, what a seed has.

import { el } from "./dom.js";
import { now } from "./store.js";
import { duration, millis } from "./text.js";

/** How many of the steps are reached. */
export function progress(settled, steps, label) {
  const bar = el("progress", { max: Math.max(1, steps), value: settled, "aria-label": label });
  return el("span", { class: "progress" }, bar, el("span", {}, ` ${settled} of ${steps}`));
}

/** A duration that goes on, or one that has ended. */
export function lasting(from, to) {
  if (Number.isNaN(millis(from))) return "";
  const seconds = (at) => duration((at - millis(from)) / 1000);
  if (to) return seconds(millis(to));
  return el("time", { datetime: from, data: { since: from } }, seconds(Math.max(now(), millis(from))));
}

/** Keeps all durations that go on up to date, once a second. */
export function tick() {
  setInterval(() => {
    if (document.visibilityState !== "visible") return;
    for (const node of document.querySelectorAll("time[data-since]")) {
      const text = duration(Math.max(0, now() - millis(node.dataset.since)) / 1000);
      if (node.textContent !== text) node.textContent = text;
    }
  }, 1000);
}

/** Parts of a whole as one bar; `parts` are pairs of state and number. */
export function shares(parts) {
  const all = parts.reduce((sum, [, count]) => sum + count, 0);
  const bar = el("span", { class: "shares", "aria-hidden": "true" });
  for (const [state, count] of parts) {
    if (count > 0) bar.append(el("span", { data: { state }, style: { "flex-grow": String(count / all) } }));
  }
  return bar;
}
