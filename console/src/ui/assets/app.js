// The page: which part of it is shown, the connection, and what all parts share.

import { read } from "./api.js";
import { tick } from "./bars.js";
import { el, fill, say, set } from "./dom.js";
import { etcds } from "./etcds.js";
import { fleet } from "./fleet.js";
import { isolations } from "./isolations.js";
import { migration } from "./migration.js";
import { migrations } from "./migrations.js";
import { availability, rows, start, state, watch } from "./store.js";
import { theme } from "./theme.js";

const PAGES = { fleet, migrations, isolations, etcds };
const TITLES = { fleet: "Fleet", migrations: "Migrations", isolations: "Isolations of zones", etcds: "Etcds" };

const main = document.getElementById("main");
let view = null;

/** Shows the page that the address names. */
function route(isFirst) {
  const [name, ...rest] = location.hash.replace(/^#\//, "").split("/").map(decoded);
  const known = Object.hasOwn(PAGES, name) ? name : "fleet";
  view?.close?.();
  document.title = `${TITLES[known]} – Repot`;
  view = known === "migrations" && rest.length === 2 ? migration(main, rest) : PAGES[known](main);
  for (const link of document.querySelectorAll("#nav a")) {
    set(link, { "aria-current": link.hash === `#/${known}` ? "page" : null });
  }
  if (isFirst) return;
  window.scrollTo(0, 0);
  // A screen reader goes on where the content begins.
  main.focus({ preventScroll: true });
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function counts() {
  for (const node of document.querySelectorAll("[data-count]")) {
    const kind = node.dataset.count;
    const isOpen = (row) => !row.over;
    const count = kind === "migrations" ? [...rows(kind).values()].filter(isOpen).length : rows(kind).size;
    const isKnown = availability(kind).state === "watched";
    node.textContent = isKnown ? String(count) : "";
  }
}

function connection() {
  const node = document.getElementById("connection");
  const { connection: word, why } = state();
  node.dataset.state = word;
  node.textContent = { connected: "live", connecting: "connecting", lost: "not connected", refused: "no session" }[word];
  node.title = why;
  if (word === "refused") {
    fill(main, el("h1", {}, "No session"), el("p", {}, "Open the link that repot ui has printed. A link holds as long as the program runs."));
    view = null;
  }
}

watch((kinds) => {
  if (kinds.has("connection")) connection();
  counts();
  view?.update(kinds);
});

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => route(false));
theme(document.getElementById("theme"));
route(true);
start();
tick();
read("/api/info").then(
  (info) => {
    document.getElementById("garden").textContent = info.namespace ? `${info.garden} namespace ${info.namespace}` : info.garden;
    document.getElementById("version").textContent = `Version ${info.version}.`;
  },
  (error) => say(error.message),
);
