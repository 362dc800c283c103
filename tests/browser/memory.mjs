// As many Shoots and migrations as the program keeps, and pages that follow all of them: node memory.mjs KUBECONFIG LINK COUNT PAGES

import http from "node:http";

import { raw, session } from "./access.mjs";
import { step, until } from "./browser.mjs";
import { Garden } from "./garden.mjs";
import { migrations, seedNames, seeds, shoots } from "./objects.mjs";

const [kubeconfig, link, count, pages] = process.argv.slice(2);
const garden = new Garden(kubeconfig);
const names = seedNames(12);
const fleet = shoots(Number(count), names);
const { origin } = new URL(link);
const { cookie, key } = await session(link);
const headers = { cookie, "x-repot-key": key };

/** Rows of a kind that the program has. */
async function rows(kind) {
  return JSON.parse((await raw(origin, `/api/kinds/${kind}`, { headers })).text).rows.length;
}

/** Follows all rows as a page does, until it is closed. */
function follow() {
  const page = { bytes: 0 };
  const { hostname, port } = new URL(origin);
  const request = http.get({ hostname, port, path: "/api/events", headers, agent: false }, (response) => {
    response.on("data", (part) => (page.bytes += part.length));
  });
  page.close = () => request.destroy();
  return page;
}

await step(`${count} Shoots and as many migrations are created`, async () => {
  await garden.createAll(seeds(names), "seeds");
  await garden.createAll(fleet, "shoots");
  await garden.createAll(migrations(Number(count), names, fleet), "controlplanemigrations");
});

await step("the program has all of them", async () => {
  for (const kind of ["shoots", "migrations"]) {
    await until(`all ${kind}`, async () => (await rows(kind)) === Number(count));
  }
});

await step(`${pages} pages follow all of them`, async () => {
  const all = Array.from({ length: Number(pages) }, follow);
  await until("every page to have every row", () => all.every((page) => page.bytes > Number(count) * 2 * 100));
  await garden.patchStatus(fleet[0], "shoots", { lastOperation: { type: "Reconcile", state: "Error", description: "x", progress: 5 } });
  const before = all.map((page) => page.bytes);
  await until("every page to hear of a change", () => all.every((page, at) => page.bytes > before[at]));
  for (const page of all) page.close();
});
garden.close();
