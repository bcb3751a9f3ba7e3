// SPDX-License-Identifier: Apache-2.0
// The page of Latchwork: one file, no framework, no build step.
//
// Order of this file: text and numbers · elements · requests · the live stream · dialogs · tables ·
// charts · actions · views · start. Values of messages (keys, payloads, headers, reasons) reach the
// document only as text nodes and as attributes that run nothing: elements come from h() alone,
// which has no way to take markup.
"use strict";

// ---- text and numbers ----

const SPAN_MS = 15 * 60 * 1000; // what the charts show
const STALE_MS = 5000; // the server sends each second; a longer silence is told
const PAGE_ROWS = 100;

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const known = (n) => n !== null && n !== undefined && Number.isFinite(Number(n));
const count = (n) => (known(n) ? whole.format(n) : "–");

/** A number with about three digits, for charts: 0.4, 17.2, 1,204. */
function short(n) {
  if (!known(n)) return "–";
  return n !== 0 && Math.abs(n) < 100 && n % 1 ? n.toFixed(1) : whole.format(n);
}

function duration(ms) {
  if (!known(ms) || ms < 0) return "–";
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
const micros = (us) => (!known(us) ? "–" : us < 1000 ? `${Math.round(us)} µs` : us < 10000
  ? `${(us / 1000).toFixed(1)} ms` : duration(us / 1000));
const clock = (ms) => (known(ms) && ms > 0 ? new Date(ms).toLocaleTimeString("en-GB") : "–");
const dateTime = (ms) =>
  (known(ms) && ms > 0 ? new Date(ms).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC")
  : "–");
const since = (ms) => (known(ms) && ms > 0 ? `${duration(Math.max(0, serverNow() - ms))} ago`
  : "–");
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || `${one}s`}`;

// A path segment as the API wants it: what is not a letter, a digit or one of -._~ stands as %XX.
const segment = (text) =>
  encodeURIComponent(text).replace(/[!'()*]/g,
  (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
const bytesOf = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

/** What stands for the bytes `name` of a row: text, or its bytes in base64 if they are no UTF-8. */
function field(row, name) {
  const text = row[name];
  if (text !== undefined && text !== null)
    return { text: String(text), path: segment(String(text)), binary: false };
  const coded = row[`${name}_base64`];
  if (coded === undefined) return { text: null, path: null, binary: false };
  const path = Array.from(bytesOf(coded),
    (b) => `%${b.toString(16).padStart(2, "0").toUpperCase()}`).join("");
  return { text: `base64:${coded}`, path, binary: true };
}

function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path; // bytes that are no UTF-8 stay as %XX
  }
}

/** A part of the address as segment() writes it: what is shown must be what is asked for, though
 * anybody may have written the link. */
function normal(part) {
  try {
    return segment(decodeURIComponent(part));
  } catch {
    return part.replace(/[^\w.~%-]/gu, (c) => segment(c)); // bytes that are no UTF-8
  }
}

/** The key of a path as a request's body names it, in which there is no place for other bytes: they
 * must not become the name of another key. */
function bodyKey(path) {
  if (path === null || decoded(path) === path && path.includes("%"))
    throw new ApiError(400, "This key is not UTF-8, which a request cannot name: use the commands `latchwork queue` and `latchwork dead`.");
  return decoded(path);
}

// ---- elements ----

const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "path", "line"]);

/** Characters that nobody sees, or that change the order in which the rest of a text is shown, as
 * their names: a key or a reason must not pretend to be another one. */
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const plain = (text) => String(text).replace(HIDDEN,
  (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

/** Makes an element. Attributes: `on…` takes a function, `data` an object, true and false set and
 * leave out; everything else is text. Children: elements, text, arrays of them; null and false are
 * left out. */
function h(name, attributes, ...children) {
  const e = SVG_NAMES.has(name) ? document.createElementNS(SVG, name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function" && key.startsWith("on"))
      e.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(e.dataset, value);
    else if (key === "value") e.value = value;
    else if (value === true) e.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined)
      e.setAttribute(key, key === "title" ? plain(value) : value);
  }
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false)
    .map((c) => c instanceof Node ? c : plain(c)));
  return e;
}
const $ = (id) => document.getElementById(id);

function setText(e, said) {
  const text = plain(said);
  if (e.textContent !== text) e.textContent = text;
}
const state = (text, is) => h("span", { class: "state", data: { is } }, text);
const keyLink = (row) => {
  const k = field(row, "key");
  return k.path === null ? "(no key)" : k.path === "" ? "(empty key)"
    : h("a", { href: `#/key/${k.path}` }, k.text);
};
const time = (ms) => h("time",
  { datetime: known(ms) && ms > 0 ? new Date(ms).toISOString() : null, title: dateTime(ms) },
  since(ms));
const button = (text, onclick, more) => h("button", { type: "button", onclick, ...more }, text);

// ---- requests ----

let token = sessionStorage.getItem("latchwork.token") || "";
let session = { read: true, write: false, payloads: "show" };
let sessionKnown = null; // a promise that ends when the server has told the session
let clockOffset = 0; // the server's clock minus ours, so that ages are right
const serverNow = () => Date.now() + clockOffset;

class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = (more) => ({ ...(token ? { Authorization: `Bearer ${token}` } : {}), ...more });

async function failure(response) {
  const text = await response.text();
  try {
    return new ApiError(response.status, JSON.parse(text).error || text);
  } catch {
    return new ApiError(response.status,
      text.slice(0, 200) || `the server answered ${response.status}`);
  }
}

async function request(path, options) {
  if (/(^|\/)\.{1,2}(\/|\?|$)/.test(path))
    throw new ApiError(400, "A browser cannot ask for a key that is \".\" or \"..\": use `latchwork queue show`.");
  let response;
  try {
    response = await fetch(`api/v1/${path}`,
      { cache: "no-store", credentials: "omit", ...options });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new ApiError(0, "The server does not answer.");
  }
  if (!response.ok) throw await failure(response);
  return response;
}

const get = async (path, signal) => (await request(path, { headers: headers(), signal })).json();
const post = async (path, body) =>
  (await request(path, { method: "POST", headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body || {}) })).json();

function query(values) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values))
    for (const one of [value].flat()) if (one !== "" && one !== null && one !== undefined)
      q.append(name, one);
  const text = q.toString();
  return text ? `?${text}` : "";
}

async function loadSession() {
  session = await get("session");
  setText($("application"), session.application || "Latchwork");
  setText($("version"), `Latchwork ${session.version || ""}`);
  setText($("who"), session.write ? `Token: ${session.name || "token"}` : session.name
    ? `${session.name}: read-only` : "Read-only");
}

// ---- the live stream ----

const live = { points: [], now: null, at: 0, listeners: new Set(), stop: null, tries: 0 };

/** Keeps a point each 5 s; the newest stands behind them and is replaced each second. */
function addPoint(point) {
  const p = live.points;
  if (p.length > 1 && point.at_ms - p[p.length - 2].at_ms < 5000) p.pop();
  if (!p.length || point.at_ms > p[p.length - 1].at_ms) p.push(point);
  while (p.length && p[0].at_ms < point.at_ms - SPAN_MS - 10000) p.shift();
}

function onEvent(name, data) {
  if (name === "history") {
    live.points = data.points || [];
  } else if (name === "now") {
    live.now = data;
    clockOffset = data.point.at_ms - Date.now();
    addPoint(data.point);
    showDead(data.point.dead_letters);
    showTroubles(data.troubles || []);
  } else return;
  live.tries = 0;
  for (const listener of live.listeners) listener();
}

const blocker = { identity: null, text: "" }; // the message that blocks a partition, and its key

/** Says which key blocks a partition, as soon as Kafka has told it. */
function blockedBy(identity) {
  if (blocker.identity !== identity) {
    Object.assign(blocker, { identity, text: "" });
    record(identity).then((m) => blocker.identity === identity
      && (blocker.text = keyText(m) ? ` by key ${keyText(m)}` : ""), () => {});
  }
  return blocker.text;
}
const keyText = (row) => field(row, "key").text;

/** One sentence that says what is wrong now, on every view. It keeps its place when all is well, so
 * that nothing moves. */
function showTroubles(troubles) {
  const [worst] = troubles;
  const e = $("trouble");
  const more = troubles.length > 1 ? ` (and ${count(troubles.length - 1)} more)` : "";
  const by = worst && worst.identity ? blockedBy(worst.identity) : "";
  const text = worst ? `${worst.text[0].toUpperCase()}${worst.text.slice(1)}${by}${more}`
    : "Nothing is wrong on this host.";
  e.classList.toggle("bad", Boolean(worst));
  e.title = plain(troubles.map((t) => t.text).join("\n"));
  setText(e, text);
  if (worst) e.setAttribute("href", `#${worst.link}`);
  else e.removeAttribute("href");
}

/** How many dead letters Redis keeps. Those in a topic are not counted, and the badge says so. */
function showDead(n) {
  const inRedis = !known(n) ? "?" : n > 999 ? "999+" : count(n);
  const topic = session.dead_topic;
  $("dead-badge").classList.toggle("none", !topic && known(n) && n <= 0); // nothing moves
  $("dead-badge").classList.toggle("calm", Boolean(topic) && known(n) && n <= 0);
  setText($("dead-badge"), !topic ? inRedis : known(n) && n <= 0 ? "topic" : `${inRedis} + topic`);
  $("dead-badge").title = plain([known(n) ? "" : "Unknown: Redis does not answer.",
    topic ? `In Redis: ${inRedis}. Those in the topic ${topic} are not counted.` : ""].join(" ").trim());
}

/** Reads one event of the stream: lines `event:` and `data:` up to an empty line. */
function take(block) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trimStart();
  }
  if (data) onEvent(name, JSON.parse(data));
}

async function readStream(signal) {
  const response = await request("events",
    { headers: headers({ Accept: "text/event-stream" }), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    live.at = Date.now();
    const blocks = (rest + value.replaceAll("\r\n", "\n")).split("\n\n");
    rest = blocks.pop();
    blocks.forEach(take);
    showConnection();
  }
}

const backoff = (tries) =>
  Math.min(15000, 500 * 2 ** Math.min(tries, 5)) * (0.75 + Math.random() / 2);
const sleep = (ms, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    if (signal) signal.addEventListener("abort", () => (clearTimeout(timer), done()));
  });

/** A stream that is silent for 20 s is given up, because a proxy may keep a dead connection
 * open. */
function giveUpSilent(attempt) {
  const begun = Date.now();
  return setInterval(() => Date.now() - Math.max(live.at, begun) > 20000 && attempt.abort(), 2000);
}

async function stream(signal) {
  while (!signal.aborted) {
    const attempt = new AbortController();
    const end = () => attempt.abort();
    signal.addEventListener("abort", end);
    const watch = giveUpSilent(attempt);
    let refused = false;
    try {
      await readStream(attempt.signal);
    } catch (e) {
      refused = e.status === 401 || e.status === 403;
    }
    clearInterval(watch);
    signal.removeEventListener("abort", end);
    if (refused) return showConnection("no access");
    showConnection();
    if (!signal.aborted) await sleep(backoff(live.tries++), signal);
    if (!signal.aborted && live.tries) loadSession().catch(() => {});
  }
}

function startStream() {
  if (live.stop) live.stop.abort();
  live.stop = new AbortController();
  stream(live.stop.signal);
}

// A page that nobody sees needs no stream. A minute is allowed, so that changing between tabs costs
// nothing.
let hiddenTimer = 0;
function onVisibility() {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(() => {
      if (live.stop) live.stop.abort();
      live.stop = null;
    }, 60000);
  } else if (!live.stop) startStream();
}

// A browser may keep a page that was left, with its connections, of which it has few per server. So
// the page gives up its own.
function onLeave() {
  if (live.stop) live.stop.abort();
  live.stop = null;
  if (current && current.pending) current.pending.abort();
}

function onReturn(event) {
  if (event.persisted) startStream(), refresh();
}

/** The text changes only when the state does or every 5 s, so that a screen reader is not
 * flooded. */
function showConnection(special) {
  const age = Date.now() - live.at;
  const is = special ? "stale" : !live.at ? "connecting" : age < STALE_MS ? "live" : "stale";
  const e = $("connection");
  const text = special ? "No access" : is === "live" ? "Live" : is === "connecting" ? "Connecting"
    : `Stale: ${duration(age - (age % 5000))} old`;
  if (special) live.at = 0;
  if (is !== "live") {
    $("trouble").classList.remove("bad");
    $("trouble").removeAttribute("href");
    setText($("trouble"), "What is wrong now is unknown: this page gets no figures.");
  }
  if (e.textContent === "No access" && is === "connecting") return;
  setText(e, text);
  e.dataset.state = is;
  document.documentElement.classList.toggle("stale", is === "stale");
}

// ---- dialogs and messages ----

const SAFE = { autofocus: true }; // of the button that changes nothing: Enter must do no harm

/** Opens a dialog; build(close) returns its children. Resolves with what close() was given, or
 * undefined after Escape. */
function dialog(title, build) {
  return new Promise((done) => {
    let answer;
    const d = h("dialog", { "aria-labelledby": "dialog-title" });
    const close = (value) => {
      answer = value;
      d.close();
    };
    d.append(h("h2", { id: "dialog-title" }, title), ...[build(close)].flat());
    d.addEventListener("close", () => {
      d.remove();
      done(answer);
    });
    document.body.append(d);
    d.showModal();
  });
}

