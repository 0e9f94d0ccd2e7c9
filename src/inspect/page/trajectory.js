// One trajectory: its tree of turns, the tokens of the turn that is chosen, and what is attached to it.

import { aboutPosition, checking } from "./check.js";
import { button, choice, clipped, count, element, facts, fill, many, short, time } from "./dom.js";
import { saidBy } from "./said.js";
import { MODES, originOf, shades, swatch } from "./shades.js";
import { ask, curl, json, pathOf, save } from "./server.js";
import { Pictures } from "./images.js";
import { TokenView, visible } from "./tokens.js";

const MILLISECONDS = 2500;
const MOST_DRIFTS = 200;
let mode = "origin";
let last = null;

export async function showTrajectory({ main, say, about, query }, id, wanted) {
  const stop = new AbortController();
  const { signal } = stop;
  if (query.get("shade")) mode = query.get("shade");
  fill(main, [element("p", { class: "loading" }, "Reading the trajectory …")]);
  // With the turn in the address, tokens need not wait for the tree.
  const early = wanted && tokensOf(id, wanted, signal);
  early?.catch(() => {});
  let tree = await treeOf(id, signal);
  const turn = tree.turns.find((one) => one.id === wanted) ?? leaves(tree).at(-1) ?? tree.turns.at(-1);
  const data = await (turn.id === wanted ? early : tokensOf(id, turn.id, signal));

  const side = element("div", { class: "side" });
  const detail = element("aside", { class: "detail", "aria-label": "The token" });
  const drawSide = () => fill(side, [
    summary(tree), branches(tree, turn), again, said, notes(tree, turn, about, changed),
  ]);
  function changed(noted) {
    tree = { ...tree, ...noted };
    drawSide();
  }
  const { toolbar, view, check } = tokens(tree, turn, data, detail, about, signal);
  const said = saidBy(turn);
  const again = checking({ tree, turn, about, signal, shown: check, go: (at) => {
    view.go(at);
    view.element.focus({ preventScroll: true });
  } });
  drawSide();
  fill(main, [
    element("h1", { class: "title" }, clipped(tree.session ?? short(tree.id)), element("small", {}, tree.id), actions(tree, turn, data)),
    element("div", { class: "trajectory" }, side, element("section", { class: "middle", "aria-label": "Tokens" }, toolbar, view.element), detail),
  ]);
  view.layout();
  if (last === id) side.querySelector('.tree [aria-current="true"]')?.focus({ preventScroll: true });
  last = id;
  performance.mark("tokens shown");

  const timer = about.read_only ? null : setInterval(async () => {
    try {
      const [now] = (await json(`v1/trajectories?limit=1&trajectory=${encodeURIComponent(id)}`, { signal })).data;
      if (!now) return say("This trajectory is gone from the server.");
      const same = now.turn_count === tree.turn_count && JSON.stringify([now.reward, now.tags, now.turn_rewards]) === JSON.stringify([tree.reward, tree.tags, tree.turn_rewards]);
      if (same || side.contains(document.activeElement) && document.activeElement.tagName === "INPUT") return;
      tree = await treeOf(id, signal);
      drawSide();
      say(`${many(tree.turn_count, "turn")} now`);
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  }, MILLISECONDS);
  return () => {
    stop.abort();
    view.close();
    clearInterval(timer);
  };
}

// Seeds have 64 bits. Those that a number of JavaScript would round are read as text.
async function treeOf(id, signal) {
  const text = await (await ask(pathOf(id), { signal })).text();
  return JSON.parse(text.replace(/"seed":(\d{16,})/g, '"seed":"$1"'));
}

async function tokensOf(id, turn, signal) {
  const data = await json(pathOf(id, `/turns/${encodeURIComponent(turn)}/tokens`), { signal });
  data.fragments = new Set(data.fragments);
  return data;
}

function leaves(tree) {
  const continued = new Set(tree.turns.map((turn) => turn.parent_id));
  return tree.turns.filter((turn) => !continued.has(turn.id));
}

function summary(tree) {
  return facts([
    ["Began", time(tree.created_at)],
    ["Turns", `${count(tree.turn_count)}, ${many(tree.leaf_count, "leaf", "leaves")}`],
    ["Sampled", many(tree.sampled_tokens, "id")],
    ["Models", tree.models.join(", ")],
    ["Weights", tree.weight_versions.join(", ")],
    ["State", tree.complete ? "complete" : "not complete"],
    ["Place", tree.ambiguous && "ambiguous: several turns had the ids that a turn continues"],
  ]);
}

// The turns by their parents. A turn that alone continues another one stands below it, not inside it, so that a long
// conversation is as narrow as a short one.
function branches(tree, chosen) {
  const children = new Map();
  for (const turn of tree.turns) {
    const key = turn.parent_id ?? "";
    children.set(key, [...(children.get(key) ?? []), turn]);
  }
  const numbers = new Map(tree.turns.map((turn, at) => [turn.id, at + 1]));
  const onPath = new Set();
  const byId = new Map(tree.turns.map((turn) => [turn.id, turn]));
  for (let turn = chosen; turn; turn = byId.get(turn.parent_id)) onPath.add(turn.id);
  const list = (turns) => element("ol", {}, turns.map((turn) => {
    const chain = [turn];
    for (let next = children.get(turn.id) ?? []; next.length === 1; next = children.get(next[0].id) ?? []) chain.push(next[0]);
    const forks = children.get(chain.at(-1).id) ?? [];
    return element("li", {}, chain.map((one) => item(tree, one, numbers.get(one.id), chosen, onPath)), forks.length > 0 && list(forks));
  }));
  const made = element("nav", { class: "tree", "aria-label": "Turns" }, element("h2", {}, "Turns"), list(children.get("") ?? []));
  made.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...made.querySelectorAll("a")];
    links[links.indexOf(document.activeElement) + step]?.focus();
    event.preventDefault();
  });
  return made;
}

