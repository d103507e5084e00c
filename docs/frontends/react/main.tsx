import { Chat, useChat } from "@ai-sdk/react";
import type { UIMessage } from "ai";
import { StrictMode, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";
import { answer, open, shown, stop } from "./agent";

function Page({ chat }: { chat: Chat<UIMessage> }) {
  const { messages, sendMessage, status, error } = useChat({ chat });
  const [text, setText] = useState("");
  const busy = status === "submitted" || status === "streaming";

  function send(event: FormEvent) {
    event.preventDefault();
    if (busy || !text.trim()) return;
    void sendMessage({ text });
    setText("");
  }

  return (
    <main>
      {messages.map((message) => (
        <section key={message.id} className={message.role}>
          {shown(message).map(({ text, approval }, index) => (
            <div key={index}>
              <p>{text}</p>
              {approval && (
                <>
                  <button onClick={() => void answer(chat, approval, true)}>Approve</button>
                  <button onClick={() => void answer(chat, approval, false)}>Deny</button>
                </>
              )}
            </div>
          ))}
        </section>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(e) => setText(e.target.value)} />
        {status === "streaming" ? (
          <button type="button" onClick={() => void stop(chat)}>Stop</button>
        ) : (
          <button disabled={busy}>Send</button>
        )}
      </form>
      <a href="?">New chat</a>
    </main>
  );
}

const root = createRoot(document.getElementById("root")!);
open((init) => new Chat(init)).then(
  (chat) => root.render(<StrictMode><Page chat={chat} /></StrictMode>),
  (error: Error) => root.render(<p role="alert">{error.message}</p>),
);
