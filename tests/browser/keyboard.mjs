// The page without a mouse.

import assert from "node:assert/strict";

import { until } from "./browser.mjs";

/** From the top of the page to its content, through its parts. */
export async function keyboard(browser) {
  const { page } = browser;
  await page.goto(`${browser.origin}/#/fleet`);
  await page.reload();
  await page.waitForSelector("tbody tr");
  await page.keyboard.press("Tab");
  assert.match(await browser.focus(), /^a#skip/);
  await page.keyboard.press("Enter");
  assert.match(await browser.focus(), /^main#main/);
  const seen = [];
  await page.evaluate(() => document.activeElement.blur());
  await page.evaluate(() => document.getElementById("skip").focus());
  for (let at = 0; at < 60; at += 1) {
    await page.keyboard.press("Tab");
    const shown = await page.evaluate(() => {
      const style = getComputedStyle(document.activeElement);
      return style.outlineStyle !== "none" || document.activeElement === document.body;
    });
    const focus = await browser.focus();
    assert.ok(shown, `the focus on ${focus} is seen`);
    seen.push(focus);
    if (focus.startsWith("div: Table")) break;
  }
  for (const wanted of [/^a: Fleet/, /^a: Migrations/, /^a: Isolations/, /^a: Etcds/, /^button#theme/, /^button: seed-/, /^input/, /^select/, /^div: Table/]) {
    assert.ok(seen.some((focus) => wanted.test(focus)), `${wanted} is reached: ${seen.join("; ")}`);
  }
  // A column is sorted by its button, and says so.
  await page.evaluate(() => [...document.querySelectorAll("button.sort")].find((one) => one.textContent === "Shoot").focus());
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.closest("th").getAttribute("aria-sort")), "ascending");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.closest("th").getAttribute("aria-sort")), "descending");
  assert.match(await browser.text("#live"), /descending/);
  // Another part begins at its content.
  await page.evaluate(() => [...document.querySelectorAll("#nav a")].find((one) => one.textContent.startsWith("Etcds")).focus());
  await page.keyboard.press("Enter");
  await until("the focus in the content", async () => (await browser.focus()).startsWith("main#main"));
  assert.equal(await page.evaluate(() => document.querySelector("#nav [aria-current=page]").textContent.split(" ")[0]), "Etcds");
  assert.equal(await page.title(), "Etcds – Repot");
}

/** Steps of a timeline. */
export async function timelineKeys(browser, hash) {
  const { page } = browser;
  await browser.go(hash);
  await page.waitForSelector("button.step");
  const stops = await page.$$eval("button.step[tabindex='0']", (all) => all.length);
  assert.equal(stops, 1, "the timeline is one stop of the tab key");
  await page.focus("button.step[tabindex='0']");
  const first = await browser.focus();
  await page.keyboard.press("ArrowDown");
  const second = await browser.focus();
  assert.notEqual(first, second);
  await page.keyboard.press("End");
  const last = await browser.focus();
  await page.keyboard.press("ArrowDown");
  assert.equal(await browser.focus(), last, "behind the last step is none");
  await page.keyboard.press("Home");
  assert.equal(await browser.focus(), first);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  assert.match(await browser.focus(), /^h2: /);
  assert.ok((await browser.focus()).includes(second.split(": ")[1].split(",")[0]), "the panel is about the step");
  await page.keyboard.press("Escape");
  assert.equal(await browser.focus(), second, "Escape goes back to the step");
}

/** Focus within an open dialog: it stays inside and begins at Cancel. */
export async function dialogKeys(browser) {
  const { page } = browser;
  assert.match(await browser.focus(), /^button: Cancel/);
  for (let at = 0; at < 8; at += 1) {
    await page.keyboard.press("Tab");
    // Behind the last button the browser itself has its turn, where the document has none.
    const isInside = await page.evaluate(() => document.activeElement === document.body || document.querySelector("dialog[open]").contains(document.activeElement));
    assert.ok(isInside, `focus leaves the dialog to ${await browser.focus()}`);
  }
}
