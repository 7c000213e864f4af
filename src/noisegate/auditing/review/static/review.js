// The review page. Text from the data only ever becomes text nodes; what was decided waits in a queue until the
// server has stored it, in the order of the keys; the address holds filter, view and row.

const $ = (id) => document.getElementById(id);
const FILTERS = { show: "look", state: "open", given: "", suggested: "", qmin: "", qmax: "", name: "" };
const PAGE = 30, POLL = 2500, RETRY = 1500;
const S = {
  audit: null, filter: { ...FILTERS }, view: "single", rows: [], cursor: 0, atEnd: false, first: 0, total: 0,
  revision: 0, selected: new Set(), anchor: null, queue: [], sending: false, loading: null, wanted: null, online: true, moved: false,
};

// -- small things ------------------------------------------------------------------------------

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child != null));
  return node;
}
const bdi = (text) => el("bdi", {}, text);
const percent = (p) => `${Math.round(100 * p)} %`;
const count = (n) => Math.round(n).toLocaleString("en");
const nameOf = (code) => S.audit.classes[code] ?? "?";
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
const current = () => S.rows[S.cursor];

function store(area, name, value) {
  try {
    if (value === undefined) return area.getItem(name);
    if (value === null) area.removeItem(name); else area.setItem(name, value);
  } catch { /* storage may be forbidden: the page works without it, until it is reloaded */ }
  return null;
}

function say(text) {
  $("status").textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { $("status").textContent = ""; }, 5000);
}

function notice(id, text, ...buttons) {
  document.getElementById(id)?.remove();
  if (text) $("notices").append(el("div", { id, class: "notice" }, el("span", {}, ...[text].flat()), ...buttons));
}

// -- the server --------------------------------------------------------------------------------

if (location.hash.startsWith("#token=")) {
  store(localStorage, "noisegate-token", location.hash.slice(7));
  history.replaceState(null, "", location.pathname + location.search);
}

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", body: JSON.stringify(body),
    headers: { "content-type": "application/json", "x-noisegate-token": store(localStorage, "noisegate-token") ?? "" },
  };
  const response = await fetch(path, options);
  if (response.ok || response.status === 409) return response.json();
  const text = await response.text();
  let message = text.trim();
  try { message = JSON.parse(text).error; } catch { /* plain text */ }
  throw Object.assign(new Error(message), { status: response.status });
}

function query(extra = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...S.filter, ...extra })) {
    if (value !== "" && value != null) params.set(name, value);
  }
  return params;
}

// -- the address -------------------------------------------------------------------------------

function readAddress() {
  const params = new URLSearchParams(location.search);
  for (const name of Object.keys(FILTERS)) S.filter[name] = params.get(name) ?? FILTERS[name];
  S.view = params.get("view") === "grid" ? "grid" : "single";
  return params.get("row");
}

function writeAddress(push) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(S.filter)) if (value !== FILTERS[name]) params.set(name, value);
  if (S.view === "grid") params.set("view", "grid");
  if (current()) params.set("row", current().row);
  const address = `${location.pathname}${params.size ? `?${params}` : ""}`;
  // Written only after the reviewer has moved: a write during a step back would cancel the next step back.
  if (!push && !S.moved) return;
  S.moved = false;
  if (push) history.pushState(null, "", address); else history.replaceState(null, "", address);
}

// -- rows --------------------------------------------------------------------------------------

async function open(row) {
  const wanted = (S.wanted = {});
  S.loading = null;
  const at = row == null ? {} : { at: row };
  let found = await ask(`/api/rows?${query({ ...at, limit: PAGE })}`);
  // The row of the address was the last one and is decided by now: begin with the first.
  if (!found.rows.length && row != null) found = await ask(`/api/rows?${query({ limit: PAGE })}`);
  if (wanted !== S.wanted) return;
  Object.assign(S, { rows: found.rows, cursor: 0, first: found.first, total: found.total, anchor: null });
  S.atEnd = found.rows.length < PAGE;
  S.revision = Math.max(S.revision, found.revision);
  S.selected.clear();
  show();
  refresh();
}

