"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const list = $("list"), items = [...list.children];
  // Words of the data are compared, never made into markup.
  const value = (item, name) => (["rank", "quality", "p"].includes(name) ? Number(item.dataset[name]) : item.dataset[name]);
  const choices = (id) => [...new Set(items.map((item) => item.dataset[id]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  for (const id of ["given", "suggested"]) $(id).append(...choices(id).map((name) => new Option(name, name)));
  const texts = new Map(items.map((item) => [item, item.textContent.toLocaleLowerCase()]));

  function show() {
    const text = $("text").value.trim().toLocaleLowerCase();
    const wanted = (item) => ["given", "suggested"].every((id) => !$(id).value || item.dataset[id] === $(id).value)
      && (!$("flag").value || item.dataset.flag.split(" ").includes($("flag").value)) && (!text || texts.get(item).includes(text));
    const by = $("sort").value, order = Number($("order").value);
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    items.sort((a, b) => order * compare(value(a, by), value(b, by)) || value(a, "rank") - value(b, "rank"));
    let count = 0;
    for (const item of items) { item.hidden = !wanted(item); count += !item.hidden; }
    list.append(...items);
    const { unit } = $("shown").dataset;
    $("shown").textContent = count === items.length ? `${count} ${unit}` : `${count} of ${items.length} ${unit}`;
  }

  function remember(theme) {
    try { if (theme === undefined) return localStorage.getItem("noisegate-theme"); localStorage.setItem("noisegate-theme", theme); } catch { /* not kept then */ }
    return null;
  }
  let theme = remember() ?? "system";
  function paint() {
    if (theme === "system") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    $("theme").textContent = `Theme: ${theme}`;
  }
  $("theme").addEventListener("click", () => { theme = { system: "light", light: "dark", dark: "system" }[theme] ?? "system"; remember(theme); paint(); });
  $("controls").addEventListener("input", show);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("controls").hidden = $("theme").hidden = false;
  paint();
  show();
})();
