// The TypeScript SDK of the Agent Client Protocol, as a test holds it: what acp_c.py says of itself
// holds here, too, but for `socket` and `argv`.

import { createInterface } from "node:readline";
import * as acp from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import WebSocket from "ws";

const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");
const questions = new Map();
let connection;

function question({ params }) {
  const id = `question-${questions.size}`;
  say({ id, method: "session/request_permission", params });
  return new Promise((answered) => questions.set(id, answered));
}

function tapped(name) {
  return new TransformStream({
    transform(message, controller) {
      say({ method: "wire", params: { [name]: message } });
      controller.enqueue(message);
    },
  });
}

function connect({ url, headers }) {
  const stream = url.startsWith("ws")
    ? createWebSocketStream(url, { headers, WebSocket })
    : createHttpStream(url, { headers });
  const said = tapped("said");
  said.readable.pipeTo(stream.writable).catch(() => {}); // the SDK tells what broke
  connection = acp
    .client({ name: "test" })
    .onRequest(acp.methods.client.session.requestPermission, question)
    .onNotification(acp.methods.client.session.update, ({ params }) =>
      say({ method: "session/update", params }),
    )
    .connect({ readable: stream.readable.pipeThrough(tapped("heard")), writable: said.writable });
}

async function disconnect() {
  connection.close();
  await connection.closed;
}

function ask({ id, method, params }) {
  if (method === "connect") return connect(params);
  if (method === "disconnect") return disconnect();
  return id ? connection.agent.request(method, params) : connection.agent.notify(method, params);
}

async function answer(message) {
  let told;
  try {
    told = { result: (await ask(message)) ?? {} };
  } catch ({ code = 0, message }) {
    told = { error: { code, message } };
  }
  if (message.id) say({ id: message.id, ...told });
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.method) answer(message);
  else questions.get(message.id)(message.result);
}
process.exit(0);
