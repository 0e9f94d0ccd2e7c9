// What the client said in the request of a turn, in the JSON of its own dialect, and not what the chat template made of it.

import { count, element, many } from "./dom.js";

const NAMES = { chat_completions: "/v1/chat/completions", messages: "/v1/messages", responses: "/v1/responses" };
const SYSTEM = { messages: "system", responses: "instructions" };
const LONGEST = 20000;

export function saidBy(turn) {
  const { said } = turn;
  const title = element("h2", {}, "What the client said");
  if (!said) {
    return element("section", { class: "said" }, title,
      element("p", { class: "hint" }, "Not kept: the endpoint has no messages, or texts are not captured."));
  }
  const before = said.items_before > 0 && element("p", { class: "hint" }, `After ${many(said.items_before, "item")} of the turn before.`);
  return element("section", { class: "said" }, title, element("p", { class: "hint" }, `To ${NAMES[said.dialect] ?? said.dialect}`), before,
    beside(SYSTEM[said.dialect] ?? "system", said.system), beside("tools", said.tools),
    said.items.map((item) => block(headOf(item), item)));
}

// Null is that of the turn before, or none; false says that there is none any more.
function beside(name, value) {
  if (value === null) return null;
  return value === false ? element("p", { class: "hint" }, `No ${name} any more.`) : block(name, value);
}

const headOf = (item) => (typeof item === "string" ? "text" : [item?.role, item?.type === "message" ? null : item?.type].filter((word) => typeof word === "string").join(" · ") || "item");

function block(head, value) {
  const text = JSON.stringify(value, null, 1);
  const shown = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return element("details", {}, element("summary", {}, head.slice(0, 60), element("small", {}, ` ${count(text.length)} characters`)), element("pre", { tabindex: "0" }, shown));
}