function toast(content, bad) {
  const e = h("div", { class: bad ? "toast bad" : "toast" }, h("div", null, content),
    button("Close", () => e.remove()));
  $("toasts").append(e);
  while ($("toasts").children.length > 4) $("toasts").firstChild.remove();
  if (!bad) setTimeout(() => e.remove(), 15000);
  return e;
}

function complain(error) {
  if (error.name === "AbortError") return;
  toast(error.message || String(error), true);
}

async function tryToken(text) {
  const before = token;
  token = text.trim();
  try {
    await loadSession();
    if (token && !session.name && !session.write)
      throw new ApiError(401, "This token is not known to the server.");
  } catch (e) {
    token = before;
    await loadSession().catch(() => {});
    throw e;
  }
  if (token) sessionStorage.setItem("latchwork.token", token);
  else sessionStorage.removeItem("latchwork.token");
  startStream();
}

function tokenForm(why, close) {
  const input = h("input",
    { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const submit = async (event) => {
    event.preventDefault();
    try {
      await tryToken(input.value);
      close(true);
    } catch (e) {
      problem.hidden = false;
      setText(problem, e.message);
      input.focus();
    }
  };
  const forget = async () => (await tryToken("").catch(() => {}), close(false));
  return h("form", { class: "stack", onsubmit: submit },
    h("p", null, why),
    h("p", { class: "soft" },
      "Tokens are set in the configuration: http.write_tokens and http.read_tokens. This tab keeps yours until it is closed."),
    h("label", { for: "token" }, "Token", input), problem,
    h("div", { class: "bar" }, h("button", { class: "main" }, "Use this token"),
      token && button("Forget the token", forget),
      button("Cancel", () => close(false))));
}

async function askToken(why) {
  const given = await dialog("Token", (close) => tokenForm(why, close));
  route();
  return given === true;
}

/** Returns whether changes are allowed; asks for a token if they are not yet. */
async function mayWrite() {
  return session.write || ((await askToken("Changing something needs a write token."))
    && session.write);
}

const KEYS = [["/", "find a key; with * all that contain a text"], ["g o", "overview"],
  ["g l", "lanes"], ["g d", "dead letters"],
  ["g k", "locks"], ["g t", "groups (tenants)"],
  ["g j", "jobs"], ["g a", "audit"], ["g w", "workers"],
  ["?", "this list"], ["Esc", "close a dialog"]];
const help = () =>
  dialog("Keys of this page", (close) => [
    h("dl", { class: "facts" },
      KEYS.map(([k, what]) => [h("dt", null, h("kbd", null, k)), h("dd", null, what)])),
    h("div", { class: "bar" }, button("Close", () => close())),
  ]);

// ---- tables ----

const wayBack = { ascending: "descending", descending: "ascending" };

/** A table whose rows keep their elements from one update to the next, so that focus and selection
 * stay. columns: [{label, cell(row) → text or element, sort(row) → value, num, clip, line}];
 * id(row) → string. With `select`, rows get check boxes. With `slots`, the row at a place keeps its
 * element whatever stands there, so that nothing moves when a row comes on top. With `fixed`, the
 * widths of the columns do not depend on what they hold. */
class Table {
  constructor({ caption, columns, id, select, empty, slots, fixed, cards = true }) {
    Object.assign(this, { columns, id, select, slots, rows: [], kept: new Map(),
      selected: new Set(), by: null, way: "ascending" });
    this.body = h("tbody", { role: "rowgroup" });
    this.none = empty || "Nothing here.";
    this.at = 0; // when the rows were known last; 0: never
    this.empty = h("p", { class: "empty" }, "Not known yet.");
    Table.made.push(this);
    this.heads = columns.map((c, i) => this.head(c, i));
    this.all = select && h("input",
      { type: "checkbox", "aria-label": `Select all of this page: ${caption}`,
      onchange: () => this.selectAll(this.all.checked) });
    this.table = h("table",
      { role: "table", class: [cards && "cards", fixed && "fixed-columns",
      slots && "slots"].filter(Boolean).join(" ") || null }, h("caption", null, caption),
      h("thead", { role: "rowgroup" },
        h("tr", { role: "row" },
        select && h("th", { role: "columnheader", scope: "col" }, this.all), this.heads)),
        this.body);
    this.element = h("div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, this.table,
      this.empty);
  }

  head(column, i) {
    const label = column.sort ? button(column.label, () => this.sortBy(i)) : column.label;
    return h("th", { role: "columnheader", scope: "col", class: column.num ? "num" : null,
      "aria-sort": column.sort ? "none" : null }, label);
  }

  sortBy(i) {
    this.way = this.by === i ? wayBack[this.way] : "ascending";
    this.by = i;
    this.heads.forEach((e, k) => this.columns[k].sort
      && e.setAttribute("aria-sort", k === i ? this.way : "none"));
    if (this.at) this.show(this.rows);
  }

  ordered() {
    if (this.by === null) return this.rows;
    const sort = this.columns[this.by].sort;
    const sign = this.way === "ascending" ? 1 : -1;
    const compare = (x, y) =>
      (typeof x === "number" && typeof y === "number" ? x - y
      : String(x ?? "").localeCompare(String(y ?? ""), "en", { numeric: true }));
    return [...this.rows].sort((a, b) => sign * compare(sort(a), sort(b)));
  }

  /** The server cannot tell the rows now. None and unknown must not look the same. */
  unknown(why) {
    setText(this.empty, this.rows.length ? `As of ${clock(this.at)}; unknown since then: ${why}`
      : `Unknown: ${why}`);
    this.empty.hidden = false;
  }

  set(rows) {
    this.at = Date.now();
    this.show(rows);
  }

  /** What a table without rows says from now on. */
  say(none) {
    this.none = none;
    if (this.at && !this.rows.length) setText(this.empty, none);
  }

  show(rows) {
    this.rows = rows;
    setText(this.empty, this.none);
    this.empty.hidden = rows.length > 0;
    const present = new Set();
    this.ordered().forEach((row, at) => {
      const id = this.slots ? String(at) : this.id(row);
      if (present.has(id)) return;
      present.add(id);
      const e = this.kept.get(id) || this.make(id);
      this.fill(e, row);
      const here = this.body.children[at];
      if (here !== e.row) this.body.insertBefore(e.row, here || null);
    });
    for (const [id, e] of this.kept) if (!present.has(id))
      e.row.remove(), this.kept.delete(id), this.selected.delete(id);
    this.showSelected();
  }

  make(id) {
    const box = this.select
      && h("input", { type: "checkbox", onchange: (event) => this.pick(id, event.target.checked) });
    const cells = this.columns.map((c) =>
      h("td", { role: "cell", class: ["num", "clip", "line"].find((name) => c[name]) || null,
      data: { label: c.label } }));
    const row = h("tr", { role: "row" },
      box && h("td", { role: "cell", data: { label: "Select" } }, box), cells);
    const kept = { row, box, cells, shown: [] };
    this.kept.set(id, kept);
    return kept;
  }

  fill(e, row) {
    if (e.box) e.box.setAttribute("aria-label", `Select ${this.select(row)}`);
    this.columns.forEach((column, i) => {
      const value = column.cell(row);
      const mark = value instanceof Node ? (value.outerHTML || value.textContent)
        : String(value ?? "");
      if (e.shown[i] === mark) return;
      const old = e.cells[i].firstChild;
      e.shown[i] = mark;
      if (this.slots) e.cells[i].title = value instanceof Node ? value.textContent
        : plain(mark); // the cell shows one line only
      if (old && old.tagName === "TIME" && value.tagName === "TIME")
        setText(old, value.textContent); // only the age has changed
      else if (value instanceof Node) e.cells[i].replaceChildren(value);
      else setText(e.cells[i], mark);
    });
  }

  pick(id, on) {
    if (on) this.selected.add(id);
    else this.selected.delete(id);
    this.showSelected();
  }

  selectAll(on) {
    this.selected = new Set(on ? this.kept.keys() : []);
    this.showSelected();
  }

  showSelected() {
    if (!this.select) return;
    for (const [id, e] of this.kept) e.box.checked = this.selected.has(id);
    this.all.checked = this.selected.size > 0 && this.selected.size === this.kept.size;
    this.all.indeterminate = this.selected.size > 0 && !this.all.checked;
    if (this.onselect) this.onselect(this.selected.size);
  }

  chosen() {
    return this.rows.filter((row) => this.selected.has(this.id(row)));
  }
}

Table.made = []; // those of the present view

const facts = (pairs) =>
  h("dl", { class: "facts" },
  pairs.filter(Boolean).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));

// ---- charts ----

/** The growth of a counter per second at point i, over 5 s at least; null when the counter has
 * started again or nothing is known. */
function rateAt(points, i, name) {
  let from = i - 1;
  while (from > 0 && points[i].at_ms - points[from].at_ms < 4500) from--;
  if (from < 0 || points[i].at_ms - points[from].at_ms > 60000) return null;
  const grown = points[i][name] - points[from][name];
  return grown >= 0 ? (grown * 1000) / (points[i].at_ms - points[from].at_ms) : null;
}
const perSecond = (name) => (points, i) => rateAt(points, i, name);
const gauge = (name) => (points, i) => (known(points[i][name]) ? points[i][name] : null);

const CHARTS = [
  { title: "Messages per second", format: short, unit: " per second",
    lines: [["in", perSecond("received")], ["done", perSecond("done")]] },
  { title: "Failures per second", format: short, unit: " per second",
    lines: [["dead", perSecond("dead")], ["retried", perSecond("retried")]] },
  { title: "Lag", format: short, unit: " messages", lines: [["messages", gauge("lag")]] },
  { title: "Waiting in lanes", format: short, unit: " messages",
    lines: [["messages", gauge("waiting")]] },
  { title: "In handlers", format: short, unit: " messages",
    lines: [["messages", gauge("in_handler")]] },
  { title: "Dead letters in Redis", format: short, unit: " letters",
    lines: [["kept", gauge("dead_letters")]] },
  { title: "Handler time", format: micros,
    lines: [["p50", gauge("handler_p50_us")], ["p99", gauge("handler_p99_us")]] },
  { title: "End to end", format: micros,
    lines: [["p50", gauge("end_to_end_p50_us")], ["p99", gauge("end_to_end_p99_us")]] },
];

/** The next round number above: 1, 2 or 5 times a power of ten, so that the scale seldom
 * changes. */
function roundUp(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((k) => k * power).find((k) => k >= n * 0.999);
}

/** The top of a scale. A few values that are far above all others do not flatten the rest: they are
 * drawn at the top, and their peak is told. */
function scaleOf(values) {
  const sorted = values.filter(known).sort((a, b) => a - b);
  const max = sorted.length ? sorted[sorted.length - 1] : 0;
  const usual = sorted.length ? sorted[Math.floor((sorted.length - 1) * 0.95)] : 0;
  const cut = usual > 0 && max > 5 * usual;
  return { top: roundUp(cut ? 2 * usual : max), peak: cut ? max : null };
}

class Chart {
  constructor({ title, format, unit = "", lines }) {
    Object.assign(this, { title, format, unit, lines, at: null });
    this.values = lines.map(([name], i) =>
      h("span", { class: i ? "key-b" : "key-a" }, `${name} –`));
    this.paths = lines.map((_, i) => h("path", { class: i ? "line-b" : "line-a" }));
    this.cursor = h("line",
      { class: "cursor", y1: 0, y2: 100, visibility: "hidden",
      "vector-effect": "non-scaling-stroke" });
    this.top = h("span", { class: "top" });
    this.span = h("span", { class: "span" }); // the time under the pointer
    this.svg = h("svg", { viewBox: "0 0 900 100", preserveAspectRatio: "none", role: "img",
      "aria-label": title,
      onpointermove: (e) => this.point(e), onpointerleave: () => this.point(null) },
      h("line", { class: "grid", x1: 0, x2: 900, y1: 99.5, y2: 99.5 }),
        h("line", { class: "grid", x1: 0, x2: 900, y1: 0.5, y2: 0.5 }), this.paths, this.cursor);
    this.element = h("figure", { class: "card chart live" },
      h("figcaption", null, h("span", { class: "title" }, title), this.span,
        h("span", { class: "values" }, this.values)),
      h("div", { class: "plot" }, this.svg, this.top),
      h("div", { class: "axis", "aria-hidden": "true" }, h("span", null, "15 min ago"),
        h("span", null, "now")));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    this.at = event && box.width ? Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))
      : null;
    this.draw();
  }

  draw() {
    const points = live.points;
    if (!points.length) return;
    const end = points[points.length - 1].at_ms;
    const series = this.lines.map(([, value]) => points.map((_, i) => value(points, i)));
    const { top, peak } = scaleOf(series.flat());
    const x = (i) => 900 - ((end - points[i].at_ms) * 900) / SPAN_MS;
    series.forEach((values, k) =>
      this.paths[k].setAttribute("d", trace(values, x, (v) => 99 - (Math.min(v, top) * 98) / top)));
    setText(this.top,
      `${this.format(top)}${this.unit}${peak === null ? "" : `, peak ${this.format(peak)}`}`);
    this.label(points, series, this.nearest(points, x));
  }

  /** The point under the pointer, or the last one. */
  nearest(points, x) {
    const hover = this.at !== null;
    let best = points.length - 1;
    if (hover) points.forEach((_, i) =>
      (best = Math.abs(x(i) - this.at * 900) < Math.abs(x(best) - this.at * 900) ? i : best));
    this.cursor.setAttribute("visibility", hover ? "visible" : "hidden");
    this.cursor.setAttribute("x1", x(best));
    this.cursor.setAttribute("x2", x(best));
    return best;
  }

  label(points, series, i) {
    const texts = this.lines.map(([name], k) => `${name} ${this.format(series[k][i])}`);
    texts.forEach((text, k) => setText(this.values[k], text));
    setText(this.span, this.at !== null ? clock(points[i].at_ms) : "");
    this.svg.setAttribute("aria-label", `${this.title}, last 15 minutes; now ${texts.join(", ")}`);
  }
}

