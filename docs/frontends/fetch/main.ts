const API = "/agent/native";

type Part = { part: string; text?: string; name?: string; arguments?: unknown };
type Message = { role: string; text?: string; name?: string; parts?: Part[] };
type Question = { id: string; prompts: string[] };

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

let messages: Message[] = [];
let pending: Question[] = [];
let draft = ""; // the text of the message that is being made
let running = false;
let problem = "";

async function ask(address: string, body?: object): Promise<Response> {
  const response = await fetch(address, {
    method: body ? "POST" : "GET",
    headers: { ...headers(), ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(await response.text());
  return response;
}

/** Reads the stored conversation, then the answer that is being made. */
async function restore(): Promise<void> {
  ({ messages, pending, running } = await (await ask(url("messages"))).json());
  draft = "";
  draw();
  if (!running) return;
  await read(await ask(url("stream"))); // 204 and empty if the answer has ended meanwhile
  ({ messages, pending, running } = await (await ask(url("messages"))).json());
  draft = "";
}

/** Reads a stream to its end. */
async function read(response: Response): Promise<void> {
  let rest = "";
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  while (reader) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line.startsWith("data: ")) show(JSON.parse(line.slice(6)));
    draw();
  }
}

function show(event: any): void {
  if (event.path?.length) return; // of a sub-agent
  switch (event.event) {
    case "text_delta":
      draft += event.text;
      break;
    case "response_reset":
      draft = "";
      break;
    case "message_added":
      messages.push(event.message);
      draft = "";
      break;
    case "approval_requested":
      pending.push(event.request);
      break;
    case "chat_failed":
      problem = event.error.message;
      break;
    case "reload": // something was lost on its way
      problem = "Reload the page.";
      break;
  }
}

/** Does something that takes a while, with the page drawn before and after. */
async function during(work: () => Promise<void>): Promise<void> {
  problem = "";
  running = true;
  draw();
  try {
    await work();
  } catch (error) {
    problem = (error as Error).message;
  }
  running = false;
  draw();
}

const send = (text: string) =>
  during(async () => {
    pending = []; // a new message denies what waits
    await read(await ask(API, { conversation: id, message: text }));
  });

const answer = (question: Question, approved: boolean) =>
  during(async () => {
    pending = pending.filter((other) => other !== question);
    await read(await ask(API, { conversation: id, answers: { [question.id]: { approved } } }));
  });

/** Stops the answer on the server; its stream then ends. */
async function stop(): Promise<void> {
  try {
    await ask(url("stop"), {});
  } catch (error) {
    problem = (error as Error).message;
    draw();
  }
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
  if (running) return void stop();
  if (!input.value.trim()) return;
  void send(input.value);
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
  for (const message of messages) {
    const section = element("section", "", { className: message.role });
    if (message.text) section.append(element("p", `${message.name}: ${message.text}`));
    for (const part of message.parts ?? []) {
      if (part.part === "text") section.append(element("p", part.text!));
      if (part.part === "call") {
        section.append(element("p", visible(`${part.name} ${JSON.stringify(part.arguments)}`)));
      }
    }
    log.append(section);
  }
  if (draft) log.append(element("section", draft, { className: "assistant" }));
  for (const question of running ? [] : pending) {
    log.append(
      element("p", visible(question.prompts.join("\n"))),
      element("button", "Approve", { onclick: () => void answer(question, true) }),
      element("button", "Deny", { onclick: () => void answer(question, false) }),
    );
  }
  if (problem) log.append(element("p", problem, { role: "alert" }));
  button.textContent = running ? "Stop" : "Send";
}

void during(restore);