async function more() {
  if (S.atEnd || !S.rows.length) return;
  const wanted = S.wanted;
  S.loading ??= ask(`/api/rows?${query({ after: S.rows.at(-1).rank, limit: PAGE })}`);
  const loading = S.loading;
  try {
    const found = await loading;
    if (wanted !== S.wanted || S.loading !== loading) return;
    S.rows.push(...found.rows);
    S.atEnd = found.rows.length < PAGE;
    if (S.view === "grid") showGrid();
  } finally {
    if (S.loading === loading) S.loading = null;
  }
}

async function earlier() {
  if (!S.rows.length) return;
  const wanted = S.wanted;
  const found = await ask(`/api/rows?${query({ before: S.rows[0].rank, limit: PAGE })}`);
  if (wanted !== S.wanted) return;
  S.rows.unshift(...found.rows);
  S.cursor += found.rows.length;
  S.first = found.first;
}

async function goTo(row) {
  let place = S.rows.findIndex((known) => known.row === row);
  if (place < 0) {
    const found = await ask(`/api/rows?show=all&state=all&at=${row}&limit=1`);
    place = S.rows.findIndex((known) => known.rank > found.rows[0].rank);
    if (place < 0) place = S.rows.length;
    S.rows.splice(place, 0, found.rows[0]);
  }
  S.cursor = place;
  S.moved = true;
  show();
}

async function move(step, extend = false) {
  if (extend && S.anchor == null) S.anchor = S.cursor;
  if (S.cursor + step < 0) {
    const before = S.rows.length;
    await earlier();
    if (S.anchor != null) S.anchor += S.rows.length - before;
  }
  if (S.cursor + step >= S.rows.length) await more();
  // One place behind the last row says that the filter has been gone through.
  const last = S.view === "grid" ? S.rows.length - 1 : S.rows.length;
  S.cursor = Math.max(0, Math.min(S.cursor + step, last));
  S.moved = true;
  if (S.cursor > S.rows.length - 8) more();
  if (S.view === "grid") {
    if (extend) selectRange(); else { S.selected.clear(); S.anchor = null; }
  }
  show();
}

function selectRange() {
  const [from, to] = [Math.min(S.anchor, S.cursor), Math.max(S.anchor, S.cursor)];
  S.selected = new Set(S.rows.slice(from, to + 1).map((row) => row.row));
}

// -- deciding ----------------------------------------------------------------------------------

function decide(decision, label) {
  const rows = S.view === "grid" && S.selected.size ? S.rows.filter((row) => S.selected.has(row.row)) : [current()];
  if (!rows[0]) return;
  const choices = rows.map((row) => ({ row: row.row, decision, label, seen: row.state.version }));
  for (const row of rows) {
    const code = { accept: row.suggested, keep: row.given, choose: label }[decision] ?? -1;
    row.state = { ...row.state, decision, label: code, reviewer: reviewer(), pending: true };
  }
  send({ path: "/api/decide", body: { key: newKey(), choices, reviewer: reviewer() } });
  const what = { accept: `${nameOf(rows[0].suggested)} taken`, keep: `${nameOf(rows[0].given)} kept`,
    choose: `${nameOf(label)} chosen`, skip: "skipped" }[decision];
  say(rows.length > 1 ? `${rows.length} rows: ${decision === "choose" ? what : { accept: "suggestions taken", keep: "given labels kept", skip: "skipped" }[decision]}` : `${rows[0].id}: ${what}`);
  S.cursor = S.rows.indexOf(rows.at(-1));
  move(1);
}

function reviewer() {
  return $("reviewer").value.trim() || S.audit.reviewer;
}

function send(item) {
  S.queue.push(item);
  keep();
  pump();
}

function keep() {
  store(sessionStorage, `noisegate-queue-${S.audit.audit_id}`, S.queue.length ? JSON.stringify(S.queue) : null);
  $("saving").textContent = S.queue.length && !S.online ? `${S.queue.length} not stored yet` : "";
}