/** A path through the values; a gap where one is not known. */
function trace(values, x, y) {
  let d = "";
  let pen = false;
  values.forEach((v, i) => {
    if (known(v) && x(i) >= 0) d += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
    pen = known(v) && x(i) >= 0;
  });
  return d;
}

// ---- actions: first the dry run, then the question, then a job ----

const DROP_NOTE = "What is dropped never runs. The server first writes it to a file in the folder in which it was started.";
const WHAT = {
  "dead/replay": { verb: "Replay", noun: "dead letter", rate: true,
    done: "put back into their lanes", again: true },
  "dead/drop": { verb: "Drop", noun: "dead letter", grave: DROP_NOTE },
  "lanes/pause": { verb: "Pause", noun: "lane" },
  "lanes/resume": { verb: "Resume", noun: "lane" },
  "lanes/drop": { verb: "Drop the waiting messages of", noun: "lane", unit: "message",
    grave: DROP_NOTE },
  "lanes/replay": { verb: "Run again", noun: "message", rate: true },
};

const sampleText = (s) =>
  (typeof s === "string" ? s : [s.name, s.result].filter(Boolean).join(": "));

function sampleList(dry) {
  const sample = (dry.sample || []).map((s) => h("li", null, sampleText(s)));
  return sample.length > 0
    && h("details", { open: sample.length <= 5 }, h("summary", null, `The first ${sample.length}`),
    h("ul", null, sample));
}

function confirmForm(what, dry, close) {
  const rate = what.rate && h("input",
    { id: "rate", type: "number", min: "0", max: "100000", step: "any", value: "5" });
  const much = `${dry.complete === false ? "at least " : ""}${plural(dry.count, what.unit || what.noun)}`;
  const submit = (event) => {
    event.preventDefault();
    close({ rate_per_s: rate && Number(rate.value) > 0 ? Number(rate.value) : undefined });
  };
  return h("form", { class: "stack", onsubmit: submit },
    h("p", { id: "dry-run" }, h("strong", null, `The dry run found ${much}.`),
      dry.complete === false && " It ended before it had looked at everything.",
      dry.left_out > 0 && ` ${count(dry.left_out)} are left out: already as wanted, or finished meanwhile.`),
    what.again && dry.left_out > 0 && button("Include those replayed or edited before",
      () => close({ again: true })),
    sampleList(dry),
    what.grave && h("p", { class: "notice" }, what.grave),
    rate && h("label", { for: "rate" }, "At most how many per second (0: no limit)", rate),
    h("div", { class: "bar" },
      h("button", { class: what.grave ? "grave" : "main", disabled: !dry.count },
      `${what.verb} ${much}`),
      button("Cancel", () => close(null), SAFE)));
}

/** Asks for the dry run of a bulk action, shows it, and starts the job if that is wanted.
 * selected: a function that returns {ids} or {filter}. */
async function bulk(path, selected) {
  if (!(await mayWrite())) return;
  const what = WHAT[path];
  try {
    const selection = selected();
    const dry = await post(path, { ...selection, execute: false });
    const answer = await dialog(`${what.verb} ${what.noun}s?`,
      (close) => confirmForm(what, dry, close));
    if (!answer) return;
    if (answer.again) return bulk(path, () => ({ ...selection, again: true }));
    const started = await post(path,
      { ...selection, execute: true,
      ...(answer.rate_per_s ? { rate_per_s: answer.rate_per_s } : {}) });
    follow(started.job);
  } catch (e) {
    complain(e);
  }
}

function replayForm(close) {
  const from = h("input",
    { id: "replay-from", value: "1h", required: true, autocomplete: "off", spellcheck: "false" });
  const to = h("input", { id: "replay-to", placeholder: "now", autocomplete: "off",
    spellcheck: "false" });
  const again = h("input", { type: "checkbox", id: "again", checked: true });
  const submit = (event) => {
    event.preventDefault();
    close({ from: from.value.trim(), to: to.value.trim(), again: again.checked });
  };
  return h("form", { class: "stack", onsubmit: submit },
    h("p", null, "Messages of these keys are read again from Kafka and run once more, behind what waits. A dry run says first which."),
    h("label", { for: "replay-from" }, "From (1h is an hour ago; or 2026-11-21T12:00:00Z)", from),
    h("label", { for: "replay-to" }, "To (empty: now)", to),
    h("label", { for: "again", class: "bar" }, again, "Also messages that are done already"),
    h("div", { class: "bar" }, h("button", { class: "main" }, "Dry run"),
      button("Cancel", () => close(null))));
}

/** Reads messages again from Kafka and runs them. The dry run is a job, too, because it may take
 * long. selected: a function that returns {ids} or {filter}. */
async function replayLanes(selected) {
  if (!(await mayWrite())) return;
  try {
    const selection = selected();
    const { older_than, attempts, ...filter } = selection.filter || {};
    if (older_than || attempts)
      throw new ApiError(400,
      "Messages in Kafka have no age in a lane and no attempts: clear these filters, or select lanes.");
    const when = await dialog("Run messages again from Kafka?", replayForm);
    if (!when) return;
    const body = { ...selection,
      filter: { ...filter, from: when.from, ...(when.to ? { to: when.to } : {}) },
      again: when.again };
    const dry = await follow((await post("lanes/replay", { ...body, execute: false })).job);
    if (!dry || dry.state !== "done") return;
    const answer = await dialog("Run messages again from Kafka?",
      (close) => confirmForm(WHAT["lanes/replay"], { ...dry, count: dry.done }, close));
    if (answer) follow((await post("lanes/replay", { ...body, execute: true, ...answer })).job);
  } catch (e) {
    complain(e);
  }
}

/** Shows a job in a message until it ends, then shows the view anew. Resolves with the job, or
 * undefined if the server no longer tells of it. */
async function follow(id) {
  const text = h("span", null, `Job ${id} has started.`);
  const bar = h("progress", { max: 1, value: 0, "aria-label": `Job ${id}` });
  const e = toast([text, h("br"), bar, " ", h("a", { href: `#/jobs/${id}` }, "Show the job")]);
  for (let misses = 0; misses < 10; await sleep(700)) {
    const job = await get(`jobs/${id}`).catch(() => null);
    misses = job ? 0 : misses + 1;
    if (!job) continue;
    bar.max = job.total || job.to_scan || 1;
    bar.value = job.total ? job.done : job.scanned || 0;
    if (job.state === "running") continue;
    setText(text, `Job ${id}: ${jobText(job)}`);
    e.classList.toggle("bad", job.state === "failed");
    if (!e.isConnected) toast(`Job ${id}: ${jobText(job)}`, job.state === "failed");
    refresh();
    return job;
  }
}
const jobText = (job) =>
  `${job.state}, ${count(job.done)}${known(job.total) ? ` of ${count(job.total)}` : ""}${job.failed ? `, ${count(job.failed)} failed` : ""}${job.error ? `: ${job.error}` : ""}`;

async function pause(path, key, verb) {
  if (!(await mayWrite())) return;
  try {
    const answer = await post(`lanes/${path}/${verb}`);
    toast(`${decoded(key)}: ${answer.result}`);
    refresh();
  } catch (e) {
    complain(e);
  }
}

function breakForm(dry, close) {
  const holder = field(dry, "holder").text;
  return [
    h("p", { id: "dry-run" }, holder
      ? [h("strong", null, holder),
        known(dry.since_ms) ? ` has held it for ${duration(serverNow() - dry.since_ms)}`
        : " holds it", known(dry.fence) ? `, with fence ${dry.fence}.` : "."]
      : "Nobody holds it: there is nothing to break."),
    holder && facts([["Runs", runs(dry.running)],
      dry.running && ["Its payload", payloadPlace(dry.running)]]),
    h("p", null, "Breaking ends the lock and raises the fence. The worker is told to end the handler; the message was not finished, so it runs again."),
    h("div", { class: "bar" },
      button("Break the lock", () => close(true), { class: "grave", disabled: !holder }),
      button("Cancel", () => close(false), SAFE)),
  ].filter(Boolean);
}

async function breakLock(path) {
  if (!(await mayWrite())) return;
  try {
    const dry = await post(`lanes/${path}/break`, { execute: false });
    if (!(await dialog(`Break the lock of ${decoded(path)}?`, (close) => breakForm(dry, close))))
      return;
    const answer = await post(`lanes/${path}/break`, { execute: true });
    toast(answer.fence ? `The lock of ${decoded(path)} is broken; the fence is ${answer.fence}.`
      : `${decoded(path)}: ${answer.result}`);
    refresh();
  } catch (e) {
    complain(e);
  }
}

// ---- groups and their limits ----

const EACH = "each group without limits of its own";
const groupText = (g) => (g.fleet ? "the fleet" : field(g, "group").text === ""
  ? "what has no group" : `group ${field(g, "group").text}`);
const groupPath = (g) => (g.fleet ? "fleet" : `groups/${field(g, "group").path}`);

function pauseForm(name, verb, close) {
  const pausing = verb === "pause";
  return [
    h("p", null, pausing
      ? `No message of ${name} starts from now on, in the whole fleet, until somebody resumes it, over restarts and deploys. What runs goes on, and what comes waits in order.`
      : `Messages of ${name} start again, at the limits in force.`),
    h("div", { class: "bar" },
      button(pausing ? "Pause" : "Resume", () => close(true),
        { class: pausing ? "grave" : "main" }),
      button("Cancel", () => close(false), SAFE)),
  ];
}

async function pauseGroup(g, verb) {
  if (!(await mayWrite())) return;
  const name = groupText(g);
  try {
    if (!(await dialog(`${verb === "pause" ? "Pause" : "Resume"} ${name}?`,
      (close) => pauseForm(name, verb, close)))) return;
    const { changed } = await post(`${groupPath(g)}/${verb}`);
    toast(`${name}: ${verb}d${changed ? "" : " already"}`);
    refresh();
  } catch (e) {
    complain(e);
  }
}

/** What of the limits is to be changed: a number, or null to lift one. A burst follows the rate
 * unless it is given. */
function changedLimits(inputs, limits) {
  const now = (name) => (inputs[name].value === "" ? null : Number(inputs[name].value));
  const body = {};
  for (const name of ["running", "per_second"])
    if (now(name) !== limits[name]) body[name] = now(name);
  if (now("burst") !== null && now("burst") !== limits.burst) body.burst = now("burst");
  return body;
}

function limitsForm(name, limits, close) {
  const inputs = {};
  const input = (id, text) => {
    inputs[id] = h("input", { id: `limit-${id}`, type: "number", min: "1", max: "1000000",
      step: "1", value: limits[id] ?? "" });
    return h("label", { for: `limit-${id}` }, text, inputs[id]);
  };
  const submit = (event) => {
    event.preventDefault();
    close(changedLimits(inputs, limits));
  };
  return h("form", { class: "stack", onsubmit: submit },
    h("p", null, `The limits of ${name} change at once, in the whole fleet. What runs goes on. They last until the file changes them, or somebody else does.`),
    input("running", "Messages in handlers at once, at most (empty: no limit)"),
    input("per_second", "Messages that start in a second, at most (empty: no limit)"),
    input("burst", "Burst after a pause (empty: a tenth of that)"),
    h("div", { class: "bar" }, h("button", { class: "main" }, "Set the limits"),
      button("Cancel", () => close(null))));
}

/** `path` names whose limits they are. */
async function setLimits(name, path, limits) {
  if (!(await mayWrite())) return;
  try {
    const body = await dialog(`Limits of ${name}`, (close) => limitsForm(name, limits, close));
    if (!body || !Object.keys(body).length) return;
    const answer = await post(`${path}/set`, body);
    toast(`${name}: ${limitsText(answer.limits)}`);
    refresh();
  } catch (e) {
    complain(e);
  }
}

const limitsText = (l) => [known(l.running) && `at most ${count(l.running)} at once`,
  known(l.per_second) && `at most ${count(l.per_second)} per second, burst ${count(l.burst)}`]
  .filter(Boolean).join(", ") || "no limits";

const EXPORT_MAX = 64 << 20; // bytes that the browser has to keep

/** Follows the cursor of an export and offers all lines as a file. The cursor stands in a header,
 * or in the last line. */
async function exportLines(path, filter) {
  const parts = [];
  let size = 0;
  let cursor = "";
  let lines = 0;
  try {
    do {
      const response = await request(`${path}/export${query({ ...filter, cursor })}`,
        { headers: headers() });
      const { text, next } = withoutCursor(await response.text(),
        response.headers.get("Latchwork-Next"));
      parts.push(text);
      size += text.length;
      lines += text.split("\n").length - 1;
      cursor = next;
    } while (cursor && size < EXPORT_MAX);
  } catch (e) {
    return complain(e);
  }
  save(parts, `${path}.jsonl`);
  toast(`${plural(lines, "line")} exported${cursor ? "; there are more: narrow the filter, or use the command export" : ""}.`);
}

