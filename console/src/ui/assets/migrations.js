// All migrations, those that run before the others.

import { lasting, progress } from "./bars.js";
import { badge, el, field, fill, select } from "./dom.js";
import { availability, isCut, rows } from "./store.js";
import { Table } from "./table.js";
import { day, duration } from "./text.js";

const PHASES = [
  ["all", "all migrations"],
  ["open", "those that run"],
  ["Succeeded", "succeeded"],
  ["back", "rolled back or cancelled"],
  ["Failed", "failed"],
];
const MODES = [["all", "all modes"], ["Classic", "Classic"], ["Live", "Live"], ["Forced", "Forced"]];

const NAMES = {
  migrations: "ControlPlaneMigrations",
  shoots: "Shoots",
  seeds: "Seeds",
  isolations: "ZoneIsolations",
  etcds: "HostedEtcds",
  backups: "EtcdBackups",
  restores: "EtcdRestores",
  etcdMigrations: "EtcdMigrations",
};

/** A link to a migration. */
export function link(one, text) {
  return el("a", { href: `#/migrations/${one.namespace}/${one.name}` }, text);
}

/** Why a kind is not shown, or not all of it; nothing where all is well. */
export function notice(kind) {
  const { state, message } = availability(kind);
  const name = NAMES[kind];
  const words = {
    listing: `${name} are being listed…`,
    notServed: `This API server does not serve ${name}.`,
    forbidden: `You may not list ${name}: ${message}`,
    failing: `${name} cannot be followed, so what is shown may be old: ${message}`,
  }[state];
  const cut = isCut(kind) ? `There are more ${name} than this page keeps.` : null;
  return [words, cut].filter(Boolean).map((text) => el("p", { class: "notice", data: { state } }, text));
}

function columns() {
  return [
    { key: "shoot", label: "Shoot", isHead: true, value: (row) => `${row.namespace}/${row.shoot}`, cell: (row) => link(row, `${row.namespace}/${row.shoot}`) },
    { key: "way", label: "From → to", value: (row) => `${row.from} ${row.to}`, cell: (row) => `${row.from} → ${row.to}` },
    { key: "mode", label: "Mode", class: "tight", value: (row) => row.mode, cell: (row) => (row.executor === "Repot" ? row.mode : `${row.mode}, ${row.executor}`) },
    { key: "phase", label: "Phase", class: "tight", value: (row) => row.phase, cell: (row) => [badge(row.phase), row.paused && !row.over ? [" ", badge("paused")] : null] },
    { key: "steps", label: "Steps", value: (row) => row.settled / Math.max(1, row.steps), cell: (row) => progress(row.settled, row.steps, `Steps of ${row.name}`) },
    { key: "open", label: "Works on", value: (row) => row.open[0]?.name ?? "", cell: openCell },
    { key: "started", label: "Began", class: "tight", value: (row) => row.started ?? "", cell: (row) => (row.started ? day(row.started) : "not yet") },
    { key: "lasts", label: "Lasts", class: "tight", value: (row) => row.seconds ?? 0, cell: (row) => (row.over ? duration(row.seconds) : lasting(row.started)) },
    { key: "outage", label: "API away", value: (row) => row.outage?.seconds ?? (row.outage ? 1e9 : 0), cell: outageCell },
  ];
}

function openCell(row) {
  const open = row.open.map((step) => el("div", {}, `${step.name} (${step.side}) `, lasting(step.started)));
  if (open.length > 0) return open;
  return row.phase === "Succeeded" || !row.message ? "" : el("span", { class: "small" }, row.message);
}

function outageCell(row) {
  if (!row.outage) return "";
  if (row.outage.seconds !== null) return duration(row.outage.seconds);
  return el("strong", { class: "alarm" }, lasting(row.outage.from, row.outage.to));
}

/** The page. */
export function migrations(root) {
  let phase = "all";
  let mode = "all";
  const search = el("input", { type: "search", placeholder: "Shoot, seed, step", on: { input: () => show(true) } });
  const told = el("div");
  const summary = el("p", { class: "summary" });
  const running = new Table({ label: "Migrations that run", columns: columns(), sort: "started", descending: true, empty: "No migration runs." });
  const ended = new Table({ label: "Migrations that have ended", columns: columns(), sort: "started", descending: true, empty: "No migration matches." });

  function show(reset = false) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...rows("migrations")].filter(([, row]) => isShown(row, words));
    const open = all.filter(([, row]) => !row.over);
    running.update(open, reset);
    ended.update(all.filter(([, row]) => row.over), reset);
    summary.textContent = `${open.length} running, ${all.length - open.length} ended`;
    fill(told, notice("migrations"));
  }

  function isShown(row, words) {
    const isBack = row.phase === "RolledBack" || row.phase === "Cancelled";
    const isPhase = phase === "all" || (phase === "open" ? !row.over : phase === "back" ? isBack : row.phase === phase);
    if (!isPhase || (mode !== "all" && row.mode !== mode)) return false;
    if (words.length === 0) return true;
    const steps = row.open.map((step) => step.name);
    const text = [row.namespace, row.name, row.shoot, row.from, row.to, row.mode, row.phase, row.reason, ...steps].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  const phases = select(PHASES, phase, (value) => ((phase = value), show(true)));
  const modes = select(MODES, mode, (value) => ((mode = value), show(true)));
  fill(
    root,
    el("h1", {}, "Migrations"),
    summary,
    told,
    el("form", { class: "filters", role: "search", "aria-label": "Migrations", on: { submit: (event) => event.preventDefault() } }, field("Search", search), field("Phase", phases), field("Mode", modes)),
    el("section", { "aria-labelledby": "running" }, el("h2", { id: "running" }, "Running"), running.node),
    el("section", { "aria-labelledby": "ended" }, el("h2", { id: "ended" }, "Ended"), ended.node),
  );
  show();
  return { update: (kinds) => kinds.has("migrations") && show() };
}