async function pump() {
  if (S.sending || !S.queue.length) return;
  S.sending = true;
  const item = S.queue[0];
  try {
    const told = await ask(item.path, item.body);
    S.online = true;
    notice("offline");
    S.queue.shift();
    stored(item, told);
  } catch (error) {
    if (error.status === 400 || error.status === 413) {
      S.queue.shift();
      notice("refused", `Not stored: ${error.message}`);
    } else {
      S.online = false;
      const why = error.status === 403 ? "The server was started anew: open the address it printed in this tab."
        : "The server cannot be reached.";
      notice("offline", `${why} What you decided is kept here and sent again.`);
      setTimeout(pump, RETRY);
    }
  }
  S.sending = false;
  keep();
  if (S.online) pump();
  if (!S.queue.length) refresh();
}

function stored(item, told) {
  // What was decided about a row before an earlier decision about it was answered has seen that one.
  for (const state of told.changed) {
    for (const waiting of S.queue) {
      for (const choice of waiting.body.choices ?? []) {
        const earlierOne = item.body.choices?.find((c) => c.row === choice.row);
        if (choice.row === state.row && earlierOne && choice.seen === earlierOne.seen) choice.seen = state.version;
      }
    }
    take(state, true);
  }
  for (const state of told.conflicts) take(state, true);
  if (told.n_conflicts) conflict(item, told);
  const moved = item.path.endsWith("undo") || item.path.endsWith("redo");
  if (moved && told.action == null) say(item.path.endsWith("undo") ? "Nothing to undo" : "Nothing to do again");
  else if (moved) {
    say(`${item.path.endsWith("undo") ? "Undone" : "Done again"}: ${told.n_changed} ${told.n_changed === 1 ? "row" : "rows"}`);
    if (told.changed.length) { goTo(told.changed[0].row); return; }
  }
  if (item.path.endsWith("decide-all")) {
    say(`${count(told.n_changed)} rows decided`);
    open();
    return;
  }
  show(true);
}

function conflict(item, told) {
  const first = told.conflicts[0];
  const what = first.decision === "" ? "took their decision back" : first.decision === "skip" ? "skipped it"
    : `decided ${nameOf(first.label)}`;
  const many = told.n_conflicts > 1 ? ` (and ${count(told.n_conflicts - 1)} more rows)` : "";
  const mine = item.body.choices?.filter((c) => told.conflicts.some((d) => d.row === c.row)) ?? [];
  const again = () => {
    const seen = new Map(told.conflicts.map((d) => [d.row, d.version]));
    const choices = mine.map((c) => ({ ...c, seen: seen.get(c.row) }));
    send({ path: "/api/decide", body: { key: newKey(), choices, reviewer: reviewer() } });
    notice("conflict");
  };
  notice("conflict",
    ["Conflict: ", bdi(first.reviewer), ` ${what} for row `, bdi(String(first.row)), `${many} in the meantime; yours was not stored.`],
    mine.length ? el("button", { type: "button", on: { click: again } }, "Store mine instead") : null,
    el("button", { type: "button", on: { click: () => { notice("conflict"); goTo(first.row); } } }, "Show the row"),
    el("button", { type: "button", on: { click: () => notice("conflict") } }, "Leave theirs"));
}

function take(state, force = false) {
  for (const row of S.rows) {
    if (row.row !== state.row) continue;
    if (!force && (row.state.pending || row.state.version >= state.version)) continue;
    const waiting = S.queue.some((item) => item.body.choices?.some((c) => c.row === state.row));
    row.state = waiting ? { ...row.state, version: state.version } : { ...state, pending: false };
  }
}

async function refresh() {
  try {
    const told = await ask(`/api/progress?${query({ since: S.revision, as: reviewer() })}`);
    const others = told.changed.filter((state) => S.rows.some((row) => row.row === state.row && row.state.version < state.version && !row.state.pending));
    told.changed.forEach((state) => take(state));
    S.revision = told.revision;
    S.progress = told;
    showProgress();
    if (others.length) show(true);
    if (!S.online && S.queue.length) pump();
  } catch (error) {
    if (error.status === 403) notice("offline", "Open the address that `noisegate review` printed: it carries the token.");
  }
}

// -- what is seen ------------------------------------------------------------------------------

