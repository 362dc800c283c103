// The page before a garden with many Shoots: node page.mjs KUBECONFIG LINK SHOOTS

import assert from "node:assert/strict";

import { foreignPage, manyStreams, session, strangers } from "./access.mjs";
import { Browser, step, until } from "./browser.mjs";
import { Garden } from "./garden.mjs";
import { keyboard, timelineKeys } from "./keyboard.mjs";
import { smooth } from "./measure.mjs";
import { etcds, isAway, isolations, migration, migrations, seedNames, seeds, shoots } from "./objects.mjs";
import { moves, steering } from "./steering.mjs";

const [kubeconfig, link, count] = process.argv.slice(2);
const garden = new Garden(kubeconfig);
const names = seedNames(12);
const fleet = shoots(Number(count), names);
const moving = migrations(300, names, fleet);
const running = moving.find((one) => one.status?.phase === "Running" && one.spec.mode === "Live");
const ended = moving.find((one) => one.status?.phase === "Succeeded" && one.spec.mode === "Classic");
const failed = moving.find((one) => one.status?.phase === "Failed");
const isCalm = (one, at) => at > 400 && one.status.conditions.length === 0 && !one.status.hibernated && !isAway(one.spec.seedName);
const address = (one) => `#/migrations/${one.metadata.namespace}/${one.metadata.name}`;

await step("fill the garden", async () => {
  await garden.createAll(seeds(names), "seeds");
  await garden.createAll(fleet, "shoots");
  await garden.createAll(moving, "controlplanemigrations");
  await garden.createAll(isolations(fleet.slice(0, 6).map((one) => [one.metadata.namespace, one.metadata.name])), "zoneisolations");
  const { hosted, backups } = etcds(25);
  await garden.createAll(hosted, "hostedetcds");
  await garden.createAll(backups, "etcdbackups");
});

await step("strangers are refused", () => strangers(link));

