// Requests to the program that serves this page.

/** Where the key of this origin is kept. */
export const KEY = "repot-key";

/** A request that was not done, with the words of the server. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  return { "x-repot-key": localStorage.getItem(KEY) ?? "", ...more };
}

async function answer(response) {
  if (response.ok) return response;
  const text = await response.text();
  let words = text.trim();
  try {
    words = JSON.parse(text).error ?? words;
  } catch {
    // The gate answers in plain text.
  }
  throw new Refused(response.status, words || `the answer is ${response.status}`);
}

/** Reads JSON. */
export async function read(path, signal) {
  return (await answer(await fetch(path, { headers: headers(), signal }))).json();
}

/** Sends JSON. */
export async function send(path, body) {
  const options = { method: "POST", headers: headers({ "content-type": "application/json" }), body: JSON.stringify(body) };
  return (await answer(await fetch(path, options))).json();
}

/** Follows a stream of events until it ends; `take` gets the name and the data of each. */
export async function follow(path, signal, take) {
  const response = await answer(await fetch(path, { headers: headers({ accept: "text/event-stream" }), signal }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) event(part, take);
  }
}

function event(part, take) {
  let name = "message";
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) take(name, JSON.parse(data));
}
