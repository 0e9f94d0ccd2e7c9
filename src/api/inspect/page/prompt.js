// What would happen: a conversation in, its prompt out, as the server would make it. Nothing is generated.

import { element, facts, fill, many } from "./dom.js";
import { shades, swatch } from "./shades.js";
import { json } from "./server.js";
import { TokenView } from "./tokens.js";

const EXAMPLE = [
  { role: "user", content: "Name a volcano in Iceland." },
];

export async function showPrompt({ main, about }) {
  const title = element("h1", {}, "What would happen");
  if (about.read_only) {
    fill(main, [title, element("p", { class: "empty" },
      "A file is looked at here, without a server that could answer. Open this page at a server that was started with --capture.")]);
    return null;
  }
  let view = null;
  const input = element("textarea", { id: "messages", rows: "14", spellcheck: "false", "aria-describedby": "messages-hint",
    value: JSON.stringify(EXAMPLE, null, 2) });
  const result = element("section", { class: "result", "aria-label": "The prompt", "aria-live": "polite" });
  const form = element("form", { class: "ask", onsubmit: async (event) => {
    event.preventDefault();
    await run();
  } }, element("label", { for: "messages" }, "Messages, or the body of a chat request, as JSON"), input,
    element("p", { id: "messages-hint", class: "hint" },
      "Assistant messages may carry prompt_token_ids and generation_token_ids. The prompt is made as for an answer, and nothing is sampled. Ctrl+Enter sends."),
    element("button", { type: "submit" }, "Show the prompt"));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  fill(main, [title, element("div", { class: "prompt" }, form, result)]);

  async function run() {
    view?.close();
    view = null;
    let body;
    try {
      const given = JSON.parse(input.value);
      body = Array.isArray(given) ? { messages: given } : given;
    } catch (error) {
      return refuse("This is not JSON", error.message);
    }
    try {
      show(await json("tokenize", { body: { ...body, return_token_strs: true, return_token_continuity: true } }));
    } catch (error) {
      refuse(error.status === 400 ? "The server refuses this conversation" : "The server did not answer", error.message);
    }
  }

  function refuse(heading, text) {
    fill(result, [element("div", { class: "refused", role: "alert" }, element("h2", {}, heading), element("p", {}, text))]);
  }

  function show(answer) {
    const found = answer.token_continuity ?? {};
    const reused = found.reused_ids ?? 0;
    const spans = [[0, reused, "reused"], [reused, answer.count, "prompt"]].filter(([start, end]) => end > start)
      .map(([start, end, origin]) => ({ start, end, origin }));
    const names = new Map(answer.tokens.map((id, at) => [id, answer.token_strs[at]]));
    const data = { token_ids: answer.tokens, spans, logprobs: [], drift: null };
    const shade = shades("origin", data);
    const legend = shade.legend.map((entry) => swatch({ ...entry, text: entry.name === "o-prompt" ? "encoded from text" : entry.text }, element));
    const chosen = element("p", { class: "chosen", role: "status" });
    view = new TokenView({ data, shade, label: "Tokens of the prompt", textOf: (id) => spelt(names.get(id)),
      onselect: (at) => { chosen.textContent = `position ${at} · id ${answer.tokens[at]} · ${names.get(answer.tokens[at])}`; } });
    fill(result, [
      facts([
        ["Prompt", `${many(answer.count, "id")} of at most ${answer.max_model_len}`],
        ["Outcome", found.outcome],
        ["Known ids", reused ? `${many(reused, "id")}, by ${found.source.replaceAll("_", " ")}` : "none"],
        ["Proof", found.proof?.replaceAll("_", " ")],
        ["Matched by", found.matched_by?.replaceAll("_", " ")],
        ["Ends at message", found.anchor],
        ["Reason", found.reason?.replaceAll("_", " ")],
        ["Warnings", found.warnings?.map((one) => one.replaceAll("_", " ")).join(", ")],
        ["Encoding again", found.drift && (found.drift.differs ? `differs from position ${found.drift.position}` : "gives the same ids")],
      ]),
      element("ul", { class: "legend" }, legend), view.element, chosen,
      element("p", { class: "hint", id: "token-keys" }, "Tokens are spelt as the vocabulary spells them."),
    ]);
    view.layout();
  }
  return () => view?.close();
}

// Byte-level vocabularies spell a blank as Ġ and a new line as Ċ, those of SentencePiece a blank as ▁.
function spelt(text) {
  return text?.replaceAll("Ġ", " ").replaceAll("Ċ", "\n").replaceAll("▁", " ");
}