function item(tree, turn, number, chosen, onPath) {
  const known = turn.token_continuity?.reused ? ` · ${turn.token_continuity.source}` : "";
  const reward = tree.turn_rewards[turn.id];
  return element("a", {
    href: `#/t/${encodeURIComponent(tree.id)}/${encodeURIComponent(turn.id)}`,
    "aria-current": turn.id === chosen.id ? "true" : undefined,
    class: onPath.has(turn.id) ? "path" : undefined,
  }, element("b", {}, String(number)), element("span", {}, `+${count(turn.added_token_ids.length)} → ${count(turn.sampled_token_ids.length)}`),
    element("small", {}, `${turn.finish_reason.replaceAll("_", " ")}${known}${reward === undefined ? "" : ` · reward ${reward}`}`));
}

function notes(tree, turn, about, changed) {
  const problem = element("p", { class: "warning", role: "alert" });
  const post = async (what, body) => {
    try {
      problem.textContent = "";
      changed(await json(pathOf(tree.id, what), { body }));
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const rewards = facts([
    ["Reward", tree.reward === null ? "none" : String(tree.reward)],
    ["Of this turn", String(tree.turn_rewards[turn.id] ?? "none")],
  ]);
  const tag = (text) => element("span", { class: "tag" }, text, !about.read_only &&
    button("×", () => post("/tags", { remove: [text] }), { "aria-label": `Remove the tag ${text}` }));
  const tags = element("p", { class: "tags" }, tree.tags.length ? tree.tags.map(tag) : "no tags");
  if (about.read_only) return element("section", {}, element("h2", {}, "Attached"), rewards, tags);
  const reward = element("input", { type: "number", step: "any", name: "reward", "aria-label": "Reward", placeholder: "reward" });
  const whose = choice("of", [["", "all"], [turn.id, "this turn"]], "", () => {});
  const setting = element("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const value = reward.value === "" ? null : Number(reward.value);
    const of = whose.querySelector("select").value;
    post("/reward", { reward: value, ...(of ? { turn_id: of } : {}) });
  } }, reward, whose, element("button", { type: "submit", class: "quiet" }, "Set"));
  const added = element("input", { name: "tag", "aria-label": "New tag", placeholder: "new tag", autocomplete: "off" });
  const adding = element("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    if (added.value.trim()) post("/tags", { add: [added.value.trim()] });
  } }, added, element("button", { type: "submit", class: "quiet" }, "Add"));
  return element("section", {}, element("h2", {}, "Attached"), rewards, setting, tags, adding, problem);
}

function actions(tree, turn, data) {
  const done = element("span", { role: "status" });
  const copy = (text) => async () => {
    try {
      await navigator.clipboard.writeText(text());
      done.textContent = "copied";
    } catch {
      done.textContent = "The browser lets this page copy only over HTTPS or on this machine.";
    }
  };
  const path = pathOf(tree.id, `/turns/${encodeURIComponent(turn.id)}/tokens`);
  return element("span", { class: "actions" },
    button("Copy as curl", copy(() => curl(path))),
    button("Copy the request", copy(() => curl("v1/chat/completions", requestOf(tree, turn, data))),
      { disabled: !messagesOf(tree, turn).length, title: "The conversation with the ids that were known, and its sampling, as a chat request" }),
    button("Download JSONL", () => save(`v1/trajectories/export?trajectory=${encodeURIComponent(tree.id)}`, `${tree.id}.jsonl`)),
    done);
}