const browser = await Browser.start(link);
const { page } = browser;
try {
  await step("the link opens the page, and the token leaves the address", async () => {
    await page.goto(link);
    await browser.sees(`${count} Shoots`, "main .summary");
    assert.equal(await page.evaluate(() => location.href.replace(/#.*$/, "")), `${browser.origin}/`);
    assert.equal(await page.evaluate(() => document.cookie), "", "scripts do not see the cookie");
    const again = await browser.open();
    await again.goto(browser.origin);
    await again.waitForSelector("table.rows tbody tr");
    await again.close();
  });

  await step("pages of other origins get nothing", () => foreignPage(browser));

  await step("Shoots are found by seed, state and search", async () => {
    const shown = () => browser.text("main .summary");
    const here = fleet.filter((one) => one.spec.seedName === names[0]).length;
    await page.evaluate((name) => [...document.querySelectorAll(".cards button")].find((button) => button.textContent.includes(name)).click(), names[0]);
    // Those that move there are shown as well.
    await until("the Shoots of a seed", async () => Number((await shown()).match(/; (\d+) shown/)[1]) >= here && !(await shown()).includes(`; ${count} shown`));
    assert.equal(await page.evaluate(() => document.querySelectorAll(".cards button[aria-pressed=true]").length), 1);
    await page.evaluate(() => document.querySelector(".cards button[aria-pressed=true]").click());
    await page.type("input[type=search]", "shoot-0123");
    await browser.sees("; 1 shown", "main .summary");
    await page.evaluate(() => {
      const search = document.querySelector("input[type=search]");
      search.value = "";
      search.dispatchEvent(new Event("input"));
    });
    await page.select("main form select", "problem");
    await until("Shoots with problems", async () => Number((await shown()).match(/; (\d+) shown/)[1]) < 200);
    await page.select("main form select", "all");
  });

  await step("a thousand Shoots are smooth", () => smooth(browser, Number(count)));

  await step("changes come by themselves", async () => {
    await browser.go("#/fleet");
    const one = fleet[1];
    await page.type("input[type=search]", one.metadata.name);
    await garden.patchStatus(one, "shoots", { lastOperation: { type: "Reconcile", state: "Error", description: "x", progress: 5 } });
    await browser.sees("Reconcile Error", "tbody tr");
    await garden.patchStatus(one, "shoots", { lastOperation: { type: "Reconcile", state: "Succeeded", description: "x", progress: 100 } });
    await until("the row to change back", async () => !(await browser.text("tbody")).includes("Error"));
    const born = { ...one, metadata: { ...one.metadata, name: `${one.metadata.name}-born` } };
    await garden.create(born, "shoots");
    await browser.sees("; 2 shown", "main .summary");
    await garden.request("DELETE", `${garden.path(born, "shoots")}/${born.metadata.name}`);
    await browser.sees("; 1 shown", "main .summary");
  });

  await step("a migration shows its timeline, evidence and members", async () => {
    await browser.go(address(running));
    await browser.sees("members start and join", "[data-lane=etcd]").catch(() => browser.sees("serves", "[data-lane=etcd]"));
    const lanes = await page.$$eval("[data-lane]", (all) => all.map((lane) => lane.dataset.lane));
    assert.deepEqual(lanes, ["etcd", "owner", "garden", "source", "destination"]);
    const steps = await page.$$eval("button.step", (all) => all.length);
    assert.ok(steps > 40, `${steps} steps`);
    await page.evaluate(() => [...document.querySelectorAll("button.step")].find((one) => one.textContent.startsWith("Shoot")).click());
    await browser.sees("Evidence", ".panel");
    await browser.sees("What you can do", ".panel");
    await browser.go(address(ended));
    await browser.sees("API away", ".marks");
    await browser.sees("no return", ".marks");
    await browser.go(address(failed));
    await browser.sees("it was not reached in time", ".panel");
  });

  await step("a migration goes on before one's eyes, and focus stays", async () => {
    await browser.go(address(running));
    await page.waitForSelector("button.step");
    const open = running.status.source.steps.concat(running.status.destination.steps).find((one) => one.state === "Running");
    const side = running.status.source.steps.includes(open) ? "source" : "destination";
    await page.evaluate((name) => [...document.querySelectorAll("button.step")].find((one) => one.textContent.startsWith(`${name},`)).focus(), open.name);
    const before = await browser.focus();
    const steps = running.status[side].steps.map((one) => (one === open ? { ...one, state: "Succeeded", completionTime: new Date().toISOString().replace(/\.\d+/, ""), message: "seen by the test" } : one));
    await garden.patchStatus(running, "controlplanemigrations", { [side]: { ...running.status[side], steps } });
    await until("the step to be reached", () => page.evaluate((name) => [...document.querySelectorAll("button.step")].some((one) => one.textContent.startsWith(`${name}, `) && one.textContent.includes("Succeeded")), open.name));
    const after = await browser.focus();
    assert.equal(after.split(",")[0], before.split(",")[0], "focus stays on the step");
  });

  await step("text of objects is text", async () => {
    const evil = "<img src=x onerror=globalThis.taken=1><script>globalThis.taken=1</script>\u202e";
    const one = migration({ name: "evil-move", namespace: "garden-dev", shoot: fleet[0].metadata.name, from: names[0], to: names[1], mode: "Live", phase: "Running", begin: Date.now() - 60000, part: 0.4 });
    one.status.message = evil;
    one.status.source.steps[0].message = evil;
    await garden.create(one, "controlplanemigrations");
    await garden.patchStatus(fleet[2], "shoots", { conditions: [{ type: evil, status: "False", reason: evil, message: evil }] });
    await browser.go(address(one));
    await browser.sees("<img src=x onerror=globalThis.taken=1><script>", ".stands");
    await page.evaluate(() => document.querySelector("#step-table").setAttribute("open", ""));
    await browser.sees("<img src=x", "#step-table td");
    await browser.go("#/fleet");
    await page.type("input[type=search]", fleet[2].metadata.name);
    await browser.sees("<img src=x", "tbody");
    assert.equal(await page.evaluate(() => globalThis.taken), undefined);
    assert.equal(await page.$("main img"), null);
    assert.ok(!(await browser.text("main")).includes("\u202e"), "marks of direction are gone");
    await garden.patchStatus(fleet[2], "shoots", { conditions: [] });
    await garden.request("DELETE", `${garden.path(one, "controlplanemigrations")}/evil-move`);
  });

  await step("the keyboard reaches everything", () => keyboard(browser));
  await step("arrows go through the timeline", () => timelineKeys(browser, address(ended)));
  await step("requests ask, and are written", () => steering(browser, garden, running, address));
  await step("a Shoot moves after its preview", () => moves(browser, garden, fleet.find(isCalm), names.find(isAway)));

  await step("isolations and etcds are listed", async () => {
    await browser.go("#/isolations");
    await browser.sees("euc1-az1", "tbody");
    await browser.go("#/etcds");
    await browser.sees("S3 backups/etcds/etcd-0", "tbody");
    await browser.sees("@daily", "tbody");
  });

  await step("nothing moves for those who do not want it", async () => {
    await browser.scheme("light", "reduce");
    const moving = await page.evaluate(() => {
      document.getElementById("connection").dataset.state = "connecting";
      return document.getAnimations().length;
    });
    await browser.scheme("light");
    const usual = await page.evaluate(() => document.getAnimations().length);
    await page.evaluate(() => (document.getElementById("connection").dataset.state = "connected"));
    assert.deepEqual([moving, usual], [0, 1]);
  });

  await step("light and dark, by the system and by the switch", async () => {
    const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await browser.scheme("dark");
    const dark = await back();
    await browser.scheme("light");
    const light = await back();
    assert.notEqual(dark, light);
    await page.click("#theme");
    await page.click("#theme");
    assert.equal(await back(), dark, "the switch says dark");
    await page.reload();
    await page.waitForSelector("main h1");
    assert.equal(await back(), dark, "and it is kept");
    await page.click("#theme");
    assert.equal(await back(), light);
  });

  const parts = { fleet: "#/fleet", migrations: "#/migrations", running: address(running), ended: address(ended), isolations: "#/isolations", etcds: "#/etcds" };
  for (const scheme of ["light", "dark"]) {
    for (const [name, hash] of Object.entries(parts)) {
      await step(`axe: ${name}, ${scheme}`, async () => {
        await browser.scheme(scheme);
        await browser.go(hash);
        await page.waitForSelector(hash.includes("/", 3) ? "button.step, tbody tr" : "tbody tr");
        await browser.accessible(`${name}, ${scheme}`);
      });
    }
  }
  await browser.scheme("light");

  await step("landmarks are where they were", async () => {
    const common = ["header.top", "#nav", "#main", "main h1"];
    await browser.go("#/fleet");
    await browser.layout("fleet", [...common, ".cards", ".cards li", "form.filters", ".table", ".pager", "footer"]);
    await browser.go("#/migrations");
    await browser.layout("migrations", [...common, "form.filters", ".table"]);
    await browser.go(address(ended));
    await page.waitForSelector("button.step");
    await browser.layout("migration", [...common, ".stands", ".timeline", "[data-lane=etcd]", "[data-lane=garden]", ".panel"]);
    await page.setViewport({ width: 390, height: 844 });
    await browser.layout("migration, narrow", ["header.top", "#main", ".timeline", ".panel"]);
    const wide = await page.evaluate(() => {
      const isWide = (node) => node.getBoundingClientRect().right > innerWidth + 2 && !node.closest(".timeline, .scroller");
      return [...document.querySelectorAll("body *")].filter(isWide).map((node) => `${node.tagName}.${node.className} ${node.textContent.slice(0, 40)}`);
    });
    assert.deepEqual(wide, [], "what is wider than a narrow page");
    await page.setViewport({ width: 1440, height: 900 });
  });

  await step("pictures for the docs", async () => {
    await page.setViewport({ width: 1280, height: 800 });
    await browser.go("#/fleet");
    await browser.picture("fleet");
    await browser.go(address(ended));
    await page.waitForSelector("button.step");
    await page.evaluate(() => [...document.querySelectorAll("button.step")].find((one) => one.textContent.startsWith("OwnerRecordTaken")).click());
    await page.evaluate(() => document.activeElement.blur());
    await browser.picture("timeline");
    await browser.scheme("dark");
    await browser.go(address(running));
    await page.waitForSelector("button.step");
    await browser.picture("running-dark");
    await browser.scheme("light");
    await page.setViewport({ width: 1440, height: 900 });
  });

  await step("streams beyond the limit are refused", () => manyStreams(link, 32));

  await step("the page loads nothing from elsewhere and complains of nothing", async () => {
    const foreign = browser.requests.filter((url) => !url.startsWith(browser.origin));
    assert.deepEqual(foreign, []);
    // Requests that were refused on purpose.
    const expected = (text) => text.includes("409 (Conflict)");
    assert.deepEqual(browser.complaints.filter((text) => !expected(text)), []);
  });
} finally {
  await browser.close();
  garden.close();
}
await session(link);
