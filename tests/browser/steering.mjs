// What the page changes: it asks what the command line asks, and the garden has the answer.

import assert from "node:assert/strict";

import { session, raw } from "./access.mjs";
import { until } from "./browser.mjs";
import { dialogKeys } from "./keyboard.mjs";

const KIND = "controlplanemigrations";

/** Presses the button of a request. */
async function press(page, request) {
  const selector = `[data-request="${request}"]`;
  await page.waitForSelector(selector);
  await page.focus(selector);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]");
}

async function agree(page) {
  await page.evaluate(() => document.querySelector("dialog[open] .buttons button:last-child").click());
}

async function closed(page) {
  await until("the dialog to close", () => page.evaluate(() => document.querySelector("dialog") === null));
}

/** Pause, resume and abort of a migration that runs. */
export async function steering(browser, garden, one, address) {
  const { page } = browser;
  const spec = async () => (await garden.get(one, KIND)).spec;
  await browser.go(address(one));

  await press(page, "pause");
  await dialogKeys(browser);
  await browser.accessible("a dialog");
  await page.keyboard.press("Escape");
  await closed(page);
  assert.match(await browser.focus(), /^button: Pause/, "focus is back where it was");
  assert.equal((await spec()).paused, undefined, "nothing was written");

  await press(page, "pause");
  await agree(page);
  await closed(page);
  await until("the pause in the garden", async () => (await spec()).paused === true);
  await page.waitForSelector('[data-request="resume"]');
  await press(page, "resume");
  await agree(page);
  await until("the end of the pause", async () => (await spec()).paused === false);
  await closed(page);

  await press(page, "abort");
  const question = await browser.text("dialog .question");
  assert.match(question, /rolls back.*cannot be taken back/);
  // Meanwhile it passes its point of no return: what a person agrees to does not hold any more.
  await garden.patchStatus(one, KIND, { pointOfNoReturn: "2026-11-30T00:00:00Z" });
  await agree(page);
  await browser.sees("past its point of no return", "dialog .failure");
  assert.equal((await spec()).abort, undefined);
  await page.keyboard.press("Escape");
  await closed(page);
  await until("no abort to be offered", () => page.evaluate(() => document.querySelector('[data-request="abort"]') === null));
  await garden.patchStatus(one, KIND, { pointOfNoReturn: null });

  // Without the answer, or with another one, nothing is written.
  const { cookie, key } = await session(browser.link);
  const headers = { cookie, "x-repot-key": key, origin: browser.origin, "content-type": "application/json" };
  const path = `/api/migrations/${one.metadata.namespace}/${one.metadata.name}/requests`;
  const ask = (body) => raw(browser.origin, path, { method: "POST", headers, body: JSON.stringify(body) });
  assert.equal((await ask({ request: "abort" })).status, 409);
  assert.equal((await ask({ request: "abort", agreed: "yes" })).status, 409);
  assert.equal((await ask({ request: "explode" })).status, 400);
  assert.equal((await spec()).abort, undefined);

  await press(page, "abort");
  await agree(page);
  await closed(page);
  await until("the abort in the garden", async () => (await spec()).abort === "Abort");
}

/** A new migration: preview, findings, and the object. */
export async function moves(browser, garden, shoot, away) {
  const { page } = browser;
  const { name, namespace } = shoot.metadata;
  const path = `/apis/migration.gardener.cloud/v1alpha1/namespaces/${namespace}/${KIND}?limit=1000`;
  const all = async () => (await garden.request("GET", path)).items.filter((one) => one.spec.shootRef.name === name);
  const before = (await all()).length;

  await preview(page, browser, name, away);
  await browser.sees(`destination seed "${away}" is not healthy`, "dialog .findings");
  assert.ok(await page.$eval("dialog .buttons button:last-child", (button) => button.disabled), "it may not start");
  await page.keyboard.press("Escape");
  await closed(page);

  const seed = await preview(page, browser, name);
  await browser.sees("MoveCommitted", "dialog tbody");
  await browser.sees("Neither a rule nor the API server is against it.", "dialog .findings");
  const question = await browser.text("dialog .question");
  assert.ok(question.includes(`${namespace}/${name} moves from ${shoot.spec.seedName} to ${seed}`), question);
  await browser.accessible("the preview of a migration");
  await browser.picture("preview");
  assert.equal((await all()).length, before, "a preview creates nothing");
  await agree(page);
  await until("the new migration", async () => (await all()).length === before + 1);
  await until("its page", async () => (await page.evaluate(() => location.hash)).startsWith(`#/migrations/${namespace}/${name}-to-`));
  await browser.sees("Pending", ".stands");
}

/** Asks for the preview of a move to a seed, or to the one that is chosen already. */
async function preview(page, browser, name, seed) {
  await browser.go("#/fleet");
  await page.$eval("input[type=search]", (search) => (search.value = ""));
  await page.type("input[type=search]", name);
  await browser.sees("; 1 shown", "main .summary");
  await page.evaluate(() => document.querySelector("tbody button").click());
  await page.waitForSelector("dialog[open]");
  await browser.accessible("the choice of a seed");
  if (seed) await page.select("dialog select", seed);
  const chosen = await page.$eval("dialog select", (select) => select.value);
  await agree(page);
  await page.waitForSelector("dialog.wide[open]", { timeout: 90000 });
  await browser.sees("Findings before the start", "dialog");
  return chosen;
}
