// A Chromium with the page, and what all scripts share: steps with names, waiting for conditions, axe, positions.

import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const packages = createRequire(join(process.env.BROWSER_PACKAGES, "package.json"));
const puppeteer = (await import(pathToFileURL(packages.resolve("puppeteer-core")))).default;
const AXE = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");

/** How long a condition is waited for, in milliseconds. */
const PATIENCE = 30000;
/** Positions may differ by so many pixels: fonts are not the same everywhere. */
const TOLERANCE = 24;
const GOLDENS = new URL("layout.json", import.meta.url);

/** Runs one part of the test; its name stands before what fails. */
export async function step(name, run) {
  const begin = Date.now();
  try {
    await run();
    console.log(`ok   ${name} (${Date.now() - begin} ms)`);
  } catch (error) {
    console.log(`FAIL ${name}`);
    error.message = `${name}: ${error.message}`;
    throw error;
  }
}

/** Asks until the answer is true, or something that counts as true. */
export async function until(what, ask) {
  const end = Date.now() + PATIENCE;
  let last;
  for (;;) {
    try {
      last = await ask();
      if (last) return last;
    } catch (error) {
      last = error.message;
    }
    if (Date.now() > end) throw new Error(`waited in vain for ${what}; last answer: ${JSON.stringify(last)}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A browser and one page in it. */
export class Browser {
  static async start(link) {
    const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars", "--lang=en"];
    const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args, env: { ...process.env, TZ: "UTC" } });
    const one = new Browser();
    Object.assign(one, { browser, link, origin: new URL(link).origin, complaints: [], requests: [] });
    one.page = await one.open();
    return one;
  }

  /** A page that writes down what goes wrong in it. */
  async open() {
    const page = await this.browser.newPage();
    await page.setViewport({ width: 1440, height: 900 });
    await page.evaluateOnNewDocument(() => {
      document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
    });
    page.on("console", (message) => message.type() === "error" && this.complaints.push(message.text()));
    page.on("pageerror", (error) => this.complaints.push(error.stack ?? String(error)));
    page.on("request", (request) => this.requests.push(request.url()));
    return page;
  }

  /** Goes to a part of the page. */
  async go(hash) {
    await this.page.evaluate((to) => (location.hash = to), hash);
    await until(`the page ${hash}`, () => this.page.evaluate((to) => location.hash === to && document.querySelector("main h1") !== null, hash));
  }

  /** Waits for a text in the main part. */
  sees(text, selector = "main") {
    const find = (where, words) => [...document.querySelectorAll(where)].some((node) => node.textContent.includes(words));
    return until(`"${text}" in ${selector}`, () => this.page.evaluate(find, selector, text));
  }

  /** The text of the first element. */
  text(selector) {
    return this.page.evaluate((where) => document.querySelector(where)?.textContent ?? null, selector);
  }

  /** What has the focus, in words. */
  focus() {
    return this.page.evaluate(() => {
      const node = document.activeElement;
      return `${node.tagName.toLowerCase()}${node.id ? `#${node.id}` : ""}: ${(node.getAttribute("aria-label") ?? node.textContent ?? "").trim().slice(0, 60)}`;
    });
  }

  /** Chooses a colour scheme as the system would. */
  async scheme(value, motion = "no-preference") {
    await this.page.emulateMediaFeatures([
      { name: "prefers-color-scheme", value },
      { name: "prefers-reduced-motion", value: motion },
    ]);
  }

  /** No serious or critical finding of axe on this part of the page. */
  async accessible(name) {
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(async () => {
      const { violations, passes } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
      return { passes: passes.length, violations: violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary}`) })) };
    });
    assert.ok(found.passes > 10, `axe has looked at ${name}`);
    const bad = found.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
    assert.deepEqual(bad, [], `axe on ${name}`);
    const rest = found.violations.map(({ id, impact }) => `${id} (${impact})`);
    if (rest.length > 0) console.log(`     axe on ${name}: ${rest.join(", ")}`);
  }

  /** Where landmarks are, compared with what is kept. */
  async layout(name, selectors) {
    const places = await this.page.evaluate((all) => {
      window.scrollTo(0, 0);
      const of = (selector) => {
        const node = document.querySelector(selector);
        if (!node) return null;
        const { x, y, width, height } = node.getBoundingClientRect();
        return [x, y, width, height].map(Math.round);
      };
      return Object.fromEntries(all.map((selector) => [selector, of(selector)]));
    }, selectors);
    const kept = existsSync(GOLDENS) ? JSON.parse(readFileSync(GOLDENS, "utf8")) : {};
    if (process.env.UPDATE_GOLDENS) {
      const lines = Object.entries({ ...kept, [name]: places }).map(([page, all]) => {
        const rows = Object.entries(all).map(([selector, box]) => `    ${JSON.stringify(selector)}: ${JSON.stringify(box)}`);
        return `  ${JSON.stringify(page)}: {\n${rows.join(",\n")}\n  }`;
      });
      writeFileSync(GOLDENS, `{\n${lines.join(",\n")}\n}\n`);
      return;
    }
    for (const [selector, box] of Object.entries(kept[name] ?? {})) {
      const found = places[selector];
      const isNear = found && box && box.every((value, at) => Math.abs(value - found[at]) <= TOLERANCE);
      assert.ok(isNear, `${name}: ${selector} is at ${JSON.stringify(found)}, was at ${JSON.stringify(box)}; UPDATE_GOLDENS=1 renews it`);
    }
    assert.deepEqual(Object.keys(kept[name] ?? {}).sort(), [...selectors].sort(), `positions of ${name} are kept`);
  }

  /** A picture for the docs, where one is asked for. */
  async picture(name, options = {}) {
    const directory = process.env.PAGE_PICTURES;
    if (directory) await this.page.screenshot({ path: join(directory, `ui-${name}.png`), optimizeForSpeed: false, ...options });
  }

  async close() {
    await this.browser.close();
  }
}
