import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

const API = "/agent/ag-ui";

/** The conversation's id, kept in the address. */
function chatId(): string {
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

const id = chatId();
const url = (what: string) => `${API}/${encodeURIComponent(id)}/${what}`;

class ResumableAgent extends HttpAgent {
  protected override connect() {
    return transformHttpEventStream(
      runHttpRequest(() => fetch(url("stream"), { headers: headers() })),
    );
  }
}

const agent = new ResumableAgent({ url: API, threadId: id });
const decisions = new Map<string, boolean>(); // AG-UI wants the answers to all questions at once
let problem = "";

/** Reads the conversation; gives whether an answer is being made. */
async function restore(): Promise<boolean> {
  const response = await fetch(url("messages"), { headers: headers() });
  if (!response.ok) throw new Error(await response.text());
  const { messages, pending, running } = await response.json();
  agent.setMessages(messages);
  agent.pendingInterrupts = pending.map((request: any) => ({
    id: request.id,
    reason: "tool_call",
    toolCallId: request.call.id,
    message: request.prompts.join("\n"),
  }));
  return running;
}

/** Does something that takes a while, with the page drawn before and after. */
async function during(work: () => Promise<unknown>): Promise<void> {
  problem = "";
  try {
    const done = work();
    draw();
    await done;
  } catch (error) {
    problem = (error as Error).message;
  }
  draw();
}

const run = (resume?: { interruptId: string; status: "resolved"; payload: unknown }[]) =>
  during(() => {
    agent.headers = headers();
    return agent.runAgent({ resume });
  });

function send(text: string): void {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  void run();
}

function answer(interruptId: string, approved: boolean): void {
  decisions.set(interruptId, approved);
  draw();
  if (agent.pendingInterrupts.some(({ id }) => !decisions.has(id))) return;
  const resume = agent.pendingInterrupts.map(({ id }) => ({
    interruptId: id,
    status: "resolved" as const,
    payload: { approved: decisions.get(id) },
  }));
  decisions.clear();
  void run(resume);
}

/** Stops the answer on the server; its stream then ends. */
async function stop(): Promise<void> {
  const response = await fetch(url("stop"), { method: "POST", headers: headers() }).catch(() => null);
  if (!response?.ok) agent.abortRun(); // at least stop reading
}

// ── the page ────────────────────────────────────────────────────────────────────────────────

const root = document.getElementById("root")!;
const log = document.createElement("main");
const form = document.createElement("form");
const input = document.createElement("input");
const button = document.createElement("button");
input.ariaLabel = "Message";
form.append(input, button);
form.onsubmit = (event) => {
  event.preventDefault();
  if (agent.isRunning) return void stop();
  if (!input.value.trim()) return;
  send(input.value);
  input.value = "";
};
root.append(log, form);

/** Marks that hide or reorder text as numbers: a question must read as what runs. */
const visible = (text: string) =>
  text.replace(/\p{Cf}/gu, (mark) => `\\u{${mark.codePointAt(0)!.toString(16)}}`);

function element(tag: string, text: string, properties: object = {}): HTMLElement {
  return Object.assign(document.createElement(tag), { textContent: text }, properties);
}

function draw(): void {
  log.replaceChildren();
  for (const message of agent.messages) {
    const section = element("section", "", { className: message.role });
    if (typeof message.content === "string") section.append(element("p", message.content));
    if (message.role === "assistant") {
      for (const call of message.toolCalls ?? []) {
        section.append(element("p", visible(`${call.function.name} ${call.function.arguments}`)));
      }
    }
    log.append(section);
  }
  for (const { id, message } of agent.isRunning ? [] : agent.pendingInterrupts) {
    if (decisions.has(id)) continue;
    log.append(
      element("p", visible(message ?? "May this call run?")),
      element("button", "Approve", { onclick: () => answer(id, true) }),
      element("button", "Deny", { onclick: () => answer(id, false) }),
    );
  }
  if (problem) log.append(element("p", problem, { role: "alert" }));
  button.textContent = agent.isRunning ? "Stop" : "Send";
}

agent.subscribe({ onMessagesChanged: draw });
void during(async () => {
  if (!(await restore())) return;
  await agent.connectAgent();
  await restore(); // in case the answer has ended meanwhile
});
