// How fast the page is with many Shoots. Numbers are printed; limits are wide, since the machine may be busy.

import assert from "node:assert/strict";

import { until } from "./browser.mjs";

/** Time from the beginning of the navigation to a full table, and times of frames while a person scrolls, searches and sorts. */
export async function smooth(browser, count) {
  const page = await browser.open();
  try {
    await page.evaluateOnNewDocument(() => {
      globalThis.watching = new MutationObserver(() => {
        if (globalThis.filled === undefined && document.querySelectorAll("tbody tr").length >= 100) globalThis.filled = performance.now();
      });
      document.addEventListener("DOMContentLoaded", () => globalThis.watching.observe(document.body, { childList: true, subtree: true }));
    });
    await page.bringToFront();
    await page.goto(`${browser.origin}/#/fleet`);
    const filled = await until("a full table", () => page.evaluate(() => globalThis.filled));
    await until("all Shoots", async () => (await page.evaluate(() => document.querySelector("main .summary").textContent)).startsWith(`${count} `));
    const rows = await page.$$eval("tbody tr", (all) => all.length);
    assert.ok(rows <= 100, `${rows} rows are in the document`);
    const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
    assert.ok(nodes < 5000, `${nodes} elements`);
    const work = await page.evaluate(worked);
    const frames = await page.evaluate(framed);
    console.log(`     ${count} Shoots: table after ${Math.round(filled)} ms, ${nodes} elements`);
    console.log(`     work of one input: ${JSON.stringify(work)} ms`);
    console.log(`     frames while it is scrolled, searched and sorted: ${JSON.stringify(frames)}`);
    assert.ok(filled < 10000, `the table took ${filled} ms`);
    for (const [name, { median }] of Object.entries(work)) assert.ok(median < 150, `${name} took ${median} ms`);
    assert.ok(frames.median < 100, `the median frame took ${frames.median} ms`);
  } finally {
    await page.close();
    await browser.page.bringToFront();
  }
}

/** Times for a letter of the search, a sort and a next page, with the layout that follows: median and longest, in milliseconds. */
function worked() {
  const measured = (times, act) => {
    const all = [];
    for (let at = 0; at < times; at += 1) {
      const begin = performance.now();
      act(at);
      document.body.getBoundingClientRect();
      all.push(Math.round((performance.now() - begin) * 10) / 10);
    }
    all.sort((a, b) => a - b);
    return { median: all[Math.floor(all.length / 2)], longest: all.at(-1) };
  };
  const search = document.querySelector("input[type=search]");
  const type = (text) => {
    search.value = text;
    search.dispatchEvent(new Event("input"));
  };
  const sorts = [...document.querySelectorAll("button.sort")];
  const letter = measured(15, (at) => type("shoot-0".slice(0, (at % 7) + 1)));
  type("");
  const sort = measured(15, (at) => sorts[at % sorts.length].click());
  const next = measured(7, () => [...document.querySelectorAll(".pager button")].at(-1).click());
  return { letter, sort, next };
}

/** Times between frames for four seconds, in milliseconds. */
async function framed() {
  const times = [];
  const sorts = [...document.querySelectorAll("button.sort")];
  const scroller = document.querySelector(".scroller");
  const search = document.querySelector("input[type=search]");
  const begin = performance.now();
  let last = begin;
  let frame = 0;
  while (performance.now() - begin < 4000) {
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    times.push(now - last);
    last = now;
    frame += 1;
    window.scrollTo(0, (frame * 13) % 900);
    scroller.scrollTop = (frame * 29) % 2000;
    if (frame % 20 === 0) sorts[(frame / 20) % sorts.length].click();
    if (frame % 15 === 0) {
      search.value = "shoot-0".slice(0, (frame / 15) % 7);
      search.dispatchEvent(new Event("input"));
    }
  }
  search.value = "";
  search.dispatchEvent(new Event("input"));
  times.sort((a, b) => a - b);
  const at = (part) => Math.round(times[Math.floor((times.length - 1) * part)] * 10) / 10;
  return { frames: times.length, median: at(0.5), p95: at(0.95), longest: at(1) };
}
