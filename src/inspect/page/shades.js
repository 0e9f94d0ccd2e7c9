// How tokens are coloured: by origin, log-prob, entropy, weights, or what came of them when they were computed again. Every class differs in lightness or in its lines too,
// so that no meaning hangs on a hue (page.css).

import { CHECKED, classOf } from "./check.js";
import { count } from "./dom.js";

export const MODES = [["origin", "origin"], ["logprob", "log-prob"], ["entropy", "entropy"], ["weights", "weight version"],
  ["check", "computed again"]];

const ROLES = { system: "system", developer: "system", tool: "tool", function: "tool", assistant: "answer" };
const ORIGINS = {
  template: "template",
  system: "message: system",
  user: "message: user",
  tool: "message: tool",
  answer: "message: assistant, encoded from text",
  prompt: "prompt, origin not known",
  reused: "reused ids",
  kept: "sampled, then reused as ids",
  sampled: "sampled",
};
const LIKELY = [[0.9, "p ≥ 0.9"], [0.5, "0.5 – 0.9"], [0.1, "0.1 – 0.5"], [0.01, "0.01 – 0.1"], [0, "p < 0.01"]];
const SURE = [[0.1, "below 0.1 nats"], [0.5, "0.1 – 0.5"], [1, "0.5 – 1"], [2, "1 – 2"], [Infinity, "2 and more"]];
const MOST_VERSIONS = 6;

export function originOf(span) {
  if (span.origin === "message") return ROLES[span.role] ?? "user";
  return span.origin === "sampled" && span.source ? "kept" : span.origin;
}

// The class of each token, and what the classes mean.
export function shades(mode, data) {
  const kinds = new Map();
  const of = new Uint8Array(data.token_ids.length);
  const counts = [];
  const kind = (name, text) => {
    if (!kinds.has(name)) {
      kinds.set(name, { index: kinds.size, text });
      counts.push(0);
    }
    return kinds.get(name).index;
  };
  const fill = (start, end, index) => {
    of.fill(index, start, end);
    counts[index] += end - start;
  };
  if (mode === "origin") {
    for (const name of Object.keys(ORIGINS)) kind(`o-${name}`, ORIGINS[name]);
    for (const span of data.spans) fill(span.start, span.end, kind(`o-${originOf(span)}`));
  } else if (mode === "weights") {
    const versions = [...new Set(data.spans.filter(isSampled).map((span) => weightsOf(span)))];
    kind("none", "not sampled");
    versions.forEach((version, at) => kind(`v-${at % MOST_VERSIONS}${at < MOST_VERSIONS ? "" : ` v-again-${at}`}`, version));
    const names = [...kinds.keys()];
    for (const span of data.spans) {
      fill(span.start, span.end, isSampled(span) ? kinds.get(names[versions.indexOf(weightsOf(span)) + 1]).index : 0);
    }
  } else if (mode === "check") {
    const none = kind("none", data.check ? "not sampled by this turn, or not compared" : "nothing was computed again");
    for (const [name, text] of CHECKED) kind(name, text);
    fill(0, of.length, none);
    for (const { start, end, verdict } of data.check?.spans ?? []) {
      counts[none] -= end - start;
      fill(start, end, kinds.get(classOf(verdict)).index);
    }
  } else {
    scale(mode, data, of, counts, kind);
  }
  const known = [...kinds.entries()].map(([name, { index, text }]) => ({ name, text, count: counts[index] }));
  return { of, classes: known.map(({ name }) => name), legend: known.filter((entry) => entry.count > 0) };
}

function scale(mode, data, of, counts, kind) {
  const isLogprob = mode === "logprob";
  const bins = isLogprob ? LIKELY : SURE;
  bins.forEach(([, text], at) => kind(`s-${at}`, text));
  const none = kind("none", "not sampled, or not known");
  const column = isLogprob ? data.logprobs : data.entropies;
  for (let at = 0; at < of.length; at += 1) {
    const value = column?.[at] ?? null;
    let index = none;
    if (value !== null) {
      index = isLogprob
        ? bins.findIndex(([least]) => Math.exp(value) >= least)
        : bins.findIndex(([most]) => value < most);
    }
    of[at] = index;
    counts[index] += 1;
  }
}

const isSampled = (span) => span.origin === "sampled";
const weightsOf = (span) => `${span.weight_version ?? "not known"}${span.base_version ? ` on ${span.base_version}` : ""}${span.adapter ? ` · ${span.adapter}` : ""}`;

export function swatch({ name, text, count: number }, element) {
  return element("li", {}, element("span", { class: `token ${name}`, "aria-hidden": "true" }, "abc"), `${text} `,
    element("small", {}, count(number)));
}
