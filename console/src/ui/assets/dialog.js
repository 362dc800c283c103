// Questions. The browser keeps the focus inside and gives it back.

import { el, fill } from "./dom.js";

let count = 0;

/**
 * A dialog with a title and content; `actions` are buttons beside Cancel, each with a label, whether it is dangerous, and what it does. A
 * button that does not throw closes the dialog; what it throws is shown.
 */
export function ask({ title, content, actions, wide = false }) {
  count += 1;
  const id = `dialog-${count}`;
  const failure = el("p", { class: "failure", role: "alert", hidden: true });
  const cancel = el("button", { type: "button", autofocus: true, on: { click: () => dialog.close() } }, "Cancel");
  const buttons = actions.map((action) => {
    const click = async () => {
      set(true);
      failure.hidden = true;
      try {
        await action.run();
        dialog.close();
      } catch (error) {
        failure.hidden = false;
        failure.textContent = error.message;
      } finally {
        set(false);
      }
    };
    const kind = action.danger ? "danger" : "primary";
    return el("button", { type: "button", class: kind, disabled: action.disabled, on: { click } }, action.label);
  });
  const set = (isBusy) => {
    for (const [at, button] of buttons.entries()) button.disabled = isBusy || actions[at].disabled === true;
    dialog.setAttribute("aria-busy", String(isBusy));
  };
  const dialog = el(
    "dialog",
    { class: wide ? "wide" : "", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-text` },
    el("h2", { id: `${id}-title` }, title),
    el("div", { id: `${id}-text`, class: "content" }, content),
    failure,
    el("div", { class: "buttons" }, cancel, buttons),
  );
  document.body.append(dialog);
  const closed = new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      done();
    });
  });
  dialog.showModal();
  return { closed, fill: (node) => fill(dialog.querySelector(".content"), node), close: () => dialog.close() };
}
