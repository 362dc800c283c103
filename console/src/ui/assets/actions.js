// What a person can ask of a migration: the same requests and questions as on the command line.

import { send } from "./api.js";
import { ask } from "./dialog.js";
import { el, say } from "./dom.js";

const DANGEROUS = ["abort", "abort-force", "force-shrink"];

/** Buttons for the requests that would be obeyed now. `done` is called when one was written. */
export function requests(detail, done) {
  const buttons = [];
  const facts = [];
  for (const request of detail.requests) {
    const isFact = request.name.startsWith("confirm");
    const isDanger = isFact || DANGEROUS.includes(request.name);
    const click = () => open(detail.migration, request, isDanger, done);
    const button = el("button", { type: "button", class: isDanger ? "danger quiet" : "quiet", data: { request: request.name }, on: { click } }, `${request.label}${request.question ? "…" : ""}`);
    (isFact ? facts : buttons).push(button);
  }
  if (facts.length > 0) buttons.push(el("details", { class: "facts-known" }, el("summary", {}, "What only a person can know"), el("div", { class: "buttons" }, facts)));
  return buttons;
}

function open(migration, request, isDanger, done) {
  const path = `/api/migrations/${migration.namespace}/${migration.name}/requests`;
  const run = async () => {
    const answer = await send(path, { request: request.name, agreed: request.question });
    say(`${request.label}: ${answer.follows}`);
    done();
  };
  ask({
    title: `${request.label}: ${migration.namespace}/${migration.name}`,
    content: [request.question ? el("p", { class: "question" }, request.question) : null, el("p", {}, `What follows: ${request.follows}.`)],
    actions: [{ label: request.label, danger: isDanger, run }],
  });
}
