// What others of this machine, and pages of other origins, can do with the port of the page: nothing.

import assert from "node:assert/strict";
import http from "node:http";

import { until } from "./browser.mjs";

/** One raw request; gives back the status, the headers and the text. */
export function raw(origin, path, { method = "GET", headers = {}, body } = {}) {
  const { hostname, port } = new URL(origin);
  return new Promise((done, failed) => {
    const request = http.request({ hostname, port, path, method, headers, agent: false }, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("end", () => done({ status: response.statusCode, headers: response.headers, text: Buffer.concat(parts).toString() }));
    });
    request.on("error", failed);
    request.end(body);
  });
}

/** The cookie and the key of a session, as a program gets them that has the link. */
export async function session(link) {
  const { origin, search } = new URL(link);
  const entered = await raw(origin, `/${search}`);
  assert.equal(entered.status, 200);
  const [cookie] = entered.headers["set-cookie"];
  const key = entered.text.match(/name="key" content="(\w+)"/)[1];
  return { cookie: cookie.split(";")[0], key, attributes: cookie };
}

/** Requests without a session, and with parts of one. */
export async function strangers(link) {
  const { origin, host } = new URL(link);
  const { cookie, key, attributes } = await session(link);
  assert.match(attributes, /HttpOnly/);
  assert.match(attributes, /SameSite=Strict/);
  const status = async (path, options) => (await raw(origin, path, options)).status;
  for (const path of ["/", "/assets/app.js", "/api/info", "/api/events", "/nothing", `/?token=${"0".repeat(64)}`]) {
    assert.equal(await status(path), 401, path);
  }
  assert.equal(await status("/api/info", { headers: { cookie } }), 401, "the cookie alone");
  assert.equal(await status("/api/info", { headers: { "x-repot-key": key } }), 401, "the key alone");
  const all = { cookie, "x-repot-key": key };
  assert.equal(await status("/api/info", { headers: all }), 200);
  for (const other of ["evil.example", `evil.example:${host.split(":")[1]}`, "127.0.0.1:1"]) {
    assert.equal(await status("/api/info", { headers: { ...all, host: other } }), 421, other);
  }
  const json = { ...all, "content-type": "application/json" };
  const post = (headers, body = "{}") => status("/api/previews", { method: "POST", headers, body });
  assert.equal(await post(json), 403, "no Origin");
  assert.equal(await post({ ...json, origin: "http://evil.example" }), 403);
  assert.equal(await post({ ...json, origin, "sec-fetch-site": "cross-site" }), 403);
  assert.equal(await post({ ...all, origin, "content-type": "text/plain" }), 400, "a form");
  assert.equal(await post({ ...json, origin }), 400, "an empty request");
  assert.equal(await post({ ...json, origin }, "x".repeat(1 << 20)), 413, "a large one");
  for (const path of ["/api/migrations/..%2f..%2fsecrets/x", "/api/migrations/a/..", "/api/kinds/secrets", "/assets/..%2f..%2fCargo.toml"]) {
    assert.ok([400, 404].includes(await status(path, { headers: all })), path);
  }
  const { headers } = await raw(origin, "/", { headers: { cookie } });
  assert.match(headers["content-security-policy"], /default-src 'none'.*frame-ancestors 'none'/);
  assert.doesNotMatch(headers["content-security-policy"], /unsafe/);
  assert.equal(headers["cache-control"], "no-store");
  assert.equal(headers["x-content-type-options"], "nosniff");
}

/** A server on another port of this host, whose page is opened in the browser that has the session. */
export async function foreignPage(browser) {
  const seen = [];
  const server = http.createServer((request, response) => {
    seen.push(request.headers.cookie ?? "");
    response.setHeader("content-type", "text/html");
    response.end("<!doctype html><title>elsewhere</title><body>");
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const page = await browser.browser.newPage();
  try {
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    const result = await page.evaluate(async (origin) => {
      const tried = {};
      const attempt = async (name, run) => {
        try {
          tried[name] = await run();
        } catch (error) {
          tried[name] = `failed: ${error.name}`;
        }
      };
      await attempt("read", async () => (await fetch(`${origin}/api/info`, { credentials: "include" })).status);
      await attempt("blind", async () => (await fetch(`${origin}/api/info`, { credentials: "include", mode: "no-cors" })).type);
      await attempt("header", async () => (await fetch(`${origin}/api/info`, { credentials: "include", headers: { "x-repot-key": "x" } })).status);
      await attempt("write", async () => (await fetch(`${origin}/api/migrations`, { method: "POST", body: "{}", credentials: "include", mode: "no-cors" })).type);
      const loads = (tag, attributes) =>
        new Promise((done) => {
          const node = Object.assign(document.createElement(tag), attributes);
          node.onload = () => done("loaded");
          node.onerror = () => done("refused");
          document.body.append(node);
        });
      tried.script = await loads("script", { src: `${origin}/assets/app.js` });
      tried.frame = await loads("iframe", { src: `${origin}/` });
      try {
        tried.inside = document.querySelector("iframe").contentWindow.document.title;
      } catch (error) {
        tried.inside = `failed: ${error.name}`;
      }
      return tried;
    }, browser.origin);
    assert.match(String(result.read), /^failed/);
    assert.match(String(result.blind), /^failed/);
    assert.match(String(result.header), /^failed/);
    assert.match(String(result.write), /^failed/);
    assert.equal(result.script, "refused");
    assert.match(result.inside, /^failed|^$/);
    const frames = page.frames().filter((frame) => frame.url().startsWith(browser.origin));
    for (const frame of frames) assert.equal(await frame.$("#nav"), null, "the page is shown in a frame");
    // The browser gives the cookie to every port of the host. That is why the cookie alone opens nothing.
    const cookie = await until("the other server's request", () => seen[0]);
    const answer = await raw(browser.origin, "/api/info", { headers: { cookie } });
    assert.equal(answer.status, 401, "the cookie that another port has seen");
  } finally {
    await page.close();
    server.close();
  }
}

/** Streams of events beyond the limit are refused, and places come back. */
export async function manyStreams(link, limit) {
  const { origin } = new URL(link);
  const { hostname, port } = new URL(origin);
  const { cookie, key } = await session(link);
  const open = [];
  const stream = () =>
    new Promise((done, failed) => {
      const request = http.get({ hostname, port, path: "/api/events", headers: { cookie, "x-repot-key": key }, agent: false }, (response) => {
        open.push(request);
        done(response.statusCode);
        response.resume();
      });
      // Ended below.
      request.on("error", (error) => (error.code === "ECONNRESET" ? null : failed(error)));
    });
  const answers = [];
  for (let at = 0; at < limit + 3; at += 1) answers.push(await stream());
  const refused = answers.filter((status) => status === 503).length;
  assert.ok(refused >= 3, `of ${answers.length} streams, ${refused} were refused`);
  for (const request of open) request.destroy();
  open.length = 0;
  await until("a place for one more page", async () => (await stream()) === 200);
  for (const request of open) request.destroy();
}
