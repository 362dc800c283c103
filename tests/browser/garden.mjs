// Requests to a garden as its administrator, by the kubeconfig of `repot dev` or of a kube-apiserver of the tests.

import { readFileSync } from "node:fs";
import https from "node:https";

export class Garden {
  constructor(kubeconfig) {
    const text = readFileSync(kubeconfig, "utf8");
    const value = (key) => text.match(new RegExp(`"?${key}"?: *"?([^"\\s,}]+)`))?.[1];
    const data = (key) => {
      const inline = value(`${key}-data`);
      return inline ? Buffer.from(inline, "base64") : readFileSync(value(key));
    };
    this.server = value("server");
    this.agent = new https.Agent({
      keepAlive: true,
      maxSockets: 8,
      ca: data("certificate-authority"),
      cert: data("client-certificate"),
      key: data("client-key"),
    });
  }

  /** One request; throws where the answer is no success. */
  request(method, path, body, type = "application/json") {
    return new Promise((done, failed) => {
      const headers = body ? { "content-type": type } : {};
      const request = https.request(this.server + path, { method, agent: this.agent, headers }, (response) => {
        const parts = [];
        response.on("data", (part) => parts.push(part));
        response.on("end", () => {
          const text = Buffer.concat(parts).toString();
          if (response.statusCode < 300) done(text ? JSON.parse(text) : null);
          else failed(new Error(`${method} ${path}: ${response.statusCode} ${text.slice(0, 500)}`));
        });
      });
      request.setTimeout(60000, () => request.destroy(new Error(`${method} ${path}: no answer`)));
      request.on("error", failed);
      request.end(body ? JSON.stringify(body) : undefined);
    });
  }

  /** Whether a kind is served. */
  async serves(group, version, plural) {
    try {
      const found = await this.request("GET", `/apis/${group}/${version}`);
      return found.resources.some((one) => one.name === plural);
    } catch {
      return false;
    }
  }

  path(object, plural) {
    const { namespace } = object.metadata;
    return `/apis/${object.apiVersion}${namespace ? `/namespaces/${namespace}` : ""}/${plural}`;
  }

  /** Creates an object with its status. */
  async create(object, plural) {
    const { status, ...rest } = object;
    const path = this.path(object, plural);
    const created = await this.request("POST", path, rest);
    if (!status) return created;
    return this.patchStatus(object, plural, status);
  }

  /** Merges into the status of an object. */
  patchStatus(object, plural, status) {
    const path = `${this.path(object, plural)}/${object.metadata.name}/status`;
    return this.request("PATCH", path, { status }, "application/merge-patch+json");
  }

  /** Reads an object. */
  get(object, plural) {
    return this.request("GET", `${this.path(object, plural)}/${object.metadata.name}`);
  }

  /** Creates many, some at a time. */
  async createAll(objects, plural) {
    let next = 0;
    const worker = async () => {
      while (next < objects.length) {
        const object = objects[next];
        next += 1;
        await this.create(object, plural);
      }
    };
    await Promise.all(Array.from({ length: 8 }, worker));
  }

  close() {
    this.agent.destroy();
  }
}