function showProgress() {
  const p = S.progress;
  if (!p) return;
  const left = p.errors_left;
  $("progress").textContent = `${count(p.decided)} decided · ${count(p.left)} left · about ${count(left.value)} wrong labels left (${count(left.low)} to ${count(left.high)})`;
  $("bar").value = S.audit.look ? 1 - p.left / S.audit.look : 1;
  $("bulk-count").textContent = count(p.in_filter);
  $("bulk-open").disabled = !p.in_filter;
  $("undo").disabled = !p.can.undo && !S.queue.length;
  $("redo").disabled = !p.can.redo;
}

function stateText(row) {
  const { decision, label, reviewer: who, at } = row.state;
  if (!decision) return ["Not decided"];
  const when = at ? `, ${new Date(at).toLocaleString()}` : "";
  if (decision === "skip") return ["Skipped by ", bdi(who), when];
  return [decision === "keep" ? "Kept: " : "Decided: ", el("strong", {}, bdi(nameOf(label))), " by ", bdi(who), when];
}

function pictures(row, view, size, alt) {
  return view.layers.map((layer) => el("img", {
    src: `/api/picture/${row}?${new URLSearchParams({ layer, size })}`, alt: layer ? `${alt}: ${layer}` : alt,
    class: view.pixelated ? "pixelated" : null, loading: "lazy", decoding: "async",
  }));
}

function viewOf(row) {
  const { view } = row;
  const shown = pictures(row.row, view, 900, `${S.audit.row_word} ${row.id}`).map((image, i) =>
    el("figure", {}, image, view.layers[i] ? el("figcaption", {}, view.layers[i]) : null));
  if (view.cells.length) {
    const lines = view.cells.map(([name, text]) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, name),
      el("td", { dir: "auto", class: text.length > 80 ? "long" : null }, text)));
    shown.push(el("div", { class: "cells-wrap", tabindex: "0", role: "region", "aria-label": "Cells" }, el("table", { class: "cells" }, el("tbody", {}, lines))));
  }
  if (view.problem) shown.push(el("p", { class: "soft" }, `This row cannot be shown: ${view.problem}`));
  return shown;
}

function brief(row, view, alt) {
  if (view.layers.length) return pictures(row, view, 200, alt).slice(0, 1);
  if (view.problem || view.cells.length < 2) return [el("div", { class: "brief", dir: "auto" }, view.problem || (view.cells[0]?.[1] ?? "").slice(0, 400))];
  return [el("div", { class: "brief-cells" }, view.cells.slice(0, 6).map(([name, text]) => el("div", { dir: "auto" }, `${name}: ${text.slice(0, 100)}`)))];
}

function button(text, key, call, attributes = {}) {
  return el("button", { type: "button", "aria-keyshortcuts": key || null, on: { click: call }, ...attributes },
    ...text, key ? " " : null, key ? el("kbd", {}, key) : null);
}

function classButtons(row) {
  const codes = S.audit.classes.length <= 30 ? S.audit.classes.map((_, code) => code)
    : [...new Set([...row.top.map(([code]) => code), row.suggested, row.given])];
  const p = new Map(row.top);
  return codes.map((code) => button([bdi(nameOf(code)), p.has(code) ? ` ${percent(p.get(code))}` : null], S.audit.keys[code],
    () => { decide("choose", code); }, { class: code === row.given ? "is-given" : code === row.suggested ? "is-suggested" : null }));
}

