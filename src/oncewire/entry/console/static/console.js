"use strict";

// Sign-in: what stands behind the # of a link is put into the form, and never leaves by an address.
const form = document.getElementById("sign-in");
if (form && location.hash.length > 1) {
  form.elements.link.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  form.submit();
}

// Light and dark.
const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
document.getElementById("theme")?.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("oncewire-theme", next); } catch { /* it lasts for this page */ }
  plots.forEach((plot) => plot.redraw());
});

// Whether the page hears of changes.
const link = document.getElementById("link");
const say = (word) => {
  if (link && link.textContent !== word) { link.textContent = word; link.dataset.word = word; }
};
document.body.addEventListener("htmx:sse:after:connection", () => say("live"));
const full = "not live: too many windows";
document.body.addEventListener("htmx:sse:error", (event) => {
  say(event.detail.status === 429 ? full : "not connected");
});
document.body.addEventListener("htmx:sse:before:connection", (event) => {
  if (event.detail.connection.attempt > 0) say("not connected");
});
document.body.addEventListener("ended", () => location.reload());
// A refused page is never put into this one.
document.body.addEventListener("htmx:before:swap", (event) => {
  const status = event.detail.ctx?.response?.status ?? 200;
  if (status === 429) say(full);
  if (status >= 400 && status !== 422) event.preventDefault();
});

// A list that is renewed keeps the row that the keys are on.
let chosen = null;
document.body.addEventListener("htmx:before:swap", () => {
  const row = document.activeElement?.closest("[data-rows] tbody a.id");
  chosen = row ? row.getAttribute("href") : null;
});
document.body.addEventListener("htmx:after:swap", () => {
  if (chosen === null || document.activeElement?.getAttribute("href") === chosen) return;
  const rows = [...document.querySelectorAll("[data-rows] tbody a.id")];
  rows.find((row) => row.getAttribute("href") === chosen)?.focus({ preventScroll: true });
});

// A filter that is chosen or ticked applies at once; what is typed waits for Enter.
document.body.addEventListener("change", (event) => {
  const field = event.target.closest("form[data-at-once] select, form[data-at-once] [type=checkbox]");
  field?.form.requestSubmit();
});

// Copy.
document.body.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    const code = button.parentElement.querySelector("code");
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// Keys: / to the search, j and k along rows, Enter opens; nothing while somebody types.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "Escape") {
    document.querySelectorAll("details.menu[open]").forEach((menu) => menu.removeAttribute("open"));
    if (typing) event.target.blur();
    return;
  }
  if (typing) return;
  if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("[data-rows] tbody a.id")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const next = event.key === "j" ? Math.min(at + 1, rows.length - 1) : Math.max(at - 1, 0);
    rows[next].focus();
  }
});

// Plots.
const plots = [];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const series = {
  flow: [["sent", "--busy"], ["acknowledged", "--good"], ["received", "--calm"],
    ["duplicates", "--odd"], ["failed", "--bad"]],
  latency: [["slowest_ms", "--busy"]],
};

const hour = (second) => new Date(second * 1000).toISOString().slice(11, 16);

function drawn(id, data) {
  const place = document.getElementById(id);
  const axis = {
    stroke: () => colour("--mute"), grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { stroke: () => colour("--line"), width: 1 }, font: "11px system-ui, sans-serif",
  };
  const lines = series[id].map(([name, tone]) => ({
    label: name.replace("_", " "), stroke: () => colour(tone), width: 1.75,
    points: { show: name === "slowest_ms", size: 4 }, spanGaps: false,
  }));
  const options = {
    width: place.clientWidth, height: 170, series: [{}, ...lines],
    axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map(hour) }, { ...axis, size: 64 }],
    scales: { y: { range: (_, low, high) => [0, Math.max((high ?? 1) * 1.1, 1)] } },
    legend: { live: false }, cursor: { drag: { x: false, y: false } },
  };
  const plot = new uPlot(options, columns(id, data), place);
  new ResizeObserver(() => {
    if (place.clientWidth) plot.setSize({ width: place.clientWidth, height: 170 });
  }).observe(place);
  plots.push(plot);
  return plot;
}

const columns = (id, data) => [data.seconds, ...series[id].map(([name]) => data[name])];

if (document.getElementById("flow") && window.uPlot) {
  const made = {};
  let asking = false;
  const look = async () => {
    if (asking) return;
    asking = true;
    try {
      const answer = await fetch("/console/pulse.json");
      if (!answer.ok) return;
      const data = await answer.json();
      for (const id of Object.keys(series)) {
        if (made[id]) made[id].setData(columns(id, data));
        else made[id] = drawn(id, data);
      }
    } catch { say("not connected"); } finally { asking = false; }
  };
  look();
  document.body.addEventListener("changed", look);
}
