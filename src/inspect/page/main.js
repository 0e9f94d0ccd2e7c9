// Which view is shown: the part of the address behind `#` says so.

import { element, fill } from "./dom.js";
import { showList } from "./list.js";
import { showPrompt } from "./prompt.js";
import { json } from "./server.js";
import { showTrajectory } from "./trajectory.js";

const main = document.getElementById("main");
const state = document.getElementById("state");
let leave = null;
let about = { read_only: false, has_texts: true };

// `#/t/ID/TURN?shade=logprob` as its parts.
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query ?? "") };
}

// What is no encoding stays as it is: there is no trajectory of that name, and the page says so.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function say(text) {
  state.textContent = text;
}

async function show() {
  const { parts, query } = place();
  leave?.();
  leave = null;
  say("");
  const page = parts[0] === "prompt" ? "prompt" : "list";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = { main, say, query, about };
  try {
    if (parts[0] === "t" && parts[1]) leave = await showTrajectory(view, parts[1], parts[2]);
    else if (parts[0] === "prompt") leave = await showPrompt(view);
    else leave = await showList(view);
  } catch (error) {
    if (error.name === "AbortError") return;
    fill(main, [
      element("section", { class: "empty", role: "alert" }, element("h1", {}, "This cannot be shown"),
        element("p", {}, error.message), element("p", {}, element("a", { href: "#/" }, "All trajectories"))),
    ]);
  }
}

window.addEventListener("hashchange", show);
try {
  about = await json("inspect/about.json");
} catch (error) {
  say(error.message);
}
document.documentElement.dataset.readOnly = about.read_only;
show();