function showSingle(quiet) {
  const box = $("single"), row = current();
  if (!row) {
    const none = S.rows.length ? "That was the last row of this filter." : "No row matches this filter.";
    box.replaceChildren(el("div", { class: "top" }, el("h2", { id: "row-title" }, none)),
      el("div", {}, el("p", {}, "Go through other rows: "), el("p", { class: "actions" },
        button(["Open"], "", () => setFilter({ ...FILTERS })), button(["Decided"], "", () => setFilter({ ...FILTERS, state: "decided" })),
        button(["Skipped"], "", () => setFilter({ ...FILTERS, state: "skipped" })), button(["All rows"], "", () => setFilter({ ...FILTERS, show: "all" })))));
  } else {
    const near = row.neighbours.map((other) => el("li", { class: other.given !== row.given ? "disagrees" : null },
      ...brief(other.row, other.view, `${S.audit.row_word} ${other.id}`), el("div", {}, el("strong", {}, bdi(nameOf(other.given))),
        other.given !== row.given ? " disagrees" : " agrees"), el("div", { class: "soft" }, bdi(other.id), ` · ${other.similarity.toFixed(2)}`)));
    const place = S.first + S.cursor + 1;
    box.replaceChildren(
      el("div", { class: "top" }, el("h2", { id: "row-title" }, el("span", { class: "soft" }, `${S.audit.row_word} `), bdi(row.id)),
        el("span", { class: "soft" }, `${count(place)} of ${count(Math.max(S.total, place))} in this filter`)),
      el("div", { class: "content" }, viewOf(row)),
      el("section", { class: "decide", "aria-label": "Decision" },
        el("dl", { class: "labels" }, el("dt", {}, "Given"), el("dd", {}, el("strong", {}, bdi(nameOf(row.given)))),
          el("dt", {}, "Suggested"), el("dd", {}, el("strong", {}, bdi(nameOf(row.suggested))), ` ${percent(row.suggested_probability)}`),
          el("dt", {}, "Quality"), el("dd", {}, row.quality.toFixed(3), el("span", { class: "soft" }, row.sure ? " · surely wrong" : row.look ? " · look" : " · not flagged"))),
        el("p", { class: row.state.decision && row.state.decision !== "skip" ? "state done" : "state", id: "row-state" }, ...stateText(row)),
        el("div", { class: "actions" },
          button(["Take suggestion: ", bdi(nameOf(row.suggested))], "Enter", () => decide("accept"), { class: "main-action" }),
          button(["Keep ", bdi(nameOf(row.given))], "Space", () => decide("keep")), button(["Skip"], "s", () => decide("skip")),
          button(["Previous"], "k", () => move(-1)), button(["Next"], "j", () => move(1))),
        el("fieldset", {}, el("legend", {}, row.top.length ? "Another class (its probability without regard to the given label)" : "Another class"), el("div", { class: "classes" }, classButtons(row), button(["Find a class"], "/", openFinder))),
        row.duplicates.length ? el("p", { class: "soft" }, "Near duplicate of ", row.duplicates.map((other) => el("span", {}, bdi(other.id), " labelled ", bdi(nameOf(other.given)), " "))) : null),
      near.length ? el("section", { class: "near", "aria-label": "Nearest rows" }, el("h3", {}, "Nearest rows: why it is flagged"), el("ul", { class: "near-list" }, near)) : "");
  }
  // Focus goes to the row, so that Enter decides about it and a screen reader reads it.
  if (!quiet && !document.activeElement?.closest("input, select, textarea, dialog")) box.focus({ preventScroll: true });
}

function showGrid() {
  const focused = document.activeElement?.closest("#cards") || document.activeElement === document.body;
  $("cards").replaceChildren(...S.rows.map((row, place) => {
    const text = `${S.audit.row_word} ${row.id}, given ${nameOf(row.given)}, suggested ${nameOf(row.suggested)}`;
    return el("li", { role: "option", id: `card-${row.row}`, tabindex: place === S.cursor ? "0" : "-1", "aria-label": `${text}, ${stateText(row).map((part) => part.textContent ?? part).join("")}`,
      "aria-selected": S.selected.has(row.row) ? "true" : "false", class: row.state.decision ? "done" : null,
      on: { click: (event) => clickCard(place, event) } },
    ...brief(row.row, row.view, ""), el("div", {}, bdi(nameOf(row.given)), " → ", el("strong", {}, bdi(nameOf(row.suggested)))),
    el("div", { class: "soft" }, row.state.decision ? stateText(row) : bdi(row.id)));
  }));
  $("more").hidden = S.atEnd;
  if (focused || S.refocus) $("cards").children[S.cursor]?.focus();
  S.refocus = false;
}

function clickCard(place, event) {
  if (event.shiftKey) { S.anchor ??= S.cursor; S.cursor = place; selectRange(); } else {
    S.cursor = place; S.anchor = place;
    if (event.ctrlKey || event.metaKey) { const { row } = S.rows[place]; S.selected.delete(row) || S.selected.add(row); } else S.selected = new Set([S.rows[place].row]);
  }
  S.refocus = true;
  S.moved = true;
  show();
}

