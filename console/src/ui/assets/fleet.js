// All Shoots by seed: where they are, which of them move, and what is wrong with them.

import { shares } from "./bars.js";
import { badge, el, field, fill, select, set } from "./dom.js";
import { link, notice } from "./migrations.js";
import { startMove } from "./move.js";
import { availability, rows } from "./store.js";
import { Table } from "./table.js";
import { plural } from "./text.js";

const STATES = [
  ["all", "all Shoots"],
  ["moving", "those that move"],
  ["problem", "those with problems"],
  ["hibernated", "hibernated ones"],
];

/** Newest migration of each Shoot, by namespace and name of the Shoot. */
function newest() {
  const found = new Map();
  for (const one of rows("migrations").values()) {
    const key = `${one.namespace}/${one.shoot}`;
    const other = found.get(key);
    if (!other || (one.created ?? "") > (other.created ?? "")) found.set(key, one);
  }
  return found;
}

/** Whether Shoots cannot be had: not served, or not for this user. A watch that fails for a moment leaves the rows that there are. */
function isGuess() {
  return ["notServed", "forbidden"].includes(availability("shoots").state);
}

/** Shoots with their migrations. Without Shoots, those that migrations name. */
function fleetRows(cache) {
  const moves = newest();
  const pairs = [];
  const add = (key, shoot, move) => {
    const before = cache.get(key);
    const isSame = before && before.shoot === shoot && before.move === move;
    const row = isSame ? before : { shoot, move, name: key, seed: place(shoot, move), state: stateOf(shoot, move) };
    cache.set(key, row);
    pairs.push([key, row]);
  };
  if (!isGuess()) {
    for (const [key, shoot] of rows("shoots")) add(key, shoot, moves.get(key) ?? null);
  } else {
    for (const [key, move] of moves) add(key, null, move);
  }
  return pairs;
}

function place(shoot, move) {
  if (shoot) return shoot.statusSeed || shoot.seed;
  return move.phase === "Succeeded" ? move.to : move.from;
}

function stateOf(shoot, move) {
  if (move && !move.over) return "moving";
  if (move && move.phase === "Failed") return "problem";
  if (!shoot) return "fine";
  const { state } = shoot.operation;
  if (shoot.deleting || shoot.problems.length > 0 || state === "Error" || state === "Failed") return "problem";
  return shoot.hibernated ? "hibernated" : "fine";
}

function columns() {
  return [
    { key: "name", label: "Shoot", isHead: true, value: (row) => row.name, cell: (row) => row.name },
    { key: "seed", label: "Seed", value: (row) => row.seed, cell: seedCell },
    { key: "state", label: "State", value: (row) => row.state, cell: stateCell },
    { key: "move", label: "Last migration", value: (row) => row.move?.created ?? "", cell: moveCell },
    { key: "operation", label: "Last operation", value: operation, cell: operation },
    { key: "version", class: "tight", label: "Kubernetes", value: (row) => row.shoot?.version ?? "", cell: (row) => row.shoot?.version ?? "" },
    { key: "region", class: "tight", label: "Region", value: (row) => row.shoot?.region ?? "", cell: (row) => row.shoot?.region ?? "" },
    { key: "act", class: "tight", label: "Move", cell: actCell },
  ];
}

function seedCell(row) {
  const isMoving = row.move && !row.move.over;
  return isMoving ? `${row.move.from} → ${row.move.to}` : row.seed;
}

function stateCell(row) {
  const words = { moving: "moves", problem: "problem", hibernated: "hibernated", fine: "fine" };
  const problems = (row.shoot?.problems ?? []).map((one) => `${one.type}: ${one.reason || one.status}`);
  return [badge(words[row.state]), problems.length > 0 ? el("span", { class: "small" }, ` ${problems.join(", ")}`) : null];
}

function moveCell(row) {
  return row.move ? [link(row.move, `${row.move.mode} to ${row.move.to}`), " ", badge(row.move.phase)] : "";
}

function operation(row) {
  const last = row.shoot?.operation;
  return last?.type ? `${last.type} ${last.state}` : "";
}

function actCell(row) {
  const click = () => startMove(row.shoot);
  const isMoving = row.move && !row.move.over;
  if (!row.shoot || isMoving) return "";
  return el("button", { type: "button", class: "small", "aria-label": `Move ${row.name}`, on: { click } }, "Move…");
}

