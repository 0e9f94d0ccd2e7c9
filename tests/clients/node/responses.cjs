// The Responses API by the official client for Node: create, stream, parse, and a tool loop by previous_response_id.
// Prints what came back as JSON.
const { OpenAI } = require("openai");

async function main({ url, questions, tools, schema }) {
  const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const model = "smollm2";
  const created = await client.responses.create({ model, input: questions[0] });
  const events = [];
  let streamed = "";
  for await (const event of await client.responses.create({ model, input: questions[0], stream: true })) {
    events.push(event.type);
    if (event.type === "response.output_text.delta") streamed += event.delta;
  }
  const helper = client.responses.stream({ model, input: questions[0] });
  const folded = (await helper.finalResponse()).output_text;
  const text = { format: { type: "json_schema", name: "person", schema, strict: true } };
  const parsed = (await client.responses.parse({ model, input: questions[0], text })).output_parsed;

  const turns = [];
  let previous = undefined;
  let said = "";
  for (const question of questions) {
    let input = [{ role: "user", content: question }];
    while (input.length > 0) {
      const body = { model, input, tools, previous_response_id: previous, include: ["token_ids"] };
      const { data, response } = await client.responses.create(body).withResponse();
      const last = data.output.at(-1);
      turns.push([response.headers.get("x-token-continuity"), last.prompt_token_ids, last.generation_token_ids]);
      previous = data.id;
      said = data.output_text;
      input = data.output
        .filter((item) => item.type === "function_call")
        .map((item) => ({ type: "function_call_output", call_id: item.call_id, output: "7 degrees" }));
    }
  }
  console.log(JSON.stringify({ created: created.output_text, streamed, folded, events, parsed, turns, said }));
}

main(JSON.parse(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