function withoutCursor(text, next) {
  const at = text.trimEnd().lastIndexOf("\n") + 1;
  try {
    const last = JSON.parse(text.slice(at));
    if (Object.hasOwn(last, "next") && !last.identity && !last.envelope)
      return { text: text.slice(0, at), next: last.next };
  } catch {
    // the last line is no JSON, so it has no cursor
  }
  return { text, next };
}

function save(parts, name) {
  const url = URL.createObjectURL(new Blob(parts, { type: "application/x-ndjson" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// ---- parts that several views show ----

/** The heading of a view, which says of whom it tells: all supervisors share Redis, and nothing
 * else. */
const heading = (text, scope) => h("h1", null, text, " ", h("small", { class: "soft" }, scope));
const FLEET = "of the fleet";
const HOST = "of this host";

const SUPERVISOR_STATE = { up: "good", silent: "bad", unknown: "warn" };

function supervisorState(s) {
  const text = s.state === "silent" ? `silent for ${duration(s.heard_ms_ago)}`
    : [s.state, s.problem].filter(Boolean).join(": ");
  return state(text, SUPERVISOR_STATE[s.state]);
}

function supervisorLink(s) {
  const name = s.host || field(s, "id").text;
  if (s.this) return h("span", null, h("strong", null, name), " (this one)");
  return s.link ? h("a", { href: s.link, rel: "noopener noreferrer" }, name)
    : h("span", null, name);
}

const supervisorsTable = () => new Table({
  caption: "Supervisors of the fleet", fixed: true, id: (s) => field(s, "id").text,
  empty: "No supervisor has told of itself.",
  columns: [
    { label: "Host", sort: (s) => s.host, cell: supervisorLink },
    { label: "Process", num: true, sort: (s) => s.pid, cell: (s) => (s.pid ? `${s.pid}` : "–") },
    { label: "State", sort: (s) => s.state, cell: supervisorState },
    { label: "Workers ready", num: true, sort: (s) => s.ready,
      cell: (s) => `${count(s.ready)} of ${count(s.workers)}` },
    { label: "Partitions", num: true, sort: (s) => s.partitions,
      cell: (s) => count(s.partitions) },
    { label: "Lag", num: true, sort: (s) => s.lag, cell: (s) => count(s.lag) },
    { label: "Waiting", num: true, sort: (s) => s.waiting, cell: (s) => count(s.waiting) },
    { label: "In handlers", num: true, sort: (s) => s.in_handler,
      cell: (s) => count(s.in_handler) },
    { label: "Finished per second", num: true, sort: (s) => s.per_second,
      cell: (s) => short(s.per_second) },
    { label: "Since", sort: (s) => s.started_ms, cell: (s) => time(s.started_ms) },
    { label: "Version", sort: (s) => s.version, cell: (s) => s.version || "–" },
  ],
});

/** The sums of the fleet in one sentence. They are of those that are up. */
function fleetText(f) {
  if (!f.known) return `The fleet is unknown: ${f.why}.`;
  const s = f.sums;
  const states = ["up", "silent", "unknown"].filter((is) => s[is] > 0)
    .map((is) => `${count(s[is])} ${is}`);
  const more = f.more ? `, and ${count(f.more)} more that are not shown` : "";
  const least = f.complete ? "" : "at least ";
  return `${plural(s.supervisors, "supervisor")}: ${states.join(", ") || "none"}${more}. Those that are up have ${least}${count(s.ready)} of ${plural(s.workers, "worker")} ready and ${plural(s.partitions, "partition")}, lag ${count(s.lag)}, with ${count(s.waiting)} waiting and ${count(s.in_handler)} in handlers; they finish ${short(s.per_second)} messages per second.`;
}

function showFleet(table, text, fleet) {
  setText(text, fleetText(fleet));
  if (fleet.known) table.set(fleet.supervisors);
  else table.unknown(fleet.why);
}

const WORKER_STATE = { ready: "good", starting: "warn", down: "bad" };

const workersTable = () => new Table({
  caption: "Workers of this host", fixed: true, id: (w) => String(w.worker), empty: "No worker.",
  columns: [
    { label: "Worker", num: true, sort: (w) => w.worker, cell: (w) => `${w.worker}` },
    { label: "Process", num: true, sort: (w) => w.pid, cell: (w) => (w.pid ? `${w.pid}` : "–") },
    { label: "State", sort: (w) => w.state,
      cell: (w) => state([w.state, w.kafka].filter(Boolean).join(", "), WORKER_STATE[w.state]) },
    { label: "Last turn", num: true, sort: (w) => w.turned_ms_ago,
      cell: (w) => (known(w.turned_ms_ago) ? turn(w.turned_ms_ago) : "–") },
    { label: "Starts", num: true, sort: (w) => w.starts, cell: (w) => count(w.starts) },
    { label: "In handler", num: true, sort: (w) => w.in_handler, cell: (w) => count(w.in_handler) },
    { label: "Waiting", num: true, sort: (w) => w.waiting, cell: (w) => count(w.waiting) },
    { label: "Done", num: true, sort: (w) => w.counts && w.counts.done,
      cell: (w) => count(w.counts && w.counts.done) },
    { label: "Why", clip: true, cell: (w) => w.why || "" },
  ],
});
const turn = (ms) => (ms < 5000 ? "now"
  : state(`${duration(ms)} ago`, ms < 30000 ? "warn" : "bad"));

const lagOf = (p) => Math.max(0, p.log_end - p.committed);
const partitionsTable = () => new Table({
  caption: "Partitions of this host", fixed: true, id: (p) => `${p.topic}/${p.partition}`,
    empty: "No partition yet.",
  columns: [
    { label: "Topic", sort: (p) => p.topic, cell: (p) => p.topic },
    { label: "Partition", num: true, sort: (p) => p.partition, cell: (p) => `${p.partition}` },
    { label: "Worker", num: true, sort: (p) => p.worker, cell: (p) => `${p.worker}` },
    { label: "Watermark", num: true, sort: (p) => p.watermark, cell: (p) => count(p.watermark) },
    { label: "Committed", num: true, sort: (p) => p.committed, cell: (p) => count(p.committed) },
    { label: "Log end", num: true, sort: (p) => p.log_end, cell: (p) => count(p.log_end) },
    { label: "Lag", num: true, sort: lagOf, 
      cell: (p) => h("span", { title: lagText(p) }, count(lagOf(p))) },
    { label: "Unfinished", num: true, sort: (p) => p.unfinished, cell: (p) => count(p.unfinished) },
    { label: "Waiting", num: true, sort: (p) => p.waiting, cell: (p) => count(p.waiting) },
    { label: "Blocked for", num: true, sort: (p) => p.blocked_ms,
      cell: (p) => (p.blocked_ms < 5000 ? "–"
      : h("a", { href: `#/message/${segment(p.blocked_by)}`,
        title: `${p.blocked_by} holds the commit back` },
      state(duration(p.blocked_ms), p.blocked_ms < 60000 ? "warn" : "bad"))) },
  ],
});

const OUTCOME = { done: "good", retry: "warn", back: "warn", dead: "bad", dropped: "bad",
  skipped: "warn" };
const identityOf = (o) => `${o.topic}/${o.partition}/${o.offset}`;
const messageOf = (o) =>
  (o.outcome === "dead" ? h("a", { href: `#/dead/${segment(identityOf(o))}` }, identityOf(o))
  : identityOf(o));

const outcomesTable = (caption, withKey, empty) => new Table({
  caption, empty, slots: withKey, fixed: withKey,
    id: (o) => `${o.at_ms} ${o.worker} ${identityOf(o)} ${o.attempt} ${o.outcome}`,
  columns: [
    { label: "When", cell: (o) => time(o.at_ms) },
    { label: "Outcome", cell: (o) => state(o.outcome, OUTCOME[o.outcome]) },
    withKey && { label: "Key", clip: true, cell: keyLink },
    { label: "Message", cell: messageOf },
    { label: "Attempt", num: true, cell: (o) => count(o.attempt) },
    { label: "Took", num: true, cell: (o) => micros(o.took_us) },
    { label: "Reason", clip: true, cell: (o) => h("span", null, field(o, "reason").text || "") },
    !withKey && { label: "Worker", num: true, cell: (o) => `${o.worker}` },
    !withKey && { label: "Fence", num: true, cell: (o) => (known(o.fence) ? `${o.fence}` : "–") },
  ].filter(Boolean),
});

const RECORDS_KEPT = 50;
const records = new Map(); // promises of records of Kafka, by identity

/** Asks once for a record of Kafka. */
function record(identity) {
  if (!records.has(identity)) {
    const asked = get(`messages/${segment(identity)}`);
    asked.catch(() => records.delete(identity)); // ask again the next time
    records.set(identity, asked);
    if (records.size > RECORDS_KEPT) records.delete(records.keys().next().value);
  }
  return records.get(identity);
}

const messageLink = (identity) =>
  h("a", { href: `#/message/${segment(identity)}` }, identity);

/** The message that runs: identity, attempt, since when. */
function runs(running) {
  return running
    ? h("span", null, messageLink(running.identity), `, attempt ${count(running.attempt)}, for ${duration(Math.max(0, serverNow() - running.since_ms))}`)
    : "not known; a message is named when it has run for a third of lock.ttl_ms";
}

/** A place for the payload of a message, which may have to be read from Kafka. */
function payloadPlace(message) {
  const e = h("code", { class: "payload" }, "…");
  (message.payload !== undefined || message.payload_base64 || message.payload_hidden
    ? Promise.resolve(message) : record(message.identity))
    .then((m) => setText(e, payloadText(m)), (problem) => setText(e, `(${problem.message})`));
  return e;
}

const card = (...children) => h("section", { class: "card" }, ...children);
const liveCard = (...children) => h("section", { class: "card live" }, ...children);

// ---- views ----
// A view is {title, build(main, path, query), live(), refresh(), poll_ms}: build fills the page
// once, live() follows the stream, refresh() asks the server again, each poll_ms while the page is
// visible.

function overview() {
  const supervisors = supervisorsTable();
  const fleet = h("p", { id: "fleet" }, "Not known yet.");
  const charts = CHARTS.map((c) => new Chart(c));
  const workers = workersTable();
  const partitions = partitionsTable();
  const hot = new Table({
    caption: "Hot keys on this host", cards: false, slots: true, fixed: true,
      id: (k) => field(k, "key").path || "", empty: "No key stands out.",
    columns: [
      { label: "Key", clip: true, cell: keyLink },
      { label: "Last minute", num: true, cell: (k) => count(k.outcomes) },
      { label: "Waiting", num: true, cell: (k) => count(k.waiting) },
    ],
  });
  const failures = outcomesTable("Recent failures on this host", true, "No failure is kept.");
  const ledger = h("p", { id: "ledger" }, "–");
  const figures = h("p", { id: "figures" }, "–");
  const lag = h("p", { id: "lag" }, "–");
  return {
    title: "Overview",
    build(main) {
      hot.element.classList.add("fixed");
      failures.element.classList.add("fixed");
      main.append(h("h1", null, "Overview"), liveCard(h("h2", null, "Fleet"), fleet,
        supervisors.element),
        h("h2", null, "This host, last 15 minutes"),
        h("div", { class: "charts" }, charts.map((c) => c.element)),
        liveCard(h("h2", null, "Ledger of this host"), ledger, lag, figures),
        h("div", { class: "pair uneven" }, liveCard(failures.element), liveCard(hot.element)),
        liveCard(workers.element), liveCard(partitions.element));
    },
    live() {
      charts.forEach((c) => c.draw());
      const now = live.now;
      if (!now) return;
      showFleet(supervisors, fleet, now.fleet);
      workers.set(now.workers || []);
      partitions.set(now.partitions || []);
      hot.set(now.hot || []);
      failures.set(now.failures || []);
      setText(ledger, ledgerText(now.ledger || {}));
      setText(lag, lagText(now.stats || {}));
      setText(figures, figuresText(now.stats || {}));
    },
  };
}

function ledgerText(l) {
  const ends = [["done", l.done], ["dead", l.dead], ["dropped", l.dropped],
    ["skipped", l.skipped]].map(([name, n]) => `${count(n)} ${name}`);
  return `${count(l.received)} received: ${ends.join(", ")}; ${count(l.unfinished)} unfinished, of them ${count(l.waiting)} waiting and ${count(l.in_handler)} in handlers.`;
}

/** What the lag is made of. `p` is a partition, or the sums of all. */
function lagText(p) {
  const running = Math.max(0, p.unfinished - p.waiting);
  return `Lag ${count(p.lag ?? lagOf(p))}: ${count(p.unread)} not yet read, ${count(p.waiting)} waiting, ${count(running)} in handlers or about to be, ${count(p.behind)} done but behind an unfinished one.`;
}

function figuresText(s) {
  const shards = s.shards || [];
  const sum = (name) => shards.reduce((n, one) => n + Math.max(0, one[name] || 0), 0);
  const arrived = shards.map((one) => one.oldest_ms).filter((ms) =>
    ms > 0); // when the oldest message of each shard came
  const down = shards.filter((one) => !one.up).map((one) => one.shard);
  const workers = `${count(s.ready)} of ${plural(s.workers, "worker")} ready, ${plural(s.partitions, "partition")}.`;
  const who = shards.length > 1 ? `shard ${down.join(", ")} does` : "it does";
  if (down.length)
    return `${workers} Redis, for the fleet: waiting and paused lanes are unknown while ${who} not answer.`;
  const oldest = arrived.length
    ? `, the oldest for ${duration(Math.max(0, serverNow() - Math.min(...arrived)))}` : "";
  const lanes = `${plural(sum("lanes"), "lane")} with waiting messages${oldest}`;
  return `${workers} Redis, for the fleet: ${lanes}; ${count(sum("paused"))} paused.`;
}

function workersView() {
  const workers = workersTable();
  const partitions = partitionsTable();
  return {
    title: "Workers",
    build: (main) => main.append(heading("Workers", HOST), liveCard(workers.element),
      liveCard(partitions.element)),
    live() {
      if (!live.now) return;
      workers.set(live.now.workers || []);
      partitions.set(live.now.partitions || []);
    },
  };
}

// -- a key --

const MESSAGE_COLUMNS = [
  { label: "Message", cell: (m) => m.identity || "(unreadable)" },
  { label: "Age", num: true, sort: (m) => m.age_ms,
    cell: (m) => duration(known(m.age_ms) ? m.age_ms : serverNow() - m.first_ms) },
  { label: "Attempts", num: true, sort: (m) => m.attempts, cell: (m) => count(m.attempts) },
  { label: "Due", num: true,
    cell: (m) => (m.due_ms ? `in ${duration(Math.max(0, m.due_ms - serverNow()))}` : "–") },
  { label: "Payload", clip: true, cell: (m) => h("code", null, payloadText(m)) },
];

function payloadText(m) {
  if (m.payload_hidden) return "(hidden, as http.payloads says)";
  const p = field(m, "payload");
  return p.text === null ? (m.payload === null ? "(null)" : "(not shown)") : p.text;
}

/** Who holds a key, and which message runs. `place` shows the payload of that message. */
function holderFacts(k, place) {
  const lane = k.lane || {};
  const held = k.holder;
  if (!held) return facts([["Holder",
    lane.backoff ? `nobody; a failed message waits ${duration((lane.until_ms || 0) - serverNow())} more` : "nobody"], waitingFact(k), whyFact(k), pausedFact(k)]);
  const begun = held.since_ms ?? lane.since_ms;
  return facts([
    ["Runs", runs(held.running)],
    held.running && ["Its payload", place],
    ["Holder", h("strong", null, field(held, "worker").text || "–")],
    ["Host, process", [held.host, held.pid].filter(Boolean).join(", ") || "–"],
    ["Since", known(begun) ? h("span", null, `${dateTime(begun)}, ${since(begun)}`) : "–"],
    ["Lease", known(held.lease_left_ms)
      ? `ends in ${duration(Math.max(0, held.lease_left_ms))} unless it is renewed` : "–"],
    ["Fence", `${held.fence}`],
    waitingFact(k),
    pausedFact(k),
  ]);
}

function waitingFact(k) {
  const oldest = k.waiting && k.lane && known(k.lane.age_ms)
    ? `, the oldest for ${duration(k.lane.age_ms)}` : "";
  return ["Waiting", `${plural(Math.max(0, k.waiting), "message")}${oldest}`];
}

/** Why nothing of the key runs, in the words of the server. */
function whyFact(k) {
  return k.why && k.why.reason !== "paused" && ["Waits because", k.why.text];
}

function pausedFact(k) {
  const p = k.paused;
  if (!p) return ["Paused", "no"];
  const by = typeof p === "object"
    ? [p.by && `by ${p.by}`, p.at_ms && since(p.at_ms)].filter(Boolean).join(", ") : "";
  return ["Paused", state(`yes${by ? `, ${by}` : ""}: nothing of this key runs until it is resumed`,
    "warn")];
}

function keyView() {
  let run = null; // the message that runs, and the place of its payload
  const placeOf = (k) => {
    const { identity } = (k.holder && k.holder.running) || {};
    if (identity && (!run || run.identity !== identity))
      run = { identity, place: payloadPlace(
        (k.messages || []).find((m) => m.identity === identity) || { identity }) };
    return run && run.place;
  };
  const holder = h("div", { id: "holder" });
  const note = h("p", { class: "soft", id: "outcomes-note" });
  const more = h("p", { class: "soft" });
  const waiting = new Table({ caption: "Waiting messages, the next one first",
    columns: MESSAGE_COLUMNS, id: (m) => `${m.identity}`, empty: "Nothing waits." });
  const outcomes = outcomesTable("Last outcomes on this host", false,
    "No outcome of this key is kept.");
  const dead = new Table({ caption: "Dead letters of this key", columns: deadColumns(false),
    id: (m) => m.id, empty: "None in Redis." });
  const elsewhere = h("p", { class: "soft", hidden: true });
  let path = "";
  const act = (verb) => () => pause(path, path, verb);
  const ofKey = () => ({ filter: { key: [bodyKey(path)] } });
  const seen = h("p", { class: "notice", id: "seen", hidden: true });
  return {
    title: "Key",
    poll_ms: 2000,
    build(main, [, p]) {
      path = p || "";
      elsewhere.append("New dead letters go to a topic: ",
        h("a", { href: `#/dead?key=${path}` }, "look there for this key"));
      main.append(h("h1", null, "Key ", h("span", { class: "mono" }, decoded(path))),
        h("div", { class: "bar", role: "group", "aria-label": "Actions on this key" },
          button("Pause", act("pause")), button("Resume", act("resume")),
            button("Break the lock…", () => breakLock(path), { class: "grave" }),
          button("Replay its dead letters…", () => bulk("dead/replay", ofKey)),
          button("Run messages again…", () => replayLanes(ofKey)),
            h("span", { class: "space" }),
          h("a", { href: `#/find/${path}` }, "Keys that contain this text"),
          h("a", { href: `#/audit?find=${path}` }, "Audit of this key")), seen,
        h("div", { class: "pair" }, card(h("h2", null, "Who holds it"), holder),
          card(dead.element, elsewhere)),
        card(waiting.element, more), card(outcomes.element, note));
    },
    unknown: () => holder.replaceChildren(facts(["Holder", "Waiting", "Paused"].map((name) =>
      [name, "unknown"]))),
    async refresh(signal) {
      // this host keeps the outcomes itself, so they are known while Redis does not answer
      const o = await get(`outcomes?key=${path}&limit=50`, signal);
      outcomes.set(o.outcomes);
      setText(note, `${o.since_ms ? `Kept since ${dateTime(o.since_ms)}. ` : ""}${o.complete === false ? "Older ones are gone. " : ""}${o.note || ""}`);
      const k = await get(`keys/${path}`, signal);
      holder.replaceChildren(holderFacts(k, placeOf(k)));
      waiting.set(k.messages || []);
      outcomes.say(k.waiting > 0
        ? "None: of what waits nothing has run yet, or not on this host, and what ended before is no longer kept."
        : "No outcome of this key is kept.");
      dead.set(k.dead || []);
      elsewhere.hidden = !session.dead_topic;
      seen.hidden = Boolean(k.lane || k.dead.length || o.outcomes.length || !k.dead_complete);
      if (!seen.hidden) seen.replaceChildren(
        "Nothing was ever seen of this key, as far as Redis and this host remember: no lock, no waiting message, no dead letter, no outcome. ",
        h("a", { href: `#/find/${path}` }, "Keys that contain this text"),
        ...(IDENTITY.test(decoded(path)) ? [" · Message ", messageLink(decoded(path))] : []));
      setText(more, k.waiting > (k.messages || []).length
        ? `${count(k.waiting)} wait; the first ${count(k.messages.length)} are shown.` : "");
    },
  };
}

// -- keys that contain a text --

const IDENTITY = /^[\w.-]+\/\d+\/\d+(#\d+)?$/;
const FIND_MS = 15000; // then the search rests until somebody wants it to go on
const FIND_KEYS = 200;
const LOOKED = 5000; // lanes or dead letters that the server looks at for one page
const totalOf = (name) => (live.now ? live.now.point[name] : null);
const PLACES = [
  { name: "lanes", what: "lanes", total: () => totalOf("lanes"),
    found: (l) => `${plural(l.waiting, "message")} waiting${l.paused ? ", paused" : ""}` },
  { name: "dead", what: "dead letters", total: () => totalOf("dead_letters"),
    found: (m) => `dead letter ${m.identity || m.id}` },
  { name: "locks", what: "locks", total: () => null, found: () => "held now" },
  { name: "outcomes", what: "last outcomes of this host", total: () => null,
    found: (o) => `${o.outcome} ${since(o.at_ms)}` },
];

/** Looks through all places for keys that contain a text, a page after the other, and says how far
 * it is. */
class Search {
  constructor(text, show) {
    Object.assign(this, { match: `*${pattern(text)}`, show, place: 0, cursor: null, pages: 0,
      found: new Map(), ended: false });
  }

  add(row, place) {
    const key = field(row, "key");
    if (key.path === null) return;
    const known = this.found.get(key.path) || { row, where: [] };
    if (!known.where.some(([name]) => name === place.name))
      known.where.push([place.name, place.found(row)]);
    this.found.set(key.path, known);
  }

  async go(signal) {
    const until = Date.now() + FIND_MS;
    const most = this.found.size + FIND_KEYS;
    while (this.place < PLACES.length && Date.now() < until && this.found.size < most) {
      const place = PLACES[this.place];
      this.show(this);
      const page = await get(`${place.name}${query({ match: this.match, limit: 500,
        cursor: this.cursor })}`, signal);
      page[place.name].forEach((row) => this.add(row, place));
      this.cursor = page.next || null;
      this.pages = this.cursor ? this.pages + 1 : 0;
      if (!this.cursor) this.place++;
    }
    this.ended = this.place === PLACES.length;
    this.show(this);
  }

  /** How far the search is, from 0 to 1, as far as the sizes are known. */
  share() {
    const place = PLACES[this.place];
    const total = place && place.total();
    const part = place && total ? Math.min(0.95, (this.pages * LOOKED) / total) : 0;
    return (this.place + part) / PLACES.length;
  }
}

function findView() {
  const bar = h("progress", { max: 1, value: 0, id: "found", "aria-label": "Search" });
  const said = h("p", { role: "status", id: "found-text" }, "…");
  const table = new Table({
    caption: "Keys", id: (f) => field(f.row, "key").path, empty: "No key was found.",
    columns: [
      { label: "Key", clip: true, sort: (f) => field(f.row, "key").text,
        cell: (f) => keyLink(f.row) },
      { label: "Where", clip: true,
        cell: (f) => h("span", null, f.where.map(([, text]) => text).join("; ")) },
    ],
  });
  let search;
  const show = (s) => {
    bar.value = s.share();
    if (s.found.size || s.ended) table.set([...s.found.values()]);
    const place = PLACES[s.place];
    const n = plural(s.found.size, "key");
    const looked = place && place.total() ? `: about ${count(Math.min(s.pages * LOOKED, place.total()))} of ${count(place.total())}` : "";
    setText(said, s.ended ? `${n} found. Lanes, dead letters, locks and the last outcomes of this host were looked through; other keys leave no trace.`
      : `${n} found so far; looking through ${place.what}${looked}`);
  };
  const more = button("Go on", () => refresh());
  return {
    title: "Find",
    build(main, [, p]) {
      const text = decoded(p || "");
      search = new Search(text, show);
      main.append(h("h1", null, "Keys that contain ", h("span", { class: "mono" }, text)),
        h("div", { class: "bar" }, bar, more), said, card(table.element));
    },
    async refresh(signal) {
      more.disabled = true;
      await search.go(signal).finally(() => (more.disabled = search.ended));
    },
  };
}

// -- a message --

/** Where a message stands, as its key tells. */
function standing(id, k, outcomes) {
  const running = k.holder && k.holder.running;
  if (running && running.identity === id)
    return h("span", null, "It runs: ", runs(running), `, on ${field(k.holder, "worker").text}`);
  const at = (k.messages || []).findIndex((m) => m.identity === id);
  if (at >= 0) return `It waits in its key's lane, number ${at + 1} of ${count(k.waiting)}`;
  const letter = (k.dead || []).find((m) => m.identity === id);
  if (letter) return h("span", null, "It is a ", h("a",
    { href: `#/dead/${segment(letter.id)}` }, "dead letter"));
  const last = outcomes.find((o) => identityOf(o) === id);
  if (last) return h("span", null, `Its last outcome is ${last.outcome}, `, time(last.at_ms));
  return "It does not wait in Redis, and no outcome of it is kept here: it is in a worker's memory, was finished, or was not read yet";
}

function messageView() {
  const about = h("div", { id: "about" });
  let id = "";
  let m = null;
  return {
    title: "Message",
    poll_ms: 2000,
    build(main, [, p]) {
      id = decoded(p || "");
      main.append(h("h1", null, "Message ", h("span", { class: "mono" }, id)),
        h("div", { class: "pair" }, card(h("h2", null, "What it is"), about),
          card(h("h2", null, "Payload"),
          h("pre", { id: "pretty", tabindex: "0", "aria-label": "Payload" }, "…"))));
    },
    unknown: () => m || about.replaceChildren("Unknown."),
    async refresh(signal) {
      if (!m) {
        m = await record(id);
        setText($("pretty"), pretty(payloadText(m)));
      }
      const key = field(m, "key");
      const rows = (k, outcomes) => about.replaceChildren(facts([
        ["Key", keyLink(m)],
        ["State", k ? standing(id, k, outcomes) : "It has no key"],
        ["Record's time", dateTime(m.ts)],
        ...headerRows(m).map(([name, value]) => [`Header ${name}`, h("code", null, value)]),
      ]));
      if (key.path === null) return rows(null);
      const o = await get(`outcomes?key=${key.path}&limit=50`, signal);
      rows(await get(`keys/${key.path}`, signal), o.outcomes);
    },
  };
}

// -- lists with filters --

/** The fields of a filter. Its values stand in the address, so that a list can be linked to. */
function filterForm(fields, values, path) {
  const inputs = fields.map(([name, label, hint, choices]) => {
    const id = `filter-${name}`;
    const input = choices
      ? h("select", { id, name },
        choices.map(([v, text]) =>
        h("option", { value: v, selected: (values.get(name) || "") === v }, text)))
      : h("input", { id, name, value: values.get(name) || "", placeholder: hint,
        autocomplete: "off", spellcheck: "false" });
    return h("label", { for: id }, label, input);
  });
  const submit = (event) => {
    event.preventDefault();
    const q = query(Object.fromEntries(new FormData(event.target)));
    if (location.hash === `#/${path}${q}`) refresh();
    else location.hash = `#/${path}${q}`;
  };
  return h("form", { class: "filters", role: "search", "aria-label": "Filter", onsubmit: submit },
    inputs,
    h("div", { class: "bar" }, h("button", { class: "main" }, "Filter"),
      h("a", { href: `#/${path}` }, "Clear")));
}

const cleaned = (values, leave) =>
  Object.fromEntries([...values].filter(([name, value]) => value !== "" && !leave.includes(name)));

/** The filter of a query as a request's body wants it. The server wants a word for "all", so that
 * nobody means it by accident. */
function bodyFilter(values) {
  const f = cleaned(values, ["cursor", "order", "limit"]);
  if (!Object.keys(f).length) return { match: "*" };
  for (const name of ["partition", "attempts"]) if (f[name] !== undefined) f[name] =
    Number(f[name]);
  for (const name of ["key", "where"]) if (f[name] !== undefined) f[name] = [f[name]];
  return f;
}

/** What lanes and dead letters have in common: filter, count, table, select, pages, actions. */
function listView({ title, path, fields, table, actions, idOf, top, after }) {
  const summary = h("p", { id: "count", role: "status" }, "…");
  const chosen = h("span", { id: "chosen" }, "Nothing selected");
  const scope = h("input", { type: "checkbox", id: "all-that-match" });
  const bar = h("div", { class: "bar", role: "group",
    "aria-label": "Actions on what is selected" });
  const pages = h("div", { class: "bar" });
  let values;
  let total = null;
  const say = () => setText(chosen,
    scope.checked ? `${total === null ? "All" : total} selected` : table.selected.size
    ? `${count(table.selected.size)} selected` : "Nothing selected");
  const selected = () =>
    (scope.checked ? { filter: bodyFilter(values) } : { ids: table.chosen().map(idOf) });
  const start = (action) => () => {
    if (!scope.checked && !table.selected.size)
      return toast("Select some rows first, or all that match.", true);
    return action === "lanes/replay" ? replayLanes(selected) : bulk(action, selected);
  };
  table.onselect = say;
  scope.addEventListener("change", say);
  return {
    title,
    build(main, _, q) {
      values = q;
      bar.append(h("label", { for: "all-that-match", class: "bar" }, scope, "All that match"),
        chosen, h("span", { class: "space" }),
        ...actions.map(([text, action, look]) => button(text, start(action), { class: look })),
          button("Export JSONL", () => exportLines(path, bodyFilterQuery(values))));
      main.append(heading(title, FLEET), filterForm(fields, values, path), summary, top || "", bar,
        card(table.element, pages));
    },
    unknown() {
      total = null;
      setText(summary, "How many match is unknown.");
      say();
    },
    async refresh(signal) {
      const page = await get(`${path}${query({ ...cleaned(values, []), limit: PAGE_ROWS })}`,
        signal);
      table.set(page[path]);
      if (after) after(page[path], values);
      pages.replaceChildren(...pageLinks(path, values, page.next));
      setText(summary, `${count(page[path].length)} on this page.`);
      const n = await get(`${path}/count${query(cleaned(values, ["cursor", "order"]))}`,
        signal).catch(() => null);
      if (!n) return;
      total = `${n.complete === false ? "at least " : ""}${count(n.count)}`;
      setText(summary, `${total} match; ${count(page[path].length)} on this page.`);
      say();
    },
  };
}
const bodyFilterQuery = (values) => cleaned(values, ["cursor", "order", "limit"]);

function pageLinks(path, values, next) {
  const links = [];
  if (values.get("cursor"))
    links.push(h("a", { href: `#/${path}${query(cleaned(values, ["cursor"]))}` }, "First page"));
  if (next) links.push(h("a",
    { href: `#/${path}${query({ ...cleaned(values, []), cursor: next })}` }, "Next page"));
  return links;
}

const laneState = (l) => {
  const holder = field(l, "holder").text;
  const text = holder || (l.backoff ? "backoff" : l.paused ? "" : "nobody");
  return h("span", null, text, l.paused && [text && ", ", state("paused", "warn")],
    l.running && [" runs ", runs(l.running)]);
};

const lanesView = () => listView({
  title: "Lanes", path: "lanes", idOf: (l) => bodyKey(field(l, "key").path),
  fields: [["key", "Key", "customer-7"], ["match", "Key pattern", "customer-*"], ["topic", "Topic"],
    ["partition", "Partition"], ["older_than", "Oldest waits longer than", "15m"],
    ["attempts", "Attempts, at least"]],
  actions: [["Pause…", "lanes/pause"], ["Resume…", "lanes/resume"],
    ["Run messages again…", "lanes/replay"], ["Drop messages…", "lanes/drop", "grave"]],
  table: new Table({
    caption: "Lanes with waiting messages, and paused lanes", id: (l) => field(l, "key").path,
      select: (l) => field(l, "key").text, empty: "No lane matches. Most keys never wait.",
    columns: [
      { label: "Key", clip: true, sort: (l) => field(l, "key").text, cell: keyLink },
      { label: "Waiting", num: true, sort: (l) => l.waiting, cell: (l) => count(l.waiting) },
      { label: "Age", num: true, sort: (l) => l.age_ms, cell: (l) => duration(l.age_ms) },
      { label: "Attempts", num: true, sort: (l) => l.attempts, cell: (l) => count(l.attempts) },
      { label: "Oldest", sort: (l) => l.oldest, cell: (l) => l.oldest || "–" },
      { label: "Holder", clip: true, sort: (l) => field(l, "holder").text || "", cell: laneState },
    ],
  }),
});

// An edit gives a letter another id. So its address has its identity, too.
const deadPath = (id, identity) =>
  `#/dead/${segment(id)}${identity ? query({ message: identity }) : ""}`;
const deadLink = (m) => h("a", { href: deadPath(m.id, m.identity) }, m.identity || m.id);
function deadColumns(withKey) {
  return [
    { label: "Died", sort: (m) => m.died_ms, cell: (m) => time(m.died_ms) },
    withKey && { label: "Key", clip: true, sort: (m) => field(m, "key").text || "", cell: keyLink },
    { label: "Message", line: true, sort: (m) => m.identity || m.id, cell: deadLink },
    { label: "Reason", clip: true, sort: (m) => field(m, "reason").text || "",
      cell: (m) => h("span", null, m.taken_ms && [state("replayed or edited"), " "],
        field(m, "reason").text || "") },
    { label: "Attempts", num: true, sort: (m) => m.attempts, cell: (m) => count(m.attempts) },
    withKey && { label: "Payload", clip: true, cell: (m) => h("code", null, payloadText(m)) },
  ].filter(Boolean);
}

/** Groups the reasons of the page by what stands before the first colon, because handlers begin a
 * reason with a code. */
function groups(rows) {
  const by = new Map();
  for (const row of rows) {
    const code = (field(row, "reason").text || "").split(":")[0].slice(0, 60);
    by.set(code, (by.get(code) || 0) + 1);
  }
  return [...by].sort((a, b) => b[1] - a[1]).slice(0, 12);
}

// In a pattern of the filter, these characters have a meaning of their own.
const pattern = (text) => `${text.replace(/[\\*?[\]]/g, "\\$&")}*`;

const inTopic = (m) => m.id.includes("/"); // its id is the place of its record

function aboutTopic(element) {
  element.hidden = !session.dead_topic;
  setText(element,
    `Dead letters go to the topic ${session.dead_topic}, and stay there when they are replayed. Without a date, a search or an action on all looks at its newest 10,000 records.`);
}

function deadView() {
  const reasons = h("ul", { class: "reasons", "aria-label": "Reasons on this page" });
  const about = h("p", { id: "dead-topic", class: "soft", hidden: true });
  return listView({
    title: "Dead letters", path: "dead", idOf: (m) => m.id,
    top: h("div", null, about, reasons),
    fields: [["key", "Key", "customer-7"], ["match", "Key pattern", "customer-*"],
      ["topic", "Topic"], ["partition", "Partition"], ["reason", "Reason pattern", "NO_RATE*"],
      ["error", "Text in the reason"],
      ["from", "Died after", "1h, or a date"], ["to", "Died before", "10m, or a date"],
        ["where", "Payload field", "/amount>100"],
        ["order", "Order", "",
          [["", "usual"], ["oldest", "oldest first"], ["newest", "newest first"]]]],
    actions: [["Replay…", "dead/replay", "main"], ["Drop…", "dead/drop", "grave"]],
    table: new Table({ caption: "Dead letters", columns: deadColumns(true), id: (m) => m.id,
      select: (m) => m.identity || m.id, empty: "No dead letter matches." }),
    after: (rows, values) => (aboutTopic(about), reasons.replaceChildren(...groups(rows).map(([code, n]) =>
      h("li", null, h("a", { class: "card",
        href: `#/dead${query({ ...cleaned(values, ["cursor"]), reason: pattern(code) })}` },
        `${count(n)} × ${code || "(no reason)"}`))))),
  });
}

// -- one dead letter --

function parsed(text) {
  try {
    return { ok: true, value: JSON.parse(text) };
  } catch (e) {
    return { ok: false, why: e.message };
  }
}
const pretty = (text) => {
  const p = parsed(text);
  return p.ok ? JSON.stringify(p.value, null, 2) : text;
};

const DIFF_LINES = 600;

/** The lines of both texts with what was taken away and what was added, by the longest common
 * subsequence. */
function diffLines(a, b) {
  const x = a.split("\n");
  const y = b.split("\n");
  if (x.length > DIFF_LINES || y.length > DIFF_LINES)
    return [...x.map((t) => ["del", t]), ...y.map((t) => ["ins", t])];
  const best = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--) best[i][j] = x[i] === y[j] ? best[i + 1][j + 1] + 1
      : Math.max(best[i + 1][j], best[i][j + 1]);
  const out = [];
  for (let i = 0, j = 0; i < x.length || j < y.length; ) {
    if (i < x.length && j < y.length && x[i] === y[j]) out.push(["same", x[i++]]), j++;
    else if (j === y.length
      || (i < x.length && best[i + 1][j] >= best[i][j + 1])) out.push(["del", x[i++]]);
    else out.push(["ins", y[j++]]);
  }
  return out;
}

const diffElement = (a, b) =>
  h("pre", { class: "diff", tabindex: "0", role: "group", "aria-label": "What changes" },
  diffLines(pretty(a), pretty(b)).map(([kind, text]) =>
  kind === "same" ? `  ${text}\n` : h(kind, null, `${kind === "ins" ? "+" : "-"} ${text}`)));

function headerRows(m) {
  const list = m.headers || m.headers_base64 || [];
  const rows = [];
  for (let i = 0; i + 1 < list.length; i += 2)
    rows.push([String(list[i]), list[i + 1] === null ? "(null)" : String(list[i + 1])]);
  return rows;
}

function deadFacts(m) {
  const reason = field(m, "reason").text;
  return facts([
    ["Reason", h("strong", null, reason || "(none)")],
    ["Key", keyLink(m)],
    ["Identity", m.identity || "–"],
    ["Died", h("span", null, `${dateTime(m.died_ms)}, ${since(m.died_ms)}`)],
    m.tried_first_ms && ["First failure", `${dateTime(m.tried_first_ms)}`],
    ["Attempts", count(m.attempts)],
    inTopic(m) && ["Record in the topic", h("code", null, m.id)],
    m.taken_ms && ["Replayed or edited", `${dateTime(m.taken_ms)}, ${since(m.taken_ms)}`],
    m.ts > 0 && ["Record's time", dateTime(m.ts)],
    (m.edited_by || m.edited_by_base64)
      && ["Edited", `by ${field(m, "edited_by").text}, ${dateTime(m.edited_ms)}`],
    ...headerRows(m).map(([name, value]) => [`Header ${name}`, h("code", null, value)]),
  ]);
}

/** Why a payload cannot be edited here, or null. */
function notEditable(m, p) {
  if (session.payloads && session.payloads !== "show")
    return `Payloads are not shown in full (http.payloads is "${session.payloads}"), so they cannot be edited here.`;
  if (p.text === null) return "There is no payload to edit.";
  if (m.payload_size) return "This payload is longer than what the page shows; use latchwork dead edit.";
  return null;
}

function editor(m, refreshView) {
  const p = field(m, "payload");
  const before = p.binary ? m.payload_base64 : p.text;
  const no = notEditable(m, p);
  if (no) return h("p", { class: "soft" }, no);
  const wasJson = !p.binary && parsed(before).ok;
  const area = h("textarea",
    { id: "payload", spellcheck: "false", value: before, rows: 8, "aria-describedby": "valid" });
  const valid = h("p", { id: "valid", role: "status" });
  const diff = h("div", { id: "diff" });
  const body = (more) => ({ [p.binary ? "payload_base64" : "payload"]: area.value, ...more,
    ...(m.taken_ms ? { again: true } : {}) });
  const saves = [button("Save", () => save(false)),
    button("Save and replay", () => save(true), { class: "main" })];
  function check() {
    const same = area.value === before;
    const bad = wasJson && !parsed(area.value).ok ? parsed(area.value).why : null;
    setText(valid, same ? "Not changed." : bad ? `This is no JSON: ${bad}` : wasJson ? "Valid JSON."
      : "Changed.");
    valid.className = bad ? "problem" : "soft";
    diff.replaceChildren(...(same || p.binary ? [] : [diffElement(before, area.value)]));
    saves.forEach((b) => (b.disabled = same || Boolean(bad)));
  }
  async function save(replay) {
    if (!(await mayWrite())) return;
    try {
      const dry = await post(`dead/${segment(m.id)}/edit`, body({ execute: false }));
      if (dry.valid === false) throw new ApiError(400, dry.error || "This payload is refused.");
      const sure = await dialog(replay ? "Save this payload and replay it?" : "Save this payload?",
        (close) => [
        m.taken_ms
          ? h("p", { class: "notice" }, "This dead letter was replayed or edited before.") : "",
        inTopic(m) && !replay
          ? h("p", null, "The topic keeps the letter; the edited copy is stored in Redis.") : "",
        p.binary ? "" : diffElement(dry.old ?? before, dry.new ?? area.value),
        h("div", { class: "bar" },
          button(replay ? "Save and replay" : "Save", () => close(true), { class: "main" }),
          button("Cancel", () => close(false), SAFE))]);
      if (!sure) return;
      const answer = await post(`dead/${segment(m.id)}/edit`, body({ execute: true, replay }));
      toast(replay ? "Saved, and put back into its lane." : "Saved.");
      refreshView(answer, replay);
    } catch (e) {
      complain(e);
    }
  }
  area.addEventListener("input", check);
  check();
  return h("div", { class: "stack" },
    h("label", { for: "payload" }, p.binary ? "Payload in base64" : "Payload", area), valid, diff,
    h("div", { class: "bar" }, saves,
      wasJson && button("Format", () => ((area.value = pretty(area.value)), check())),
      button("Undo", () => ((area.value = before), check()))));
}

function deadOneView() {
  const about = h("div");
  const edit = h("div");
  const was = h("div");
  let id = "";
  let shown = null;
  const ids = () => ({ ids: [shown ? shown.id : decoded(id)] });
  const drop = button("Drop…", () => bulk("dead/drop", ids), { class: "grave" });
  let identity = null;
  const saved = (answer, replayed) => {
    if (!inTopic(shown)) id = segment(answer.id); // an edit in Redis gives a new id
    if (replayed) location.hash = "#/dead";
    else refresh();
  };
  const find = async (signal) => {
    try {
      return await get(`dead/${id}`, signal);
    } catch (e) {
      if (e.status !== 404 || !identity) throw e;
      return get(`dead/${segment(identity)}`, signal); // it was edited
    }
  };
  return {
    title: "Dead letter",
    build(main, [, p], q) {
      id = p || "";
      identity = q.get("message");
      main.append(h("h1", null, "Dead letter ", h("span", { class: "mono" }, decoded(id))),
        h("div", { class: "bar", role: "group", "aria-label": "Actions on this dead letter" },
          button("Replay…", () => bulk("dead/replay", ids), { class: "main" }), drop,
          h("a", { href: "#/dead" }, "All dead letters")),
        h("div", { class: "pair" }, card(h("h2", null, "Why it died"), about),
          card(h("h2", null, "Payload"),
          h("pre", { id: "pretty", tabindex: "0", "aria-label": "Payload" }))),
        card(h("h2", null, "Edit the payload"), edit), was);
    },
    unknown: () => shown || about.replaceChildren("Unknown."),
    async refresh(signal) {
      shown = await find(signal);
      drop.hidden = inTopic(shown); // a topic's retention deletes it
      if (!identity && shown.identity) {
        identity = shown.identity;
        history.replaceState(null, "", deadPath(decoded(id), identity));
      }
      about.replaceChildren(deadFacts(shown));
      setText($("pretty"), pretty(payloadText(shown)));
      edit.replaceChildren(editor(shown, saved));
      const original = field(shown, "original_payload").text;
      was.replaceChildren(...(original === null ? []
        : [card(h("h2", null, "What was changed"), diffElement(original, payloadText(shown)))]));
    },
  };
}

// -- locks --

function locksView() {
  const pages = h("div", { class: "bar" });
  let values;
  const table = new Table({
    caption: "Locks that are held now", id: (l) => field(l, "key").path,
      empty: "No lock is held among the names that were looked at.",
    columns: [
      { label: "Key", clip: true, sort: (l) => field(l, "key").text, cell: keyLink },
      { label: "Holder", clip: true, sort: (l) => field(l.holder, "worker").text || "",
        cell: (l) => h("span", null, field(l.holder, "worker").text || "–") },
      { label: "Host, process", sort: (l) => l.holder.host || "",
        cell: (l) => [l.holder.host, l.holder.pid].filter(Boolean).join(", ") || "–" },
      { label: "Held since", sort: (l) => l.holder.since_ms, cell: (l) => time(l.holder.since_ms) },
      { label: "Runs", clip: true, sort: (l) => (l.holder.running || {}).since_ms,
        cell: (l) => (l.holder.running ? runs(l.holder.running) : "–") },
      { label: "Lease", num: true, sort: (l) => l.holder.lease_left_ms,
        cell: (l) => duration(Math.max(0, l.holder.lease_left_ms)) },
      { label: "Fence", num: true, cell: (l) => `${l.holder.fence}` },
      { label: "Waiting", num: true, sort: (l) => l.waiting, cell: (l) => count(l.waiting) },
      { label: "Break", cell: (l) =>
        button("Break…", () => breakLock(field(l, "key").path),
        { class: "grave", "aria-label": `Break the lock of ${field(l, "key").text}` }) },
    ],
  });
  return {
    title: "Locks",
    build(main, _, q) {
      values = q;
      main.append(heading("Locks", FLEET),
        filterForm([["key", "Key", "customer-7"], ["match", "Key pattern", "customer-*"]], values,
        "locks"),
        h("div", { class: "bar" }, button("Read again", refresh),
          h("span", { class: "soft" },
          "Redis has no list of locks: a page shows what 1.5 seconds of search found.")),
        card(table.element, pages));
    },
    async refresh(signal) {
      const page = await get(`locks${query({ ...cleaned(values, []), limit: PAGE_ROWS })}`, signal);
      table.set(page.locks);
      pages.replaceChildren(...pageLinks("locks", values, page.next));
    },
  };
}

// -- jobs, audit --

async function cancelJob(id) {
  if (!(await mayWrite())) return;
  await post(`jobs/${segment(String(id))}/cancel`).then(() => toast(`Job ${id} was asked to end.`),
    complain);
  refresh();
}

const JOB_STATE = { running: "warn", done: "good", failed: "bad", cancelled: "warn" };

/** What the ledger found: whether the sums agree, and what differs. */
function ledgerFacts(l) {
  const rows = l.wrong || [];
  return [
    facts([
      ["Result", l.ok ? state("Nothing is lost, and nothing is there twice", "good")
        : state(plural(l.differences, "difference"), "bad")],
      ["When", h("span", null, `${dateTime(l.at_ms)}, ${since(l.at_ms)}`)],
      ["Looked at", `${plural(l.partitions.length, "partition")}, ${plural(l.lanes, "lane")} with ${plural(l.waiting, "waiting message")} and ${plural(l.replays, "replay")}, ${plural(l.locks, "lock")}, ${plural(l.dead_letters, "dead letter")}`],
    ]),
    rows.length > 0 && h("ul", null, rows.map((d) => h("li", null, d.text))),
  ];
}

/** What one job did: the rows that it told of, or its error. */
const jobFacts = (j) => [
  facts([
    ["What", `${j.what}${j.dry_run ? " (dry run)" : ""}`],
    ["State", state(j.state, JOB_STATE[j.state])],
    ["Progress", `${count(j.done)}${known(j.total) ? ` of ${count(j.total)}` : ""}, ${count(j.failed)} failed, ${count(j.left_out)} left out; ${count(j.scanned)}${known(j.to_scan) ? ` of ${count(j.to_scan)}` : ""} looked at`],
    ["By", j.by],
    ["Began", dateTime(j.started_ms)],
    ["Ended", known(j.ended_ms)
      ? `${dateTime(j.ended_ms)}, after ${duration(j.ended_ms - j.started_ms)}` : "–"],
    known(j.number) && ["In the audit", `job ${j.number}`],
    j.error && ["Error", h("strong", null, j.error)],
  ]),
  sampleList(j),
];

function jobView() {
  const about = h("div");
  let id = "";
  return {
    title: "Job",
    poll_ms: 1000,
    build(main, [, p]) {
      id = p;
      main.append(h("h1", null, "Job ", h("span", { class: "mono" }, decoded(id))),
        h("div", { class: "bar" },
          button("Cancel the job", () => cancelJob(decoded(id)), { id: "cancel" }),
          h("a", { href: "#/jobs" }, "All jobs")), card(about));
    },
    async refresh(signal) {
      const job = await get(`jobs/${id}`, signal);
      $("cancel").disabled = job.state !== "running";
      const open = about.querySelector("details");
      about.replaceChildren(...jobFacts(job).filter(Boolean));
      if (open && about.querySelector("details")) about.querySelector("details").open = open.open;
    },
  };
}

function jobsView() {
  const ledger = h("div", { id: "ledger-result" }, "Not known yet.");
  const table = new Table({
    caption: "Jobs of this host, newest first", id: (j) => String(j.id),
      empty: "No job has run since the server started. The audit has those of the commands, too.",
    columns: [
      { label: "Job", sort: (j) => `${j.id}`,
        cell: (j) => h("a", { href: `#/jobs/${j.id}` }, `${j.id}`) },
      { label: "In the audit", num: true, cell: (j) => (known(j.number) ? `${j.number}` : "–") },
      { label: "What", clip: true,
        cell: (j) => h("span", null, j.what, j.dry_run ? " (dry run)" : "") },
      { label: "State", sort: (j) => j.state, cell: (j) => state(j.state, JOB_STATE[j.state]) },
      { label: "Progress", cell: (j) =>
        h("span", null, j.state === "running"
        && h("progress", { max: j.total || 1, value: j.done || 0, "aria-label": `Job ${j.id}` }),
        ` ${count(j.done)}${known(j.total) ? ` of ${count(j.total)}` : ""}`) },
      { label: "Failed", num: true, cell: (j) => count(j.failed) },
      { label: "What went wrong", clip: true,
        cell: (j) => h("span", null,
        [j.error, ...(j.sample || []).map(sampleText)].filter(Boolean).join("; ")) },
      { label: "Began", sort: (j) => j.started_ms, cell: (j) => time(j.started_ms) },
      { label: "By", clip: true, cell: (j) => j.by || "" },
      { label: "Cancel", cell: (j) =>
        (j.state === "running" ? button("Cancel", () => cancelJob(j.id)) : "") },
    ],
  });
  return {
    title: "Jobs",
    poll_ms: 1000,
    build: (main) => main.append(heading("Jobs", HOST),
      card(table.element),
      card(h("h2", null, "Ledger"),
        h("div", { class: "bar" }, button("Run the ledger", runLedger),
        h("span", { class: "soft" }, "It compares Kafka and Redis: was anything lost?")), ledger)),
    async refresh(signal) {
      const { jobs } = await get("jobs", signal);
      table.set([...jobs].sort((a, b) => b.started_ms - a.started_ms || 0));
      const last = (await get("ledger", signal)).ledger;
      ledger.replaceChildren(...(last ? ledgerFacts(last).filter(Boolean)
        : ["It has not run since the server started."]));
    },
  };
}

const ofLimit = (text, limit) => (known(limit) ? `${text} of ${count(limit)}` : text);

function groupState(g) {
  if (!g.why) return "";
  const age = serverNow() - (g.paused_ms || g.limited_ms || Infinity);
  const text = `${g.paused_ms ? "paused" : "limited"}${age >= 1000 ? ` for ${duration(age)}` : ""}`;
  return h("span", null, state(text, g.paused_ms ? "bad" : "warn"), ": ", g.why.text);
}

/** Where a limit comes from: the file, or an operator. */
function limitFrom(g) {
  if (!g.from) return "–";
  return g.own_limits ? g.from : `limits.group${g.from === "set" ? ", set" : ""}`;
}

function groupActions(g) {
  const name = groupText(g);
  const verb = g.paused_ms ? "resume" : "pause";
  if (field(g, "group").path === "")
    return h("span", null, "use ", h("code", null, "latchwork group"));
  return h("span", { class: "acts" },
    button("Set…", () => setLimits(name, groupPath(g), g.limits),
      { "aria-label": `Set the limits of ${name}` }),
    button(g.paused_ms ? "Resume…" : "Pause…", () => pauseGroup(g, verb),
      { "aria-label": `${g.paused_ms ? "Resume" : "Pause"} ${name}` }));
}

function groupsView() {
  const each = h("span", { id: "each" }, "Not known yet.");
  const more = h("p", { class: "soft", id: "more-groups" });
  let limits = null; // of each group
  const set = button("Set…", () => limits && setLimits(EACH, "each-group", limits),
    { id: "set-each", "aria-label": `Set the limits of ${EACH}` });
  const table = new Table({
    caption: "The fleet and its groups, those with most waiting lanes first",
    id: (g) => (g.fleet ? "fleet" : field(g, "group").path),
    columns: [
      { label: "Group", clip: true, sort: (g) => groupText(g),
        cell: (g) => h("span", null, g.fleet ? h("strong", null, "The fleet")
          : field(g, "group").text || "(no group)") },
      { label: "State", sort: (g) => g.paused_ms || g.limited_ms || Infinity, cell: groupState },
      { label: "Running", num: true, sort: (g) => g.running,
        cell: (g) => ofLimit(count(g.running), g.limits.running) },
      { label: "Waiting lanes", num: true, sort: (g) => g.waiting,
        cell: (g) => (g.fleet ? "–" : count(g.waiting)) },
      { label: "Starts per second", num: true, sort: (g) => g.starts_per_second,
        cell: (g) => ofLimit(short(g.starts_per_second), g.limits.per_second) },
      { label: "Handler time", num: true, sort: (g) => g.share,
        cell: (g) => h("span", { title: "of the fleet's, in the last minute" },
          known(g.share) ? `${short(Math.round(1000 * g.share) / 10)} %` : "–") },
      { label: "Limits from", sort: limitFrom, cell: limitFrom },
      { label: "Change", cell: groupActions },
    ],
  });
  return {
    title: "Groups",
    poll_ms: 3000,
    build: (main) => main.append(heading("Groups", FLEET),
      h("div", { class: "bar" }, each, set), card(table.element, more)),
    unknown: () => setText(each, "The limits are unknown."),
    async refresh(signal) {
      const all = await get(`groups?limit=${PAGE_ROWS}`, signal);
      limits = all.each.limits;
      table.set(all.groups);
      setText(each, `Each group without limits of its own: ${limitsText(limits)}${all.each.from === "set" ? " (set)" : ""}.`);
      setText(more, all.more || !all.complete
        ? `and ${all.complete ? "" : "at least "}${count(all.more)} more` : "");
    },
  };
}

async function runLedger() {
  if (!(await mayWrite())) return;
  await post("ledger").then((a) => follow(a.job), complain);
}

const DID = { pause: "Paused", resume: "Resumed" };

/** The part of a filter as a text for people. */
function filterWords(w) {
  const like = [["match", "keys like"], ["topic", "topic"], ["to_topic", "to topic"],
    ["reason", "reason like"], ["error", "text in the reason:"], ["from", "from"], ["to", "to"]];
  return [...(w.words || []), ...(w.keys || []).map((k) => `key ${k}`),
    ...(w.where || []).map((text) => `where ${text}`),
    ...like.filter(([name]) => w[name]).map(([name, text]) => `${text} ${w[name]}`),
    w.partition >= 0 && `partition ${w.partition}`,
    w.attempts >= 0 && `at least ${plural(w.attempts, "attempt")}`,
    w.older_ms >= 0 && `older than ${duration(w.older_ms)}`,
    w.again && "also what is done"].filter(Boolean).join(", ");
}

/** What an entry of the audit says of a group, the fleet, or each group. */
function auditGroup(w) {
  const of = w.fleet ? "the fleet" : w.each ? EACH : `group ${(w.words || []).join(" ")}`;
  const set = ["running", "per_second", "burst"].filter((name) => w[name] !== undefined)
    .map((name) => `${name} ${w[name] === null ? "none" : count(w[name])}`);
  return DID[w.verb] ? `${DID[w.verb]} ${of}` : `Set limits of ${of}: ${set.join(", ")}`;
}

/** What an entry of the audit says, as a sentence. */
function auditWhat(e) {
  const w = e.words && typeof e.words === "object" ? e.words : {};
  const key = field(e, "key").text;
  if (key !== null) {
    const was = field(e, "was").text;
    return `${e.event === "lock break" ? "Broke the lock" : e.event} of key ${key}${was ? `, held by ${was}` : ""}${known(e.fence) ? `; the fence is ${e.fence}` : ""}`;
  }
  if (w.noun === "group") return auditGroup(w);
  const filter = filterWords(w);
  if (DID[e.event]) return `${DID[e.event]} ${filter}`;
  const job = [w.noun, w.verb].filter(Boolean).join(" ") || "job";
  const end = e.event === "end" ? e.state || "ended" : e.event === "begin" ? "started" : e.event;
  const of = known(e.taken) ? ` of ${count(e.taken)}` : "";
  const much = known(e.done) ? `, ${count(e.done)}${of}` : "";
  return `${job}${filter ? ` (${filter})` : ""}: ${end}${much}`;
}

function auditView() {
  const find = h("input", { id: "find", type: "search", autocomplete: "off" });
  const pages = h("div", { class: "bar" });
  let rows = null;
  let values;
  const table = new Table({
    caption: "What was done, and by whom",
      id: (e) => e.id || `${e.at_ms} ${e.shard} ${e.event} ${e.job || ""} ${auditWhat(e)}`,
      empty: "No entry.",
    columns: [
      { label: "When", sort: (e) => e.at_ms,
        cell: (e) => h("time", { datetime: new Date(e.at_ms).toISOString() }, dateTime(e.at_ms)) },
      { label: "Who", clip: true, sort: (e) => e.who || "",
        cell: (e) => h("span", null, field(e, "who").text || "") },
      { label: "What", sort: (e) => e.event, cell: (e) => `${e.event || ""}` },
      { label: "Job", num: true, sort: (e) => e.job,
        cell: (e) => (known(e.job) ? `${e.job}` : "–") },
      { label: "Details", clip: true,
        cell: (e) => h("span", { title: auditWhat(e) }, auditWhat(e)) },
    ],
  });
  const show = () => rows && table.set(rows.filter((e) =>
    `${auditWhat(e)} ${JSON.stringify(e)}`.toLowerCase().includes(find.value.toLowerCase())));
  return {
    title: "Audit",
    build(main, _, q) {
      values = q;
      find.value = decoded(q.get("find") || "");
      find.addEventListener("input", show);
      main.append(heading("Audit", FLEET),
        h("div", { class: "filters" },
        h("label", { for: "find" }, "Find in this page of the audit", find)),
        card(table.element, pages));
    },
    async refresh(signal) {
      const page = await get(`audit${query({ limit: PAGE_ROWS, cursor: values.get("cursor") })}`,
        signal);
      rows = page.audit || [];
      pages.replaceChildren(...pageLinks("audit", values, page.next));
      show();
    },
  };
}

function nowhereView() {
  return {
    title: "No such view",
    build: (main) => main.append(h("h1", null, "No such view"),
      h("p", { class: "notice" }, `This page has no view "${decoded(location.hash.slice(1))}". `,
      h("a", { href: "#/overview" }, "Overview"))),
  };
}

// ---- from the address to a view ----

const VIEWS = { overview, key: keyView, lanes: lanesView, dead: deadView, locks: locksView,
  groups: groupsView, jobs: jobsView, audit: auditView, workers: workersView };
// views of one thing, whose name follows in the address
const ONE = { dead: deadOneView, jobs: jobView, message: messageView, find: findView };
let current = null;
let pollTimer = 0;

async function refresh() {
  const view = current;
  if (!view || !view.refresh) return;
  if (view.pending) view.pending.abort();
  const pending = (view.pending = new AbortController());
  const begun = Date.now();
  try {
    await sessionKnown;
    await view.refresh(pending.signal);
    view.problem.hidden = true;
  } catch (e) {
    if (e.name === "AbortError" || pending.signal.aborted) return;
    if (e.status === 401 && session.needs_token && !document.querySelector("dialog"))
      askToken("Reading needs a token.");
    view.problem.hidden = false;
    setText(view.problem, e.message);
    if (e.status === 404) return; // the server knows that it is not there
    if (view.unknown) view.unknown();
    Table.made.filter((t) => t.at < begun).forEach((t) => t.unknown(e.message));
  } finally {
    if (view.pending === pending) view.pending = null;
  }
}

/** Asks again after poll_ms, counted from the end of the last answer, and not while nobody
 * looks. */
async function poll(view) {
  while (current === view) {
    await new Promise((done) => (pollTimer = setTimeout(done, view.poll_ms)));
    if (current === view && !document.hidden && !view.pending) await refresh();
  }
}

function parseHash() {
  const [path, q] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: (path || "overview").split("/").map(normal),
    values: new URLSearchParams(q || "") };
}

function markNavigation(name) {
  for (const a of document.querySelectorAll("nav a")) {
    if (a.getAttribute("href") === `#/${name}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

const showTitle = () =>
  (document.title = plain(`${current.name} – ${session.application || "Latchwork"}`));

function route() {
  const { parts, values } = parseHash();
  const of = (views) => Object.hasOwn(views, parts[0]) && views[parts[0]];
  const make = (parts[1] && of(ONE)) || of(VIEWS) || nowhereView;
  const main = $("main");
  const focused = current !== null && document.activeElement !== $("key");
  if (current) live.listeners.delete(current.live);
  if (current && current.pending) current.pending.abort();
  clearTimeout(pollTimer);
  Table.made = [];
  const view = (current = make());
  view.problem = h("p", { class: "problem", role: "alert", hidden: true });
  main.replaceChildren();
  view.build(main, parts, values);
  main.firstChild.after(view.problem);
  markNavigation(parts[0]);
  view.name = `${view.title}${parts[1] ? ` ${decoded(parts[1])}` : ""}`;
  showTitle();
  if (view.live) live.listeners.add(view.live), view.live();
  refresh();
  if (view.poll_ms) poll(view);
  if (focused) main.focus({ preventScroll: true }), window.scrollTo(0, 0);
}

// ---- keys of the keyboard, theme, start ----

const GO = { o: "overview", l: "lanes", d: "dead", k: "locks", t: "groups", j: "jobs", a: "audit",
  w: "workers" };
let gone = 0; // when "g" was pressed

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]"))
    return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) return;
  if (event.key === "/") event.preventDefault(), $("key").focus(), $("key").select();
  else if (event.key === "?") help();
  else if (event.key === "g") gone = Date.now();
  else if (GO[event.key] && Date.now() - gone < 1500) location.hash = `#/${GO[event.key]}`;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = { auto: "dark", dark: "light", light: "auto" };

function showTheme() {
  const choice = localStorage.getItem("latchwork.theme") || "auto";
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light")
    : choice;
  setText($("theme"), `Theme: ${choice}`);
}

function nextTheme() {
  localStorage.setItem("latchwork.theme",
    THEMES[localStorage.getItem("latchwork.theme") || "auto"] || "auto");
  showTheme();
}

function search(event) {
  event.preventDefault();
  const text = $("key").value;
  const hash = `#/${text.includes("*") ? "find" : "key"}/${segment(text.replaceAll("*", ""))}`;
  if (!text.replaceAll("*", "")) return;
  $("key").blur(); // so that "/" begins the next search
  if (location.hash !== hash) location.hash = hash;
  else refresh(), $("main").focus({ preventScroll: true });
}

/** A link that ends with "?token=…" gives its token to this tab, unless the tab has one: a link of
 * somebody else must not change as whom the user acts. The address forgets the token at once.
 * The part behind # never leaves the browser. */
function takeToken() {
  const { parts, values } = parseHash();
  if (!values.has("token")) return;
  if (token && token !== values.get("token"))
    toast("This tab keeps its token. To use the one of the link, open it in a new tab.", true);
  else {
    token = values.get("token");
    sessionStorage.setItem("latchwork.token", token);
  }
  values.delete("token");
  history.replaceState(null, "", `#/${parts.join("/")}${values.toString() ? `?${values}` : ""}`);
}

async function start() {
  showTheme();
  dark.addEventListener("change", showTheme);
  takeToken();
  $("theme").addEventListener("click", nextTheme);
  $("who").addEventListener("click",
    () => askToken(session.write ? `You may read and write as "${session.name}".`
    : "Give a token to read or to change something."));
  $("search").addEventListener("submit", search);
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("pagehide", onLeave);
  window.addEventListener("pageshow", onReturn);
  window.addEventListener("hashchange", () => {
    // a question about what is no longer shown must not be answered
    document.querySelectorAll("dialog[open]").forEach((d) => d.close());
    route();
  });
  setInterval(showConnection, 1000);
  sessionKnown = loadSession().catch(() => {});
  route(); // the view and the stream need not wait for the session
  startStream();
  await sessionKnown;
  showTitle();
  if (session.needs_token && !session.read) askToken("Reading needs a token.");
}

start();
