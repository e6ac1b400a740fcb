import { Chat, useChat } from "@ai-sdk/react";
import { DefaultChatTransport, generateId, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const server = new URLSearchParams(location.search).get("server") ?? "http://127.0.0.1:8642";
const api = `${server}/ui/chat`;
location.hash ||= generateId(); // the address keeps the chat, the browser its messages
const id = location.hash.slice(1);
const chat = new Chat({
  id,
  messages: JSON.parse(localStorage.getItem(id) ?? "[]"),
  transport: new DefaultChatTransport({ api }),
  sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
});

function Part({ part, answer }) {
  if (part.type === "text") return <p>{part.text}</p>;
  if (part.type === "reasoning") return <details><summary>Thoughts</summary>{part.text}</details>;
  if (part.type === "source-url") return <a href={part.url}>{part.title ?? part.url}</a>;
  if (part.type !== "dynamic-tool") return null;
  const asks = part.state === "approval-requested";
  return (
    <pre>
      {part.toolName} {JSON.stringify(part.input)} {part.state}{"\n"}{part.output ?? part.errorText}
      {asks && <button onClick={() => answer({ id: part.approval.id, approved: true })}>Approve</button>}
      {asks && <button onClick={() => answer({ id: part.approval.id, approved: false })}>Deny</button>}
    </pre>
  );
}

function Page() {
  const [text, setText] = useState("");
  const { messages, setMessages, sendMessage, regenerate, status, error, addToolApprovalResponse } = useChat({ chat, resume: true });
  useEffect(() => localStorage.setItem(id, JSON.stringify(messages)), [messages]);
  useEffect(() => { // an answer that ended while the page was away is not resumed: the server has the rest of it
    const last = messages.at(-1);
    const show = (all) => all.some((message) => message.id === last.id) && setMessages(all);
    if (status === "ready" && last?.metadata?.status === "running") fetch(`${api}/${id}/messages`).then((answer) => answer.json()).then(show);
  }, [status]);
  const send = (event) => (event.preventDefault(), sendMessage({ text }), setText(""));
  const end = () => fetch(`${api}/${id}/stop`, { method: "POST" }); // the stream says how the run ended: stop() would not wait
  return (
    <main data-status={status}>
      {messages.map(({ id, role, parts }) => (
        <article key={id} className={role}>
          {parts.map((part, n) => <Part key={n} part={part} answer={addToolApprovalResponse} />)}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
        <button>Send</button> <button type="button" onClick={end}>Stop</button>
        <button type="button" onClick={() => regenerate()}>Regenerate</button>
      </form>
    </main>
  );
}

createRoot(document.querySelector("#page")).render(<Page />);
