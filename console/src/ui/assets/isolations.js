// Zones that Shoots have left.

import { badge, el, facts, field, fill } from "./dom.js";
import { notice } from "./migrations.js";
import { rows } from "./store.js";
import { Table } from "./table.js";
import { between, day, duration } from "./text.js";

function columns() {
  const shoot = (row) => `${row.namespace}/${row.shoot}`;
  return [
    { key: "shoot", label: "Shoot", isHead: true, value: shoot, cell: shoot },
    { key: "zone", label: "Zone", value: (row) => row.zone, cell: (row) => (row.zoneCode ? `${row.zone} (${row.zoneCode})` : row.zone) },
    { key: "phase", class: "tight", label: "Direction", value: (row) => row.phase, cell: (row) => badge(row.phase) },
    { key: "status", label: "State", value: (row) => row.status, cell: (row) => badge(row.status) },
    { key: "seed", label: "Seed", value: (row) => row.seed, cell: (row) => row.seed },
    { key: "created", class: "tight", label: "Since", value: (row) => row.created, cell: (row) => day(row.created) },
    { key: "expires", class: "tight", label: "Until", value: (row) => row.expires, cell: (row) => (row.expires ? day(row.expires) : "it is called off") },
    { key: "steps", label: "Steps", cell: steps },
  ];
}

function steps(row) {
  const reached = row.steps.filter((step) => step.state === "Succeeded" || step.state === "Skipped").length;
  const list = row.steps.map((step) =>
    el("li", {}, badge(step.state), ` ${step.name} (${step.side}) ${duration(between(step.started, step.completed))} `, el("span", { class: "small" }, step.message)),
  );
  const words = row.message ? el("p", {}, row.message) : null;
  return el("details", {}, el("summary", {}, `${reached} of ${row.steps.length}`, el("span", { class: "hidden" }, ` steps of ${row.name}`)), words, facts([["Object", row.name], ["Reason", row.reason]]), el("ul", { class: "findings" }, list));
}

/** The page. */
export function isolations(root) {
  const search = el("input", { type: "search", placeholder: "Shoot, zone, seed", on: { input: () => show(true) } });
  const told = el("div");
  const table = new Table({ label: "Isolations of zones", columns: columns(), sort: "created", descending: true, empty: "No zone is isolated." });

  function show(reset = false) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [row.namespace, row.shoot, row.zone, row.zoneCode, row.seed, row.phase, row.status].join(" ").toLowerCase();
    table.update([...rows("isolations")].filter(([, row]) => words.every((word) => text(row).includes(word))), reset);
    fill(told, notice("isolations"));
  }

  fill(
    root,
    el("h1", {}, "Isolations of zones"),
    el("p", { class: "summary" }, "A Shoot leaves a zone: its machines go to other zones, and the networks of the zone are cut off until it is used again."),
    told,
    el("form", { class: "filters", role: "search", "aria-label": "Isolations", on: { submit: (event) => event.preventDefault() } }, field("Search", search)),
    table.node,
  );
  show();
  return { update: (kinds) => kinds.has("isolations") && show() };
}
