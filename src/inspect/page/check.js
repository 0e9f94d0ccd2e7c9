// A turn, computed again by the server: sampled once more or scored, and compared position by position.

import { button, count, element, facts, fill, many } from "./dom.js";
import { json, pathOf } from "./server.js";

const MOST_DIFFERENCES = 200;
const VERDICTS = {
  equal: "equal to the bit",
  log_prob: "the same id, another log-prob",
  sampling_mask: "the same id, drawn from other ids",
  token_id: "another id",
  ended: "the turn has ended before",
  not_compared: "not compared",
};
const WHOLE = { equal: "Equal to the bit", in_part: "Equal, as far as it was compared", differs: "Differs" };

// The classes of positions, and what they mean, in the order of the legend.
export const CHECKED = Object.entries(VERDICTS).map(([verdict, text]) => [`c-${verdict.replace("_", "-")}`, text]);
export const classOf = (verdict) => `c-${verdict.replace("_", "-")}`;

// The part of the page that starts a check. `shown(check)` is told each answer, and null when a new one is on its way.
export function checking({ tree, turn, about, signal, shown, go }) {
  const title = element("h2", {}, "Compute this turn again");
  if (about.read_only) {
    return element("section", { class: "check" }, title, element("p", { class: "hint" },
      "A file is looked at here. `tito replay FILE MODEL` samples its turns again; a server that was started with --capture does so on this page."));
  }
  const result = element("div", { class: "verdict", role: "status" });
  const start = async (what) => {
    buttons.forEach((one) => { one.disabled = true; });
    shown(null);
    fill(result, [element("p", { class: "hint" }, what === "replay" ? "It is being sampled again …" : "It is being scored …")]);
    try {
      const check = await json(pathOf(tree.id, `/turns/${encodeURIComponent(turn.id)}/${what}`), { body: {}, signal });
      fill(result, verdict(check, what, go));
      shown(check);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(result, [element("p", { class: "warning" }, error.message)]);
    } finally {
      buttons.forEach((one) => { one.disabled = false; });
    }
  };
  const buttons = [
    button("Replay", () => start("replay"), { class: "quiet", title: "Samples the turn again with its ids, seed and sampling, and compares every bit" }),
    button("Score again", () => start("rescore"), { class: "quiet", title: "Computes the log-probs of the sampled ids again, as those of a prompt" }),
  ];
  return element("section", { class: "check", "aria-label": "Compute this turn again" }, title, element("p", { class: "row" }, buttons), result);
}

function verdict(check, what, go) {
  const cannot = what === "replay" ? "Cannot be replayed" : "Cannot be scored again";
  const differences = check.spans.filter(({ verdict }) => !["equal", "not_compared"].includes(verdict));
  const of = (name) => check.spans.filter(({ verdict }) => verdict === name).reduce((sum, { start, end }) => sum + end - start, 0);
  const { rescored } = check;
  return [
    element("p", { class: `whole w-${check.verdict.replace("_", "-")}` }, WHOLE[check.verdict] ?? cannot),
    element("p", {}, check.message.charAt(0).toUpperCase() + check.message.slice(1)),
    check.reasons.length > 0 && element("ul", {}, check.reasons.map((reason) => element("li", {}, reason))),
    facts([
      ["Weights now", check.weight_version],
      ["Equal", check.spans.length > 0 && many(of("equal"), "token")],
      ["Not compared", of("not_compared") > 0 && many(of("not_compared"), "token")],
      ["Greatest difference", rescored && `${rescored.greatest.toPrecision(3)} nats`],
      ["Mean difference", rescored && `${rescored.mean_difference.toPrecision(3)} nats`],
    ]),
    differences.length > 0 && element("ol", { class: "drifts" }, differences.slice(0, MOST_DIFFERENCES).map((span) => jump(span, go))),
    differences.length > MOST_DIFFERENCES && element("p", { class: "hint" }, `The first ${MOST_DIFFERENCES} of ${count(differences.length)}.`),
  ];
}

function jump({ start, end, verdict: name }, go) {
  const made = button("", () => go(start), { class: "jump" });
  made.append(element("b", {}, String(start)), element("span", {}, VERDICTS[name]), element("small", {}, end - start > 1 ? many(end - start, "token") : ""));
  return element("li", {}, made);
}

// What the check says of a position, as facts; none where it says nothing.
export function aboutPosition(check, at, data) {
  const span = check?.spans.find(({ start, end }) => start <= at && at < end);
  if (!span) return [];
  const id = check.token_ids?.[at - check.start];
  const [then, now] = [data.logprobs[at], check.logprobs[at - check.start] ?? null];
  const isSame = ["equal", "log_prob", "sampling_mask"].includes(span.verdict);
  return [
    [check.token_ids ? "Replayed" : "Scored again", VERDICTS[span.verdict]],
    ["Id now", span.verdict === "token_id" && `${id}${data.texts[id] === undefined ? "" : ` ${JSON.stringify(data.texts[id])}`}`],
    ["Log-prob now", (isSame || span.verdict === "token_id") && now !== null && String(now)],
    ["Differs by", span.verdict === "log_prob" && then !== null && now !== null && `${(now - then).toPrecision(3)} nats`],
  ];
}
