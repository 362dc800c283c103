// Hosted etcds with their backups, restores and migrations.

import { lasting } from "./bars.js";
import { badge, el, field, fill } from "./dom.js";
import { notice } from "./migrations.js";
import { rows } from "./store.js";
import { Table } from "./table.js";
import { between, bytes, day, duration } from "./text.js";

const name = (row) => `${row.namespace}/${row.name}`;
const cluster = (row) => `${row.namespace}/${row.cluster}`;
const phase = { key: "phase", class: "tight", label: "Phase", value: (row) => row.phase, cell: (row) => badge(row.phase) };
const says = { key: "message", label: "Says", value: (row) => row.message, cell: (row) => el("span", { class: "small" }, row.message) };
const lasts = {
  key: "lasts",
  label: "Took",
  value: (row) => between(row.started, row.completed) ?? 0,
  cell: (row) => (row.completed ? duration(between(row.started, row.completed)) : lasting(row.started)),
};

const ETCDS = [
  { key: "name", label: "Etcd", isHead: true, value: name, cell: name },
  { key: "lifecycle", label: "State", value: (row) => row.lifecycle, cell: (row) => badge(row.lifecycle) },
  { key: "ready", label: "Members ready", value: (row) => row.ready ?? -1, cell: (row) => (row.ready === null ? "" : `${row.ready}${row.replicas ? ` of ${row.replicas}` : ""}`) },
  { key: "size", class: "tight", label: "Volumes", value: (row) => row.size, cell: (row) => row.size },
  { key: "last", class: "tight", label: "Newest backup", value: (row) => row.backup?.last ?? "", cell: (row) => newest(row.backup) },
  { key: "workflow", label: "Works on it", value: (row) => row.workflow, cell: (row) => (row.workflow ? `${row.workflowKind} ${row.workflow}` : "") },
  { key: "store", label: "Backups lie in", value: (row) => row.bucket, cell: (row) => (row.bucket ? `${row.provider} ${row.bucket}/${row.prefix}` : "nowhere") },
  says,
];

const BACKUPS = [
  { key: "name", label: "Backup", isHead: true, value: name, cell: name },
  { key: "cluster", label: "Etcd", value: cluster, cell: cluster },
  phase,
  { key: "schedule", label: "Schedule", value: (row) => row.schedule, cell: (row) => row.schedule || "once" },
  { key: "last", class: "tight", label: "Succeeded", value: (row) => row.last, cell: (row) => day(row.last) },
  { key: "next", class: "tight", label: "Next", value: (row) => row.next, cell: (row) => day(row.next) },
  { key: "size", class: "tight", label: "Size", value: (row) => row.size ?? 0, cell: (row) => bytes(row.size) },
  { key: "revision", label: "Revision", value: (row) => row.revision ?? 0, cell: (row) => row.revision ?? "" },
  { key: "keys", label: "Keys", value: (row) => row.keys ?? 0, cell: (row) => row.keys ?? "" },
  says,
];

const WORKFLOWS = [
  { key: "name", label: "Object", isHead: true, value: name, cell: name },
  { key: "cluster", label: "Etcd", value: cluster, cell: cluster },
  phase,
  { key: "created", class: "tight", label: "Began", value: (row) => row.started || row.created, cell: (row) => day(row.started || row.created) },
  lasts,
  { key: "backup", label: "From backup", value: (row) => row.backup, cell: (row) => row.backup },
  says,
];

function newest(backup) {
  if (!backup?.last) return "none";
  return [day(backup.last), el("span", { class: "small" }, ` ${bytes(backup.size)}`)];
}

const SECTIONS = [
  ["etcds", "Hosted etcds", ETCDS, "No etcd is hosted."],
  ["backups", "Backups", BACKUPS, "There is no backup."],
  ["restores", "Restores", WORKFLOWS, "There is no restore."],
  ["etcdMigrations", "Migrations of etcds to other settings", WORKFLOWS, "There is no migration of an etcd."],
];

/** The page. */
export function etcds(root) {
  const search = el("input", { type: "search", placeholder: "namespace, etcd, phase", on: { input: () => show(null, true) } });
  const tables = new Map(SECTIONS.map(([kind, label, columns, empty]) => [kind, { told: el("div"), table: new Table({ label, columns, sort: "name", empty }) }]));
  const cache = new Map();

  /** Etcds with their newest backups; a row stays the same object for as long as both do. */
  function withBackups() {
    const found = new Map();
    for (const one of rows("backups").values()) {
      const key = `${one.namespace}/${one.cluster}`;
      if (one.last && !(found.get(key)?.last >= one.last)) found.set(key, one);
    }
    return [...rows("etcds")].map(([key, etcd]) => {
      const backup = found.get(key) ?? null;
      const before = cache.get(key);
      if (before?.etcd === etcd && before.backup === backup) return [key, before];
      const row = { ...etcd, etcd, backup };
      cache.set(key, row);
      return [key, row];
    });
  }

  function show(kinds, reset = false) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [row.namespace, row.name, row.cluster, row.lifecycle, row.phase, row.bucket].join(" ").toLowerCase();
    for (const [kind, { told, table }] of tables) {
      if (kinds && !kinds.has(kind) && !(kind === "etcds" && kinds.has("backups"))) continue;
      const all = kind === "etcds" ? withBackups() : [...rows(kind)];
      table.update(all.filter(([, row]) => words.every((word) => text(row).includes(word))), reset);
      fill(told, notice(kind));
    }
  }

  fill(
    root,
    el("h1", {}, "Etcds"),
    el("form", { class: "filters", role: "search", "aria-label": "Etcds", on: { submit: (event) => event.preventDefault() } }, field("Search", search)),
    SECTIONS.map(([kind, label]) => el("section", { "aria-labelledby": `section-${kind}` }, el("h2", { id: `section-${kind}` }, label), tables.get(kind).told, tables.get(kind).table.node)),
  );
  show(null);
  return { update: (kinds) => show(kinds) };
}
