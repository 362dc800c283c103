// One migration: where it stands, what a person can do, and its timeline.

import { requests } from "./actions.js";
import { read } from "./api.js";
import { lasting, progress } from "./bars.js";
import { badge, el, facts, fill, say } from "./dom.js";
import { showStep, stepTable } from "./step.js";
import { now, rows } from "./store.js";
import { day, duration } from "./text.js";
import { Timeline } from "./timeline.js";

/** The picture of a migration that runs goes on so often, in milliseconds. */
const REDRAW = 2000;
/** The same migration is read at most so often. */
const READ = 700;

/** The page. */
export function migration(root, [namespace, name]) {
  const key = `${namespace}/${name}`;
  const leave = new AbortController();
  let detail = null;
  let chosen = null;
  let isReading = false;
  let isStale = false;
  const head = el("div");
  const buttons = el("div", { class: "buttons", role: "group", "aria-label": "Requests to the migration" });
  const failure = el("p", { class: "failure", role: "alert", hidden: true });
  const panel = el("section", { class: "panel", "aria-label": "Chosen step" });
  const more = el("div");
  const choose = (step, isQuiet) => {
    chosen = step;
    showStep(panel, detail, chosen);
    if (!isQuiet) panel.querySelector("h2").focus({ preventScroll: false });
  };
  const timeline = new Timeline((step) => step && choose(step));
  const back = (event) => {
    if (event.key === "Escape") timeline.node.querySelector("button.step[tabindex='0']")?.focus();
  };
  panel.addEventListener("keydown", back);
  showStep(panel, null, null);

  async function refresh() {
    if (isReading) {
      isStale = true;
      return;
    }
    isReading = true;
    try {
      const before = detail?.migration.phase;
      detail = await read(`/api/migrations/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, leave.signal);
      failure.hidden = true;
      show();
      if (before && before !== detail.migration.phase) say(`The migration is ${detail.migration.phase} now`);
    } catch (error) {
      if (leave.signal.aborted) return;
      failure.hidden = false;
      failure.textContent = error.message;
    } finally {
      setTimeout(() => {
        isReading = false;
        if (isStale && !leave.signal.aborted) refresh();
        isStale = false;
      }, READ);
    }
  }

  function show() {
    const one = detail.migration;
    document.title = `${one.shoot} to ${one.destinationSeed} – Repot`;
    fill(head, ...heading(detail));
    renew(buttons, requests(detail, refresh));
    timeline.update(detail, now());
    if (chosen) showStepKeepingFocus();
    else firstStep();
    fill(more, ...rest(detail, choose));
  }

  function showStepKeepingFocus() {
    const hasFocus = panel.contains(document.activeElement);
    showStep(panel, detail, chosen);
    if (hasFocus) panel.querySelector("h2").focus({ preventScroll: true });
  }

  /** What a person wants to see first: the step that runs or has failed. */
  function firstStep() {
    const failed = detail.migration.sides.flatMap((side) => side.steps.map((step) => ({ side: side.name, ...step }))).find((step) => step.state === "Failed");
    const open = detail.progress.open[0];
    const step = failed ?? open;
    if (step) choose({ side: step.side, name: step.name }, true);
  }

  fill(
    root,
    el("p", { class: "trail" }, el("a", { href: "#/migrations" }, "Migrations"), ` / ${key}`),
    failure,
    head,
    buttons,
    el("div", { class: "split" }, el("section", { class: "wide", "aria-labelledby": "steps" }, el("h2", { id: "steps" }, "Timeline"), timeline.node), panel),
    more,
  );
  fill(head, el("h1", {}, key));
  refresh();
  const timer = setInterval(() => detail && !detail.over && document.visibilityState === "visible" && timeline.update(detail, now()), REDRAW);
  let last = rows("migrations").get(key);
  return {
    update: (kinds) => {
      const row = rows("migrations").get(key);
      if (kinds.has("migrations") && row !== last) {
        last = row;
        refresh();
      }
    },
    close: () => {
      leave.abort();
      clearInterval(timer);
    },
  };
}

/** Replaces buttons only where they are others: a person may be about to press one. */
function renew(node, buttons) {
  const words = (list) => [...list].map((button) => button.textContent).join("|");
  if (words(node.children) !== words(buttons)) fill(node, buttons);
}

function heading(detail) {
  const { migration: one, progress: stands, over } = detail;
  const outage = one.apiOutage;
  return [
    el("h1", {}, `${one.namespace}/${one.shoot}: `, el("span", { class: "nowrap" }, `${one.sourceSeed} → ${one.destinationSeed}`)),
    el("p", { class: "stands" }, badge(one.phase), one.paused && !over ? [" ", badge("paused")] : null, one.message ? ` ${one.message}` : ""),
    stands.silent.length > 0 ? el("p", { class: "notice", data: { state: "failing" } }, `The ${stands.silent.join(" and the ")} has recorded nothing for three minutes. Does its controller run?`) : null,
    facts([
      ["Mode", `${one.mode}, executor ${one.executor}`],
      ["Steps", progress(stands.settled, stands.rows, "Steps that are reached")],
      ["Began", day(detail.started ?? one.created)],
      [over ? "Took" : "Runs for", over ? duration(detail.seconds) : detail.started ? lasting(detail.started) : null],
      ["Still expected", stands.expectedSeconds ? `about ${duration(stands.expectedSeconds)}, as the migrations before it took` : null],
      ["API away", outage ? (outage.seconds !== null ? duration(outage.seconds) : lasting(outage.from, outage.to)) : over && one.phase === "Succeeded" ? (one.mode === "Live" && !one.shrunk ? "not at all" : "not recorded") : null],
      ["No return", one.pointOfNoReturn ? `past it since ${day(one.pointOfNoReturn)}` : "not yet: it can roll back"],
      ["Owner epoch", one.ownerEpoch],
      ["Followed by", one.followedBy ? el("a", { href: `#/migrations/${one.namespace}/${one.followedBy}` }, one.followedBy) : null],
    ]),
  ];
}

