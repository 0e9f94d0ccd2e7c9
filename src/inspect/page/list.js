// The list of trajectories: filters, pages, and what comes while it is looked at.

import { button, choice, clipped, count, element, fill, many, short, time } from "./dom.js";
import { json } from "./server.js";

const FIELDS = [["session", "Session"], ["tag", "Tag"], ["model", "Model"], ["version", "Weights"]];
const LIMIT = 50;
const MILLISECONDS = 2000;

export async function showList({ main, say, query, about }) {
  const stop = new AbortController();
  // The last ids of the pages before this one.
  const before = [];
  let live = !about.read_only;
  let shown = "";
  let timer = null;

  const inputs = FIELDS.map(([name, label]) => [
    name,
    element("input", { type: "search", name, value: query.get(name) ?? "", autocomplete: "off", spellcheck: "false" }),
    label,
  ]);
  const complete = choice("State", [["", "any"], ["true", "complete"], ["false", "not complete"]],
    query.get("complete") ?? "", () => filter());
  const order = choice("Order", [["desc", "last captured first"], ["asc", "first captured first"]],
    query.get("order") ?? "desc", () => filter());
  const liveBox = element("input", { type: "checkbox", checked: live, onchange: (event) => {
    live = event.target.checked;
    if (live) load();
  } });
  const form = element("form", { class: "filters", role: "search", "aria-label": "Filter trajectories",
    onsubmit: (event) => { event.preventDefault(); filter(); } },
    inputs.map(([, input, label]) => element("label", {}, element("span", {}, label), input)), complete, order,
    element("label", { class: "check" }, liveBox, element("span", {}, "live")),
    element("button", { type: "submit", class: "quiet" }, "Filter"));
  const body = element("tbody");
  const head = ["Trajectory", "Began", "Turns", "Sampled", "State", "Weights", "Reward", "Tags"];
  const table = element("table", { class: "list" },
    element("caption", { class: "hidden" }, "Captured trajectories"),
    element("thead", {}, element("tr", {}, head.map((text) => element("th", { scope: "col" }, text)))), body);
  const pages = element("p", { class: "pages" });
  const empty = element("p", { class: "empty", hidden: true });
  fill(main, [element("h1", {}, "Trajectories"), form, element("div", { class: "scroll" }, table), empty, pages]);

  function chosen() {
    const wanted = new URLSearchParams();
    for (const [name, input] of inputs) if (input.value.trim()) wanted.set(name, input.value.trim());
    const state = complete.querySelector("select").value;
    if (state) wanted.set("complete", state);
    return wanted;
  }

  function filter() {
    before.length = 0;
    const wanted = chosen();
    const by = order.querySelector("select").value;
    if (by !== "desc") wanted.set("order", by);
    // The address can be kept and sent to others.
    history.replaceState(null, "", `#/${wanted.size ? `?${wanted}` : ""}`);
    load();
  }

  async function load() {
    clearTimeout(timer);
    try {
      await loadPage();
    } catch (error) {
      if (error.name === "AbortError") return;
      say(error.message);
    }
    if (live && !stop.signal.aborted) timer = setTimeout(load, MILLISECONDS);
  }

  async function loadPage() {
    const wanted = chosen();
    wanted.set("limit", LIMIT);
    wanted.set("order", order.querySelector("select").value);
    if (before.length) wanted.set("after", before.at(-1));
    const page = await json(`v1/trajectories?${wanted}`, { signal: stop.signal });
    say(live ? "live" : "");
    const state = JSON.stringify(page);
    if (state === shown) return;
    shown = state;
    draw(page);
  }

  function draw(page) {
    const focused = document.activeElement?.closest?.("tr")?.dataset.id;
    fill(body, page.data.map(row));
    if (focused) body.querySelector(`tr[data-id="${CSS.escape(focused)}"] a`)?.focus();
    empty.hidden = page.data.length > 0;
    empty.textContent = chosen().size ? "No trajectory has all of this." : "Nothing has been captured yet. What is sampled appears here.";
    table.hidden = page.data.length === 0;
    const from = before.length * LIMIT;
    const turn = (act) => () => { act(); load(); };
    fill(pages, [
      button("Previous", turn(() => before.pop()), { disabled: before.length === 0 }),
      element("span", {}, page.data.length ? `${count(from + 1)} – ${count(from + page.data.length)}` : ""),
      button("Next", turn(() => before.push(page.last_id)), { disabled: !page.has_more }),
    ]);
    pages.hidden = before.length === 0 && !page.has_more;
  }

  load();
  return () => {
    stop.abort();
    clearTimeout(timer);
    live = false;
  };
}

function row(shown) {
  const branches = shown.leaf_count > 1 ? ` · ${many(shown.leaf_count, "branch", "branches")}` : "";
  return element("tr", { "data-id": shown.id },
    element("th", { scope: "row" }, element("a", { href: `#/t/${encodeURIComponent(shown.id)}` }, clipped(shown.session ?? short(shown.id))),
      shown.session && element("small", {}, short(shown.id))),
    element("td", {}, time(shown.created_at)),
    element("td", { class: "number" }, `${count(shown.turn_count)}${branches}`),
    element("td", { class: "number" }, count(shown.sampled_tokens)),
    element("td", {}, element("span", { class: shown.complete ? "done" : "open" }, shown.complete ? "complete" : "not complete"),
      shown.ambiguous && element("small", { class: "warning" }, "ambiguous")),
    element("td", {}, shown.weight_versions.join(", ")),
    element("td", { class: "number" }, shown.reward === null ? "" : String(shown.reward)),
    element("td", {}, shown.tags.map((tag) => element("span", { class: "tag" }, tag))));
}