function show(quiet = false) {
  const grid = S.view === "grid";
  $("single").hidden = grid;
  $("grid").hidden = !grid;
  $("grid-toggle").setAttribute("aria-pressed", String(grid));
  if (grid) { S.cursor = Math.max(0, Math.min(S.cursor, S.rows.length - 1)); showGrid(); } else showSingle(quiet);
  for (const name of Object.keys(FILTERS)) if (document.activeElement !== $(`f-${name}`)) $(`f-${name}`).value = S.filter[name];
  $("filter-text").textContent = Object.entries(S.filter).filter(([name, value]) => value !== FILTERS[name])
    .map(([name, value]) => `${name}: ${value}`).join(", ");
  writeAddress(false);
}

function setFilter(filter) {
  S.filter = filter;
  S.rows = [];
  writeAddress(true);
  return open();
}

function toggleGrid() {
  S.view = S.view === "grid" ? "single" : "grid";
  S.selected.clear();
  S.anchor = null;
  S.refocus = true;
  S.moved = true;
  show();
}

function toggleLegend(open_ = $("legend").hidden) {
  $("legend").hidden = !open_;
  $("legend-toggle").setAttribute("aria-expanded", String(open_));
  store(localStorage, "noisegate-legend", open_ ? "open" : "closed");
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
  store(localStorage, "noisegate-theme", theme);
}

// -- dialogs -----------------------------------------------------------------------------------

function openFinder() {
  if (!current()) return;
  $("finder-text").value = "";
  listClasses();
  $("finder").showModal();
}

function listClasses() {
  const text = $("finder-text").value.trim().toLocaleLowerCase();
  const p = new Map(current().top);
  const found = S.audit.classes.map((name, code) => ({ name, code, place: name.toLocaleLowerCase().indexOf(text) }))
    .filter(({ place }) => place >= 0)
    .sort((a, b) => (p.get(b.code) ?? 0) - (p.get(a.code) ?? 0) || a.place - b.place || a.code - b.code).slice(0, 50);
  listClasses.codes = found.map(({ code }) => code);
  $("finder-list").replaceChildren(...found.map(({ name, code }) => el("li", { role: "option", id: `class-${code}`,
    "aria-selected": "false", on: { click: () => choose(code) } }, bdi(name))));
  markClass(0);
}

function markClass(place) {
  const items = [...$("finder-list").children];
  listClasses.place = Math.max(0, Math.min(place, items.length - 1));
  items.forEach((item, i) => item.setAttribute("aria-selected", String(i === listClasses.place)));
  const marked = items[listClasses.place];
  $("finder-text").setAttribute("aria-activedescendant", marked?.id ?? "");
  marked?.scrollIntoView({ block: "nearest" });
}

function choose(code) {
  $("finder").close();
  if (code !== undefined) decide("choose", code);
}

function openBulk() {
  if (!S.progress?.in_filter) return;
  $("bulk-text").textContent = `This decides about all ${count(S.progress.in_filter)} rows of the filter, also those that are not on this page. Undo takes it back in one step.`;
  $("bulk-class-label").hidden = $("bulk-decision").value !== "choose";
  $("bulk-do").textContent = `Decide all ${count(S.progress.in_filter)}`;
  $("bulk").showModal();
}

function doBulk() {
  if ($("bulk").returnValue !== "do") return;
  const decision = $("bulk-decision").value;
  const label = decision === "choose" ? Number($("bulk-class").value) : null;
  send({ path: "/api/decide-all", body: { key: newKey(), filter: { ...S.filter }, decision, label, revision: S.revision, reviewer: reviewer() } });
}

// -- keys --------------------------------------------------------------------------------------

const step = (path) => send({ path, body: { key: newKey(), reviewer: reviewer() } });

