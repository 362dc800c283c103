// The page before an API server that serves Repot's kinds alone: node plain.mjs KUBECONFIG LINK [again]

import assert from "node:assert/strict";

import { Browser, step, until } from "./browser.mjs";
import { Garden } from "./garden.mjs";
import { migrations, seedNames } from "./objects.mjs";

const [kubeconfig, link, again] = process.argv.slice(2);
const garden = new Garden(kubeconfig);
const browser = await Browser.start(link);
const { page } = browser;
try {
  if (again) {
    await step("the page goes on after the API server was away", async () => {
      await page.goto(link);
      await browser.sees("10 Shoots", "main .summary");
      // Nothing has changed since, so no event tells that the watches go on.
      await browser.go("#/migrations");
      const failing = () => page.$$('.notice[data-state="failing"]');
      await until("migrations to be followed again", async () => (await failing()).length === 0);
      await browser.go("#/");
      const [one] = migrations(11, seedNames(3)).slice(-1);
      await garden.create(one, "controlplanemigrations");
      await browser.sees("11 Shoots", "main .summary");
    });
  } else {
    await step("kinds that are not served are named, and migrations shown", async () => {
      await garden.createAll(migrations(10, seedNames(3)), "controlplanemigrations");
      await page.goto(link);
      await browser.sees("This API server does not serve Shoots.", ".notice");
      await browser.sees("This API server does not serve Seeds.", ".notice");
      await browser.sees("10 Shoots", "main .summary");
      assert.equal(await page.$$eval("tbody tr", (all) => all.length), 10);
      await browser.go("#/migrations");
      await browser.sees("3 running, 7 ended", "main .summary");
      await browser.accessible("a plain installation");
    });
    await step("a page without a session says so", async () => {
      await page.evaluate(() => localStorage.clear());
      await page.reload();
      await browser.sees("Open the link that repot ui has printed");
      browser.complaints = browser.complaints.filter((text) => !text.includes("401"));
    });
  }
  assert.deepEqual(browser.complaints, []);
} finally {
  await browser.close();
  garden.close();
}
