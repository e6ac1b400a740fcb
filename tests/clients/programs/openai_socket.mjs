// OpenAI's SDK over its web socket: a response, one that goes on from it, and one that is steered, each told in a line.
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

const model = process.env.MODEL;
const tell = (said) => console.log(JSON.stringify(said));
const ws = new ResponsesWS(new OpenAI({ maxRetries: 0 }));
const events = ws.stream();
const ask = (more) => ws.send({ type: "response.create", model, store: false, stream_id: "main", ...more });
const textOf = (response) =>
  response.output.flatMap((item) => (item.type === "message" ? item.content.map((part) => part.text) : [])).join("");

async function next() {
  for (;;) {
    const { value } = await events.next();
    if (value.type === "error") throw value.error;
    if (value.type === "message") return value.message;
  }
}

async function response() {
  for (;;) {
    const event = await next();
    if (event.type === "response.completed") return event.response;
  }
}

ask({ input: "My name is Ada." });
const first = await response();
ask({ input: "Who am I?", previous_response_id: first.id });
tell({ texts: [textOf(first), textOf(await response())] });
ask({ input: "Plan it.", stream_id: "plan" });
const created = [];
for (;;) {
  const event = await next();
  if (event.type === "response.created") {
    created.push(event.response.id);
    if (created.length === 1)
      ws.send({ type: "response.steer", previous_response_id: created[0], input: "Keep it small." });
  } else if (event.type === "response.steer.accepted") {
    tell({ accepted: event.steer.previous_response_id === created[0] });
  } else if (event.type === "response.completed" && created.length === 2) {
    tell({ steered: textOf(event.response), lane: event.stream_id });
    break;
  }
}
ws.close();