/** The page. */
export function fleet(root) {
  const cache = new Map();
  let seed = "";
  let wanted = "all";
  const search = el("input", { type: "search", placeholder: "name, seed, version, region", on: { input: () => show(true) } });
  const seedList = el("ul", { class: "cards" });
  const told = el("div");
  const summary = el("p", { class: "summary" });
  const table = new Table({ label: "Shoots", columns: columns(), sort: "seed", empty: "No Shoot matches." });
  const state = select(STATES, wanted, (value) => {
    wanted = value;
    show(true);
  });
  const clear = el("button", { type: "button", class: "quiet", hidden: true, on: { click: () => choose("") } });
  const cards = new Map();

  function choose(name) {
    seed = seed === name ? "" : name;
    show(true);
  }

  function show(reset = false) {
    const all = fleetRows(cache);
    showSeeds(all);
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = all.filter(([, row]) => isShown(row, words));
    table.update(shown, reset);
    const moving = all.filter(([, row]) => row.state === "moving").length;
    const problems = all.filter(([, row]) => row.state === "problem").length;
    summary.textContent = `${plural(all.length, "Shoot")}, ${moving} moving, ${problems} with problems; ${shown.length} shown`;
    set(clear, { hidden: seed === "" });
    clear.textContent = `All seeds, not ${seed} alone`;
    fill(told, notice("shoots"), notice("seeds"), isGuess() ? el("p", { class: "summary" }, "Shoots and seeds are those that migrations name.") : null);
  }

  function isShown(row, words) {
    const isHere = seed === "" || row.seed === seed || (row.move && !row.move.over && (row.move.from === seed || row.move.to === seed));
    if (!isHere || (wanted !== "all" && row.state !== wanted)) return false;
    if (words.length === 0) return true;
    const text = [row.name, row.seed, row.shoot?.version, row.shoot?.region, row.shoot?.provider, row.move?.to, row.move?.phase].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function showSeeds(all) {
    const counts = new Map([...rows("seeds").values()].map((one) => [one.name, empty(one)]));
    const of = (name) => counts.get(name) ?? counts.set(name, empty(null)).get(name);
    for (const [, row] of all) {
      if (!row.seed) continue;
      const one = of(row.seed);
      one.all += 1;
      one[row.state] += 1;
      if (row.move && !row.move.over) {
        of(row.move.from).out += 1;
        of(row.move.to).in += 1;
      }
    }
    const names = [...counts.keys()].sort();
    for (const name of names) card(name, counts.get(name));
    for (const name of [...cards.keys()].filter((key) => !counts.has(key))) {
      cards.get(name).item.remove();
      cards.delete(name);
    }
    fill(seedList, names.map((name) => cards.get(name).item));
  }

  function card(name, one) {
    const signature = JSON.stringify([one, seed === name]);
    let made = cards.get(name);
    if (made?.signature === signature) return;
    if (!made) {
      const button = el("button", { type: "button", on: { click: () => choose(name) } });
      made = { button, item: el("li", {}, button) };
      cards.set(name, made);
    }
    made.signature = signature;
    set(made.button, { "aria-pressed": String(seed === name) });
    const where = [one.seed?.provider, one.seed?.region].filter(Boolean).join(" ");
    const moves = [one.in ? `${one.in} coming` : "", one.out ? `${one.out} leaving` : ""].filter(Boolean).join(", ");
    const troubled = one.seed?.problems.length ? badge("problem") : null;
    fill(
      made.button,
      el("span", { class: "head" }, el("strong", {}, name), " ", el("span", { class: "small" }, where), troubled),
      el("span", { class: "number" }, plural(one.all, "Shoot")),
      shares([["problem", one.problem], ["moving", one.moving], ["hibernated", one.hibernated], ["fine", one.fine]]),
      el("span", { class: "small" }, [one.problem ? plural(one.problem, "problem") : "", moves].filter(Boolean).join(", ") || "nothing moves"),
    );
  }

  fill(
    root,
    el("h1", {}, "Fleet"),
    summary,
    told,
    el("section", { "aria-labelledby": "seeds" }, el("h2", { id: "seeds" }, "Seeds"), seedList),
    el(
      "section",
      { "aria-labelledby": "shoots" },
      el("h2", { id: "shoots" }, "Shoots"),
      el("form", { class: "filters", role: "search", "aria-label": "Shoots", on: { submit: (event) => event.preventDefault() } }, field("Search", search), field("Show", state), clear),
      table.node,
    ),
  );
  show();
  return { update: (kinds) => ["shoots", "seeds", "migrations"].some((kind) => kinds.has(kind)) && show() };
}

function empty(seed) {
  return { seed, all: 0, fine: 0, moving: 0, problem: 0, hibernated: 0, in: 0, out: 0 };
}