function messagesOf(tree, turn) {
  if (!turn) return [];
  const parent = tree.turns.find((one) => one.id === turn.parent_id);
  return [...messagesOf(tree, parent).slice(0, turn.messages_before), ...turn.messages];
}

function toolsOf(tree, turn) {
  if (!turn) return null;
  return turn.tools ?? toolsOf(tree, tree.turns.find((one) => one.id === turn.parent_id));
}

const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "stop"];

function requestOf(tree, turn, data) {
  const sampling = Object.fromEntries(SAMPLING.map((name) => [name, turn.sampling?.[name]])
    .filter(([, value]) => value !== null && value !== undefined && !(Array.isArray(value) && !value.length)));
  // Requests have seeds with a sign.
  if (typeof sampling.seed === "string") sampling.seed = BigInt.asIntN(64, BigInt(sampling.seed)).toString();
  const tools = toolsOf(tree, turn);
  const messages = messagesOf(tree, turn).map((message) => Object.fromEntries(Object.entries(message).filter(([, value]) => value !== null)));
  const [answer] = turn.messages;
  const parent = tree.turns.find((one) => one.id === turn.parent_id);
  // With the ids of the answer that it continues, the prompt has the same ids whatever the server remembers.
  if (parent && answer?.role === "assistant") {
    Object.assign(messages[turn.messages_before], {
      prompt_token_ids: data.token_ids.slice(0, parent.prompt_tokens), generation_token_ids: parent.sampled_token_ids,
    });
  }
  return { model: turn.model, messages, ...(tools?.length ? { tools } : {}), ...sampling, return_token_ids: true };
}

function tokens(tree, turn, data, detail, about, signal) {
  const byId = new Map(tree.turns.map((one, at) => [one.id, { ...one, number: at + 1 }]));
  const spans = data.spans;
  const pictures = new Pictures(tree.id, turn.id, data.images, signal);
  const heads = pictures.heads();
  spans.forEach((span, at) => {
    if (at === 0 || spans[at - 1].turn_id !== span.turn_id) heads.push([span.start, () => head(byId.get(span.turn_id))]);
  });
  const textOf = (id) => data.texts[id];
  const legend = element("ul", { class: "legend" });
  const chosen = element("div", { class: "chosen-token", "aria-live": "polite" }, element("h2", {}, "Token"),
    element("p", { class: "hint" }, "Point at a token, or move to one with the keyboard."));
  const view = new TokenView({
    data, textOf, heads, shade: shades(mode, data), label: `Tokens of turn ${byId.get(turn.id).number}`,
    onselect: (at) => fill(chosen, aboutToken(at, data, byId, spanAt, pictures)),
  });
  function spanAt(at) {
    let [low, high] = [0, spans.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (spans[middle].end <= at) low = middle + 1;
      else high = middle;
    }
    return spans[low];
  }
  const recolour = (wanted) => {
    mode = wanted;
    const shade = shades(mode, data);
    view.paint(shade);
    fill(legend, shade.legend.map((entry) => swatch(entry, element)));
  };
  // What came of another turn says nothing of this one.
  recolour(mode !== "check" && MODES.some(([name]) => name === mode) ? mode : "origin");
  const known = mode === "entropy" && !data.entropies;
  fill(detail, [chosen, overview(data, about, view, known)]);
  const drifts = data.drift?.length ?? 0;
  const colours = choice("Colour by", MODES, mode, recolour);
  const toolbar = element("div", { class: "toolbar" },
    element("p", {}, element("strong", {}, many(data.token_ids.length, "token")), data.drift === null
      ? element("span", {}, "drift not known")
      : element("span", { class: drifts ? "warning" : "" }, drifts ? `${many(drifts, "drift")} ` : "no drift")),
    colours, legend,
    element("p", { id: "token-keys", class: "keys" }, "Keys: arrows, Page, Home, End; d drift, t turn (with Shift backwards)"));
  // Shows what came of the turn when it was computed again; null takes an earlier answer away.
  function showCheck(found) {
    data.check = found;
    const wanted = found?.spans.length ? "check" : mode === "check" ? "origin" : mode;
    colours.querySelector("select").value = wanted;
    recolour(wanted);
    if (view.active >= 0) view.select(view.active, false);
  }
  return { toolbar, view, check: showCheck };
}

