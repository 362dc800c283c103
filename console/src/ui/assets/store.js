// What the garden has, kept up to date by the stream of events.

import { Refused, follow } from "./api.js";

const KINDS = ["migrations", "shoots", "seeds", "isolations", "etcds", "backups", "restores", "etcdMigrations"];
/** No beat for so long, in milliseconds: the connection is dead. */
const SILENCE = 35000;
const LONGEST_PAUSE = 15000;

const tables = new Map(KINDS.map((kind) => [kind, { rows: new Map(), availability: { state: "listing" }, isCut: false }]));
const listeners = new Set();
const changed = new Set();
let isDue = false;
/** How much the clock of the server is ahead of this one, in milliseconds. */
let ahead = 0;
/** `connecting`, `connected`, `lost` or `refused`. */
let connection = "connecting";
let why = "";

/** Rows of a kind, by namespace and name. */
export function rows(kind) {
  return tables.get(kind).rows;
}

/** Whether a kind can be shown: `listing`, `watched`, `notServed`, `forbidden` or `failing`, with a message. */
export function availability(kind) {
  return tables.get(kind).availability;
}

/** Whether there are more objects than rows. */
export function isCut(kind) {
  return tables.get(kind).isCut;
}

/** The state of the connection, and why it is so. */
export function state() {
  return { connection, why };
}

/** The time of the server, in milliseconds. */
export function now() {
  return Date.now() + ahead;
}

/** Calls a listener with the kinds that have changed, once a frame at most; gives back how to end that. */
export function watch(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(kind) {
  changed.add(kind);
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    const kinds = new Set(changed);
    changed.clear();
    for (const listener of [...listeners]) listener(kinds);
  });
}

function take(name, data) {
  if (name === "beat") {
    ahead = Date.parse(data.now) - Date.now();
    return;
  }
  if (name !== "rows") return;
  const table = tables.get(data.kind);
  if (!table) return;
  if (data.isFirst) table.rows.clear();
  for (const key of data.removed) table.rows.delete(key);
  for (const row of data.rows) table.rows.set(`${row.namespace ?? ""}/${row.name}`, row);
  table.availability = data.availability;
  table.isCut = data.isCut;
  tell(data.kind);
}

function connected(state, words = "") {
  if (connection === state && why === words) return;
  connection = state;
  why = words;
  tell("connection");
}

/** Follows the garden for as long as the page is visible. */
export function start() {
  let leave = null;
  const run = async () => {
    let pause = 1000;
    while (document.visibilityState === "visible") {
      leave = new AbortController();
      let last = Date.now();
      const guard = setInterval(() => Date.now() - last > SILENCE && leave.abort(), 5000);
      try {
        await follow("/api/events", leave.signal, (name, data) => {
          last = Date.now();
          pause = 1000;
          connected("connected");
          take(name, data);
        });
        connected("lost", "the program has ended the stream");
      } catch (error) {
        if (error instanceof Refused && error.status === 401) {
          clearInterval(guard);
          return connected("refused", error.message);
        }
        connected("lost", String(error.message ?? error));
      }
      clearInterval(guard);
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(LONGEST_PAUSE, pause * 2);
    }
  };
  let running = Promise.resolve();
  document.addEventListener("visibilitychange", () => {
    // A browser has six connections to a server: pages that nobody sees give theirs back.
    if (document.visibilityState === "hidden") leave?.abort();
    else running = running.then(run);
  });
  running = run();
}
