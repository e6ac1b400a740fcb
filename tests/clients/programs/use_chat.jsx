// `useChat` as the manual has it, with a server's address and a chat's id: what it makes of a message is on the page.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { createRoot } from "react-dom/client";

const server = new URLSearchParams(location.search).get("server");
const transport = new DefaultChatTransport({ api: `${server}/ui/chat` });

function Page() {
  const { messages, sendMessage, status } = useChat({ id: "plain", resume: true, transport });
  return (
    <main data-status={status}>
      {messages.map((message) => (
        <article key={message.id}>{message.parts.map((part) => part.text ?? part.output).join("|")}</article>
      ))}
      <button onClick={() => sendMessage({ text: "Count." })}>Ask</button>
    </main>
  );
}

createRoot(document.querySelector("#page")).render(<Page />);
