// Chat, stream, tools and a completion by the official client for Node; prints what came back as JSON.
const { OpenAI } = require("openai");

async function main({ url, question, prompt, tool }) {
  const client = new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 });
  const asked = { model: "smollm2", messages: [{ role: "user", content: question }], max_tokens: 12, temperature: 0 };
  const chat = (await client.chat.completions.create(asked)).choices[0].message.content;
  let stream = "";
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
    stream += chunk.choices[0]?.delta?.content ?? "";
  }
  const calling = { ...asked, max_tokens: 200, tools: [tool], tool_choice: "required" };
  const [call] = (await client.chat.completions.create(calling)).choices[0].message.tool_calls;
  const completion = await client.completions.create({ model: "smollm2", prompt, max_tokens: 12, temperature: 0 });
  const said = { chat, stream, call: [call.function.name, call.function.arguments], completion: completion.choices[0].text };
  console.log(JSON.stringify(said));
}

main(JSON.parse(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
