// Elements. Text of objects goes in as text nodes alone.

/**
 * An element with attributes and children. `on` has listeners, `data` and `style` go where their names say; a child that is null is left
 * out, and a text becomes a text node.
 */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  set(node, attributes);
  node.append(...nodes(children));
  return node;
}

/** Sets attributes; one that is null or false is removed. */
export function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (key === "data") {
      Object.assign(node.dataset, value);
    } else if (key === "style") {
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    } else if (value === null || value === undefined || value === false) {
      node.removeAttribute(key);
    } else if (value === true) {
      node.setAttribute(key, "");
    } else {
      node.setAttribute(key, String(value));
    }
  }
}

/** Replaces the children of an element. */
export function fill(node, ...children) {
  node.replaceChildren(...nodes(children));
  return node;
}

/** Makes the children of an element these nodes, and moves only what stands elsewhere: focus stays where it is. */
export function arrange(parent, wanted) {
  let at = parent.firstChild;
  for (const node of wanted) {
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Says something to screen readers. */
export function say(text) {
  document.getElementById("live").textContent = text;
}

/** A label of a phase or state; the colour follows the word. */
export function badge(word, extra = "") {
  return el("span", { class: `badge ${extra}`, data: { state: word || "none" } }, word || "not begun");
}

/** Rows of a description list; those without a value are left out. */
export function facts(rows) {
  const list = el("dl", { class: "facts" });
  for (const [term, value] of rows) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    list.append(el("div", {}, el("dt", {}, term), el("dd", {}, value)));
  }
  return list;
}

/** A field with its label. */
export function field(label, control) {
  return el("label", { class: "field" }, el("span", {}, label), control);
}

/** A list to choose from; options are pairs of value and text. */
export function select(options, value, change) {
  const node = el("select", { on: { change: () => change(node.value) } });
  for (const [key, text] of options) node.append(el("option", { value: key, selected: key === value }, text));
  return node;
}