function upDown(direction) {
  const cards = [...$("cards").children], here = cards[S.cursor];
  if (!here) return direction;
  const columns = cards.filter((card) => card.offsetTop === here.offsetTop).length;
  return direction * columns;
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const target = event.target instanceof Element ? event.target : document.body;
  if (target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const { key } = event;
  if (event.ctrlKey || event.metaKey) {
    if (key.toLowerCase() !== "z") return;
    event.preventDefault();
    step(event.shiftKey ? "/api/redo" : "/api/undo");
    return;
  }
  // Enter and Space belong to a button that has the focus.
  if ((key === "Enter" || key === " ") && target.closest("button, a, summary")) return;
  const grid = S.view === "grid", shift = event.shiftKey;
  const actions = {
    j: () => move(1), k: () => move(-1), J: () => move(1, grid), K: () => move(-1, grid),
    ArrowRight: () => move(1, grid && shift), ArrowLeft: () => move(-1, grid && shift),
    ArrowDown: () => move(grid ? upDown(1) : 1, grid && shift), ArrowUp: () => move(grid ? upDown(-1) : -1, grid && shift),
    Enter: () => decide("accept"), " ": () => decide("keep"), s: () => decide("skip"),
    u: () => step("/api/undo"), U: () => step("/api/redo"), g: toggleGrid, b: openBulk, "?": () => toggleLegend(), "/": openFinder,
    Escape: () => { S.selected.clear(); S.anchor = null; if (grid) show(); },
  };
  const code = S.audit ? S.audit.keys.indexOf(key) : -1;
  const action = actions[key] ?? (code >= 0 ? () => decide("choose", code) : null);
  if (!action || !S.audit) return;
  event.preventDefault();
  action();
}

// -- the beginning -----------------------------------------------------------------------------

function connect() {
  document.addEventListener("keydown", onKey);
  $("undo").onclick = () => step("/api/undo");
  $("redo").onclick = () => step("/api/redo");
  $("grid-toggle").onclick = toggleGrid;
  $("bulk-open").onclick = openBulk;
  $("legend-toggle").onclick = () => toggleLegend();
  $("theme").onclick = () => setTheme({ system: "light", light: "dark", dark: "system" }[store(localStorage, "noisegate-theme") ?? "system"]);
  $("more").onclick = more;
  $("filters").onsubmit = (event) => event.preventDefault();
  for (const name of Object.keys(FILTERS)) {
    $(`f-${name}`).onchange = (event) => setFilter({ ...S.filter, [name]: event.target.value });
  }
  $("reviewer").onchange = () => { store(localStorage, "noisegate-reviewer", $("reviewer").value.trim()); refresh(); };
  $("finder-text").oninput = listClasses;
  $("finder-text").onkeydown = (event) => {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) markClass(listClasses.place + moves[event.key]);
    else if (event.key === "Enter") choose(listClasses.codes[listClasses.place]);
    else return;
    event.preventDefault();
  };
  $("bulk-decision").onchange = () => { $("bulk-class-label").hidden = $("bulk-decision").value !== "choose"; };
  $("bulk").onclose = doBulk;
  addEventListener("popstate", () => { S.moved = false; open(readAddress()); });
  addEventListener("beforeunload", (event) => { if (S.queue.length) event.preventDefault(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  setInterval(() => { if (!document.hidden && !S.queue.length) refresh(); }, POLL);
}

async function start() {
  setTheme(store(localStorage, "noisegate-theme") ?? "system");
  toggleLegend(store(localStorage, "noisegate-legend") !== "closed");
  try {
    S.audit = await ask("/api/audit");
  } catch (error) {
    notice("offline", error.message);
    return;
  }
  // On a phone the row comes first.
  $("filter-box").open = matchMedia("(min-width: 52rem)").matches;
  document.title = `Review ${S.audit.title}`;
  $("title").textContent = S.audit.title;
  $("reviewer").value = store(localStorage, "noisegate-reviewer") || S.audit.reviewer;
  for (const id of ["f-given", "f-suggested"]) $(id).append(...S.audit.classes.map((name) => new Option(name, name)));
  $("bulk-class").append(...S.audit.classes.map((name, code) => new Option(name, code)));
  S.queue = JSON.parse(store(sessionStorage, `noisegate-queue-${S.audit.audit_id}`) ?? "[]");
  connect();
  pump();
  await open(readAddress());
}

start();