function head(turn) {
  const found = turn.token_continuity;
  const parts = [
    `Turn ${turn.number}`,
    found ? `${found.outcome}${found.reused ? `: ${count(found.reused)} ids known by ${found.source.replaceAll("_", " ")}` : ""}` : "prompt in ids or text",
    `${many(turn.sampled_token_ids.length, "id")} sampled`,
    turn.finish_reason.replaceAll("_", " "),
  ];
  return element("span", {}, element("strong", {}, parts[0]), ` ${parts.slice(1).join(" · ")}`);
}

// What is said of the whole sequence beside its tokens: where they drift.
function overview(data, about, view, noEntropy) {
  const text = (ids) => ids.map((id) => data.texts[id] ?? "").join("");
  const shown = (data.drift ?? []).slice(0, MOST_DRIFTS).map((drift) => element("li", {}, button("", () => {
    view.go(Math.min(drift.start, data.token_ids.length - 1));
    view.element.focus({ preventScroll: true });
  }, { class: "jump" })));
  shown.forEach((item, at) => {
    const drift = data.drift[at];
    const ids = data.token_ids.slice(drift.start, drift.end);
    item.firstChild.append(element("b", {}, String(drift.start)), element("span", {}, visible(text(ids.length ? ids : drift.token_ids))),
      element("small", {}, `${many(ids.length, "id")} → ${drift.token_ids.length}`));
  });
  return [
    noEntropy && element("p", { class: "hint" }, "No entropies were kept of this sequence: they are where a request asked for alternatives (top_logprobs)."),
    !about.has_texts && element("p", { class: "hint" }, "Without a tokenizer there are only ids: start with `tito inspect FILE MODEL` to see texts and drift."),
    shown.length > 0 && element("h2", {}, "All drifts"),
    shown.length > 0 && element("p", { class: "hint" }, "The text of these ids, encoded again, has other ids. A client that sends text back without ids would train on those."),
    shown.length > 0 && element("ol", { class: "drifts" }, shown),
    data.drift?.length > MOST_DRIFTS && element("p", { class: "hint" }, `The first ${MOST_DRIFTS} of ${count(data.drift.length)}.`),
  ];
}

function aboutToken(at, data, byId, spanAt, pictures) {
  const id = data.token_ids[at];
  const span = spanAt(at);
  const text = data.texts[id];
  const logprob = data.logprobs[at];
  const turn = byId.get(span.turn_id);
  const image = pictures.at(at);
  const origin = { template: "chat template", answer: "message, assistant", prompt: "prompt", reused: "reused ids", sampled: "sampled", kept: "sampled, then reused as ids" }[originOf(span)] ?? `message, ${span.role}`;
  const drift = data.drift?.find((one) => one.start <= at && (at < one.end || one.start === at));
  return [
    element("h2", {}, "Token"),
    element("p", { class: "big" }, text === undefined ? `⟨${id}⟩` : visible(text)),
    facts([
      ["Id", String(id)],
      ["Text", text === undefined ? "no text" : data.fragments.has(id) ? `${text} (a piece of a character)` : JSON.stringify(text)],
      ["Position", count(at)],
      ["Origin", origin],
      ["Turn", `${turn.number}, ${short(turn.id)}`],
      ["Known by", span.source?.replaceAll("_", " ")],
      ["Log-prob", logprob === null ? "" : `${logprob.toFixed(4)} (p ${Math.exp(logprob).toPrecision(3)})`],
      ["Rank", data.ranks?.[at] ?? (logprob === null ? "" : "not kept")],
      ["Entropy", typeof data.entropies?.[at] === "number" && `at least ${data.entropies[at].toFixed(3)} nats`],
      ["Weights", span.weight_version],
      ["Weights of the base", span.base_version],
      ["Adapter", span.adapter],
      ...aboutPosition(data.check, at, data),
    ]),
    image && pictures.about(image),
    drift && sideBySide(drift, data),
  ];
}

function sideBySide(drift, data) {
  const own = data.token_ids.slice(drift.start, drift.end);
  const column = (title, ids, kind) => element("div", {}, element("h3", {}, title), ids.length
    ? element("ol", {}, ids.map((id) => element("li", {}, element("span", { class: `token ${kind}` }, visible(data.texts[id] ?? "")), element("small", {}, String(id)))))
    : element("p", { class: "hint" }, "no id"));
  return element("section", { class: "drift-pair", "aria-label": "Drift" }, element("h2", {}, "Drift here"),
    element("div", { class: "pair" }, column("In the sequence", own, "o-sampled"), column("Encoded again", drift.token_ids, "o-reused")));
}
