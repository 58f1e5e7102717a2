// The draft of a template as fields; what is sent is the JSON behind them.

const source = document.getElementById("draft-body");
const fields = document.getElementById("body-fields");
let body = {};

// What a field says; undefined where it is as if it were not there.
function said({ dataset: { part }, value, checked, type }, row) {
  if (part === "required") return checked ? undefined : false;
  if (part === "choices") return value.split("\n").map((each) => each.trim()).filter(Boolean);
  if (part === "content" || part === "name") return value;
  const whole = type === "number" || row.type === "integer";
  return value === "" ? undefined : whole && /^-?\d+$/.test(value) ? Number(value) : value;
}

function fill(element, row) {
  for (const field of element.querySelectorAll("[data-part]")) {
    const value = row[field.dataset.part];
    if (field.type === "checkbox") field.checked = value !== false;
    else if (value !== undefined || field.tagName !== "SELECT") field.value = [value ?? ""].flat().join("\n");
  }
  for (const each of element.querySelectorAll("[data-of]")) each.hidden = each.dataset.of !== (row.type ?? "string");
}

function draw() {
  fields.hidden = Boolean(body.tool);
  for (const list of fields.querySelectorAll("[data-list]")) {
    const { content } = document.getElementById(`of-${list.dataset.list}`);
    list.replaceChildren(...(body[list.dataset.list] ?? []).map(() => content.firstElementChild.cloneNode(true)));
    [...list.children].forEach((element, at) => fill(element, body[list.dataset.list][at]));
  }
}

function read() {
  try { body = JSON.parse(source.value); draw(); } catch { fields.hidden = true; }
}

// A field, or a button, changes its row or the rows.
function change({ target, type }) {
  const { adds, moves, part } = target.dataset;
  if (type === "click" ? !(adds || moves) : !part) return;
  const element = target.closest("[data-row]");
  const list = element?.parentElement ?? fields.querySelector(`[data-list="${adds}"]`);
  const rows = body[list.dataset.list] ??= [];
  let at = element ? [...list.children].indexOf(element) : rows.push(adds === "messages" ? { role: "user", content: "" } : { name: "" }) - 1;
  if (part) rows[at][part] = said(target, rows[at]);
  if (part === "type") {
    // Parts of another type are refused, and hidden.
    for (const { dataset: { of }, control } of element.querySelectorAll("[data-of]")) if (of !== target.value) delete rows[at][control.dataset.part];
    delete rows[at].default;
  }
  const [row] = moves ? rows.splice(at, 1) : [];
  if (moves === "up") rows.splice(at = Math.max(0, at - 1), 0, row);
  source.value = JSON.stringify(body, null, 2);
  if (part) { if (part === "type") fill(element, rows[at]); return; }
  draw();
  (list.children[at] ?? list.nextElementSibling).querySelector("[data-part], [data-adds]").focus();
}

if (source) {
  for (const kind of ["input", "click"]) fields.addEventListener(kind, change);
  source.addEventListener("input", read);
  read();
}
