import { DefaultChatTransport, getToolName, isToolUIPart } from "ai";
import type { AbstractChat, ChatInit, UIMessage } from "ai";

const API = "/agent/ai-sdk";
const NATIVE = "/agent/native";

export type AnyChat = Pick<
  AbstractChat<UIMessage>,
  "id" | "messages" | "stop" | "resumeStream"
>;

/** The conversation's id, kept in the address. */
export function chatId(): string {
  const url = new URL(location.href);
  const id = url.searchParams.get("chat") ?? crypto.randomUUID();
  url.searchParams.set("chat", id);
  history.replaceState(null, "", url);
  return id;
}

/** The token that your sign-in has stored; without one, the browser sends its cookie. */
function headers(): Record<string, string> {
  const token = sessionStorage.getItem("token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function get(url: string) {
  const response = await fetch(url, { headers: headers() });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

/** The messages, with the questions that wait as metadata: `approvals`, by call id. */
async function load(id: string): Promise<{ messages: UIMessage[]; running: boolean }> {
  const path = `${encodeURIComponent(id)}/messages`;
  const [{ messages, running }, { pending, mayAnswer }] = await Promise.all([
    get(`${API}/${path}`),
    get(`${NATIVE}/${path}`),
  ]);
  const approvals: Record<string, string> = {};
  for (const request of mayAnswer ? pending : []) approvals[request.call.id] = request.id;
  if (pending.length) messages.at(-1).metadata = { ...messages.at(-1).metadata, approvals };
  return { messages, running };
}

/** A chat with what was said before; it goes on with an answer that is being made. */
export async function open<C extends AnyChat>(make: (init: ChatInit<UIMessage>) => C): Promise<C> {
  const id = chatId();
  const { messages, running } = await load(id);
  const chat: C = make({
    id,
    messages,
    transport: new DefaultChatTransport({ api: API, headers }),
    onFinish: () => setTimeout(() => refresh(chat)), // the answer may have ended with a question
  });
  if (running) void resume(chat);
  return chat;
}

async function refresh(chat: AnyChat): Promise<boolean> {
  const { messages, running } = await load(chat.id);
  chat.messages = messages;
  return running;
}

async function resume(chat: AnyChat): Promise<void> {
  await chat.resumeStream();
  await refresh(chat); // in case the answer has ended meanwhile
}

/** Stops the answer on the server; its stream then ends. */
export async function stop(chat: AnyChat): Promise<void> {
  const url = `${API}/${encodeURIComponent(chat.id)}/stop`;
  const response = await fetch(url, { method: "POST", headers: headers() }).catch(() => null);
  if (!response?.ok) await chat.stop(); // at least stop reading
}

export async function answer(chat: AnyChat, id: string, approved: boolean): Promise<void> {
  const response = await fetch(NATIVE, {
    method: "POST",
    headers: { ...headers(), "Content-Type": "application/json" },
    body: JSON.stringify({ conversation: chat.id, answers: { [id]: { approved } } }),
  });
  if (!response.ok) throw new Error(await response.text());
  await response.body?.cancel(); // the answer goes on; it is read by the SDK
  if (await refresh(chat)) await resume(chat);
}

/** Marks that hide or reorder text as numbers: a question must read as what runs. */
const visible = (text: string) =>
  text.replace(/\p{Cf}/gu, (mark) => `\\u{${mark.codePointAt(0)!.toString(16)}}`);

/** What a page shows of a message; `approval` is the id of a question that waits. */
export function shown(message: UIMessage): { text: string; approval?: string }[] {
  const { approvals = {} } = (message.metadata ?? {}) as { approvals?: Record<string, string> };
  return message.parts.flatMap((part) => {
    if (part.type === "text" && !part.providerMetadata?.hookline?.withdrawn) {
      return [{ text: part.text }];
    }
    if (!isToolUIPart(part)) return [];
    const approval = approvals[part.toolCallId];
    const text = visible(`${getToolName(part)} ${JSON.stringify(part.input)}: ${part.state}`);
    return [approval ? { text, approval } : { text }];
  });
}
