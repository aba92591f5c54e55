// A client of the gateway for web pages: one message, its answer while it is written, through lost connections.
//
//   import { say } from "./chat.js";
//   const answer = await say({ url: "wss://…/v1/ws", token, session: "kitchen", text, onText: show });
//
// The page must come from the server itself, or its origin must be in the setting `gateway.origins`.

const AGAIN_MS = 500;
const POLICY = 1008; // what another connection would end with, too

export async function say(message) {
  const talk = { key: crypto.randomUUID(), stream: "", seq: 0, texts: new Map(), onText: () => {}, ...message };
  for (;;) {
    const end = await connection(talk);
    if (end.answer) return end.answer;
    if (end.error) throw new Error(end.error);
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

// One connection: {answer}, {error}, or {} if it was lost.
function connection(talk) {
  return new Promise((resolve) => {
    const socket = new WebSocket(talk.url);
    const ask = (method, params) => socket.send(JSON.stringify({ type: "req", id: method, method, params }));
    const end = (how) => {
      resolve(how);
      socket.close();
    };
    const send = () =>
      ask("chat.send", { session: talk.session, text: talk.text, key: talk.key, stream: true });
    const results = {
      connect: () => (talk.stream ? ask("chat.resume", { stream: talk.stream, seq: talk.seq }) : send()),
      "chat.resume": ({ resumed }) => resumed || send(), // the same key is the same message
      "chat.send": ({ stream }) => Object.assign(talk, { stream, seq: 0, texts: new Map() }),
    };
    socket.onopen = () => ask("connect", { token: talk.token });
    socket.onclose = ({ code, reason }) => resolve(code === POLICY ? { error: reason } : {});
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === "event") heard(talk, frame, end);
      else if (frame.ok) results[frame.id](frame.payload);
      else end({ error: frame.error.message });
    };
  });
}

function heard(talk, { event, payload, seq }, end) {
  talk.seq = seq;
  const before = [...(talk.texts.get(payload.system_id) ?? "")]; // offsets count code points
  if (event === "chat.delta") talk.texts.set(payload.system_id, before.slice(0, payload.offset).join("") + payload.text);
  if (event === "chat.reset") talk.texts.set(payload.system_id, "");
  talk.onText([...talk.texts.values()].join("\n\n"));
  if (event === "chat.done") end({ answer: { ...payload, folded: [...talk.texts.values()].join("\n\n") } });
  if (event === "chat.error") end({ error: payload.message });
}
