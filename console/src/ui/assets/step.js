// What is known of one step: state, times, evidence, what it does, and what a person can do.

import { badge, el, facts, fill } from "./dom.js";
import { clock, day, duration, between } from "./text.js";

/** Shows a step of a migration within an element. */
export function showStep(root, detail, chosen) {
  if (!chosen) {
    fill(root, el("h2", { tabindex: "-1" }, "Step"), el("p", { class: "empty" }, "Choose a step in the timeline to see its evidence."));
    return;
  }
  const { migration, table, durations, progress } = detail;
  const record = migration.sides.find((side) => side.name === chosen.side)?.steps.find((step) => step.name === chosen.name);
  const rows = [...(table?.forward ?? []), ...(table?.rollback ?? [])];
  const row = rows.find((one) => one.step === chosen.name);
  const usual = durations.steps[chosen.name];
  const open = progress.open.find((one) => one.name === chosen.name && one.side === chosen.side);
  const seconds = open ? open.seconds : between(record?.started, record?.completed);
  fill(
    root,
    el("h2", { tabindex: "-1" }, chosen.name),
    el("p", {}, badge(record?.state ?? "to come"), ` ${chosen.side}`),
    message(record),
    facts([
      ["Reason", record?.reason],
      ["Began", record?.started ? el("time", { datetime: record.started, title: record.started }, `${day(record.started)}:${clock(record.started).slice(-2)}`) : null],
      ["Ended", record?.completed ? el("time", { datetime: record.completed, title: record.completed }, clock(record.completed)) : null],
      [open ? "Runs for" : "Took", seconds === null ? null : duration(seconds)],
      ["Usually takes", usual ? `${duration(usual.medianSeconds)}, ${duration(usual.longestSeconds)} at most (of ${usual.count})` : "not known"],
      ["Started", record && record.attempts > 1 ? `${record.attempts} times` : null],
      ["Is waited for", row?.waits],
      ["If it fails", row?.onFailure],
      ["After", row?.after.length ? row.after.join(", ") : null],
      ["Point of no return", table?.pointOfNoReturn === chosen.name ? "from here on nothing rolls back" : null],
    ]),
    row ? [el("h3", {}, "What it does"), el("p", {}, row.does), el("h3", {}, "What you can do"), el("p", {}, row.advice)] : null,
  );
}

function message(record) {
  if (!record?.message) return null;
  const headings = { Running: "Waits for", Pending: "Waits for", Failed: "Why it failed" };
  return [el("h3", {}, headings[record.state] ?? "Evidence"), el("p", { class: "evidence" }, record.message)];
}

/** All steps of a migration as a table, for those who read better without a picture. */
export function stepTable(detail, choose) {
  const body = el("tbody");
  for (const side of detail.migration.sides) {
    for (const step of side.steps) {
      const click = () => choose({ side: side.name, name: step.name });
      body.append(
        el(
          "tr",
          {},
          el("th", { scope: "row" }, el("button", { type: "button", class: "link", on: { click } }, step.name)),
          el("td", {}, side.name),
          el("td", {}, badge(step.state)),
          el("td", {}, clock(step.started)),
          el("td", {}, duration(between(step.started, step.completed))),
          el("td", {}, step.message),
        ),
      );
    }
  }
  const heads = ["Step", "Side", "State", "Began", "Took", "Evidence"].map((text) => el("th", { scope: "col" }, text));
  const table = el("table", { class: "rows" }, el("caption", { class: "hidden" }, "Steps"), el("thead", {}, el("tr", {}, heads)), body);
  return el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Steps as a table" }, table);
}
