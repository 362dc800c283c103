// A new migration: choose a seed, see what it would do and what the rules say, and only then start it.

import { send } from "./api.js";
import { ask } from "./dialog.js";
import { badge, el, facts, field, fill, say, select } from "./dom.js";
import { rows } from "./store.js";
import { bytes, duration } from "./text.js";

/** Asks where a Shoot moves, and how. */
export function startMove(shoot) {
  const here = shoot.statusSeed || shoot.seed;
  const seeds = [...rows("seeds").values()].filter((seed) => seed.name !== here && !seed.deleting).map((seed) => seed.name).sort();
  const asked = { namespace: shoot.namespace, shoot: shoot.name, destinationSeed: seeds[0] ?? "", mode: "Classic", executor: "Repot" };
  const options = seeds.map((name) => [name, name]);
  const text = el("input", { type: "text", required: true, on: { input: (event) => (asked.destinationSeed = event.target.value.trim()) } });
  const seed = seeds.length > 0 ? select(options, asked.destinationSeed, (value) => (asked.destinationSeed = value)) : text;
  const modes = [["Classic", "Classic: the API is away for a while"], ["Live", "Live: both seeds serve meanwhile"], ["Forced", "Forced: the source cannot be reached"]];
  const content = el(
    "div",
    { class: "form" },
    el("p", {}, `The control plane of ${shoot.namespace}/${shoot.name} is on ${here}. Nothing is changed before you have seen what the migration will do.`),
    field("Destination seed", seed),
    field("Mode", select(modes, asked.mode, (value) => (asked.mode = value))),
    field("Carried out by", select([["Repot", "the controllers of Repot"], ["Gardenlet", "the gardenlets of both seeds"]], asked.executor, (value) => (asked.executor = value))),
  );
  const run = async () => {
    const preview = await send("/api/previews", asked);
    queueMicrotask(() => showPreview({ ...asked }, preview));
  };
  ask({ title: `Move ${shoot.name}`, content, actions: [{ label: "Show what it will do", run }] });
}

function showPreview(asked, answer) {
  const { preview, preflight, question, allowed, refused, against } = answer;
  const create = async () => {
    const created = await send("/api/migrations", { ...asked, agreed: question });
    say(`Migration ${created.name} is created`);
    location.hash = `#/migrations/${created.namespace}/${created.name}`;
  };
  ask({
    title: `Move ${asked.shoot} to ${asked.destinationSeed}`,
    wide: true,
    content: [
      summary(preview),
      verdict(preflight, refused, against),
      table(preview),
      bindings(preview),
      el("p", { class: "question" }, question),
    ],
    actions: [{ label: allowed ? "Start the migration" : "It may not start", danger: true, disabled: !allowed, run: create }],
  });
}

function summary(preview) {
  const { history, carried } = preview;
  const entries = carried?.entries ?? {};
  const total = history.total;
  return facts([
    ["Duration", total ? `${duration(total.medianSeconds)} as a rule, ${duration(total.longestSeconds)} at most, in ${total.count} migrations` : "not known: no such migration has succeeded here"],
    ["API outage", preview.outage],
    ["No return", `from ${preview.pointOfNoReturn} on nothing rolls back`],
    ["Carried", carried ? `${bytes(carried.bytes)}: ${entries.resources} objects, ${entries.gardener} secrets and Gardener's own data, ${entries.extensions} states of extensions` : "not known: the ShootState cannot be read"],
  ]);
}

function verdict(preflight, refused, against) {
  const list = el("ul", { class: "findings" });
  const add = (word, text) => list.append(el("li", {}, badge(word), " ", text));
  for (const one of preflight.findings ?? []) add(one.verdict === "refuse" ? "refused" : "warning", `${one.field}: ${one.message} (${one.rule})`);
  if (preflight.notAsked) add("warning", `The rules were not asked: ${preflight.notAsked}`);
  if (preflight.dryRun?.verdict === "denied") add("refused", `API server (dry run of the Shoot): ${preflight.dryRun.message ?? ""}`);
  if (against) add("refused", against);
  if (refused) add("refused", `API server (dry run of the migration): ${refused}`);
  if (list.children.length === 0) add("allowed", "Neither a rule nor the API server is against it.");
  return [el("h3", {}, "Findings before the start"), list];
}

function table(preview) {
  const heads = ["Step", "Side", "Usually", "If it fails", "What it does"].map((text) => el("th", { scope: "col" }, text));
  const body = preview.rows.map((row) =>
    el(
      "tr",
      { data: { outage: String(row.withinOutage) } },
      el("th", { scope: "row" }, row.step, row.withinOutage ? el("span", { class: "small alarm" }, " API away") : null, row.step === preview.pointOfNoReturn ? el("span", { class: "small" }, " no return") : null),
      el("td", {}, row.side),
      el("td", {}, row.usual ? duration(row.usual.medianSeconds) : "?"),
      el("td", {}, row.onFailure),
      el("td", {}, row.does),
    ),
  );
  const node = el("table", { class: "rows" }, el("caption", { class: "hidden" }, "Steps of the migration"), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
  return [el("h3", {}, "Steps"), el("div", { class: "scroller short", tabindex: "0", role: "region", "aria-label": "Steps of the migration" }, node)];
}

function bindings(preview) {
  const all = preview.carried?.bindings ?? [];
  const warnings = preview.warnings.map((text) => el("li", {}, badge("warning"), " ", text));
  const list = el("ul", { class: "findings" }, warnings);
  const rows = all.map((one) => el("li", {}, `${one.object} ${one.pointer}: ${one.value ?? `${one.template} (${one.unknown})`}`));
  const node = fill(el("div"), warnings.length > 0 ? list : null);
  if (rows.length > 0) node.append(el("details", {}, el("summary", {}, `${rows.length} fields depend on the seed`), el("ul", {}, rows)));
  return node;
}
