import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
} from "ai";
import type { AbstractChat, ChatInit, UIMessage } from "ai";

const API = "/agent/ai-sdk";

export type AnyChat = Pick<
  AbstractChat<UIMessage>,
  "id" | "messages" | "status" | "stop" | "resumeStream" | "addToolApprovalResponse"
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

async function load(id: string): Promise<{ messages: UIMessage[]; running: boolean }> {
  const response = await fetch(`${API}/${encodeURIComponent(id)}/messages`, { headers: headers() });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

/** A chat with what was said before; it goes on with an answer that is being made. */
export async function open<C extends AnyChat>(make: (init: ChatInit<UIMessage>) => C): Promise<C> {
  const id = chatId();
  const { messages, running } = await load(id);
  const chat: C = make({
    id,
    messages,
    transport: new DefaultChatTransport({ api: API, headers }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onFinish: () => setTimeout(() => waitForDecision(chat)),
  });
  void (running ? resume(chat) : waitForDecision(chat));
  return chat;
}

async function resume(chat: AnyChat): Promise<void> {
  await chat.resumeStream();
  chat.messages = (await load(chat.id)).messages; // in case the answer has ended meanwhile
}

/** Whether this user may answer the questions of a message; with `approvers=`, others do. */
const mayAnswer = (message?: UIMessage) =>
  (message?.metadata as { approvals?: boolean } | undefined)?.approvals !== false;

/** Asks every few seconds whether somebody else has decided; then the answer goes on. */
async function waitForDecision(chat: AnyChat): Promise<void> {
  const waits = () => {
    const last = chat.messages.at(-1);
    const parts = last?.parts.filter(isToolUIPart) ?? [];
    return !mayAnswer(last) && parts.some(({ state }) => state === "approval-requested");
  };
  while (waits()) {
    await new Promise((done) => setTimeout(done, 3000));
    if (chat.status !== "ready") return; // the end of that answer begins to wait again
    const now = await load(chat.id).catch(() => null);
    if (now?.running) return resume(chat);
    if (now) chat.messages = now.messages;
  }
}

/** Stops the answer on the server; its stream then ends. */
export async function stop(chat: AnyChat): Promise<void> {
  const url = `${API}/${encodeURIComponent(chat.id)}/stop`;
  const response = await fetch(url, { method: "POST", headers: headers() }).catch(() => null);
  if (!response?.ok) await chat.stop(); // at least stop reading
}

export async function answer(chat: AnyChat, id: string, approved: boolean): Promise<void> {
  await chat.addToolApprovalResponse({ id, approved });
}

/** Marks that hide or reorder text as numbers: a question must read as what runs. */
const visible = (text: string) =>
  text.replace(/\p{Cf}/gu, (mark) => `\\u{${mark.codePointAt(0)!.toString(16)}}`);

/** The questions about a waiting call, with their details, such as a difference. */
function questions(message: UIMessage, call: string): string {
  type Question = { prompt: string; details?: Record<string, unknown> };
  const line = ([name, value]: [string, unknown]) =>
    `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
  const { questions = {} } = (message.metadata ?? {}) as { questions?: Record<string, Question[]> };
  const texts = (questions[call] ?? []).map(({ prompt, details = {} }) =>
    [prompt, ...Object.entries(details).map(line)].join("\n"),
  );
  return visible(texts.join("\n"));
}

/** What a page shows of a message; `approval` is the id of a question that waits. */
export function shown(message: UIMessage): { text: string; approval?: string }[] {
  return message.parts.flatMap((part) => {
    if (part.type === "text" && !part.providerMetadata?.hookline?.withdrawn) {
      return [{ text: part.text }];
    }
    if (!isToolUIPart(part)) return [];
    const text = visible(`${getToolName(part)} ${JSON.stringify(part.input)}: ${part.state}`);
    const asks = part.state === "approval-requested" && mayAnswer(message);
    if (!asks) return [{ text }];
    const asked = `${text}\n${questions(message, part.toolCallId)}`;
    return [{ text: asked, approval: part.approval.id }];
  });
}