function rest(detail, choose) {
  const { loss, finalSnapshot, lateSnapshot, migration: one } = detail;
  const parts = [];
  const sides = one.sides.map((side) => [side.name, [badge(side.phase), side.message ? ` ${side.message}` : "", side.observed ? [" wrote last ", day(side.observed)] : null]]);
  parts.push(el("section", { "aria-labelledby": "sides" }, el("h2", { id: "sides" }, "Sides"), facts(sides)));
  const data = facts([
    ["Final snapshot of the source", finalSnapshot ? `${finalSnapshot.name}, revision ${finalSnapshot.revision}, ends epoch ${finalSnapshot.epoch}` : null],
    ["Confirmed to lose", loss ? `what follows revision ${loss.revision} of ${loss.time ?? "?"} (${loss.snapshot})` : null],
    ["Late snapshot", lateSnapshot ? `${lateSnapshot.state}: ${lateSnapshot.created ?? 0} keys created, ${lateSnapshot.updated ?? 0} updated, ${lateSnapshot.deleted ?? 0} deleted that the destination does not have` : null],
  ]);
  if (data.children.length > 0) {
    const keys = lateSnapshot?.keys ?? [];
    const names = keys.length > 0 ? el("details", {}, el("summary", {}, `Names of ${keys.length} keys`), el("ul", { class: "keys" }, keys.map((text) => el("li", {}, text)))) : null;
    parts.push(el("section", { "aria-labelledby": "data" }, el("h2", { id: "data" }, "Data"), data, names));
  }
  const open = document.getElementById("step-table")?.open ?? false;
  parts.push(el("details", { id: "step-table", open }, el("summary", {}, "Steps as a table"), stepTable(detail, choose)));
  return parts;
}
