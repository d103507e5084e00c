// A client of hookline's native protocol, without dependencies: for browsers, Node.js, Deno and Bun.

import type {
  ApprovalRequest,
  Frame,
  Image,
  File as FilePart,
  Message,
  Text,
  ToolCall,
  UserMessage,
} from "./events.js";

export type * from "./events.js";

/** A message to send: a text, or parts. */
export type Content = string | readonly (Text | Image | FilePart)[];

/** The answer to an approval request. `arguments` replaces the arguments that were shown. */
export type Answer =
  | { approved: true; arguments?: Record<string, unknown> }
  | { approved: false; reason?: string };

/** The result of a call that the client has run, or why the call failed. */
export type Result = { value: unknown } | { error: string };

/** A tool that runs in the client: the server declares it with `@tool(client=True)`. */
export type ClientTool = (args: Record<string, unknown>, call: ToolCall) => unknown;

export interface Options {
  /** The address of the native routes, such as "/agent/native". */
  url: string;
  /** The id of the conversation, by default a new one. */
  id?: string;
  /** The headers of each request, such as `Authorization`. */
  headers?: HeadersInit | (() => HeadersInit | Promise<HeadersInit>);
  /** The tools that run here, by name. A call of another client tool waits in `state.calls`. */
  tools?: Record<string, ClientTool>;
  /** Called with each frame of a stream, also with those of sub-agents. */
  onFrame?: (frame: Frame) => void;
  fetch?: typeof fetch;
}

/** What a page shows. Every change makes a new object, as `useSyncExternalStore` expects. */
export interface ChatState {
  /** The messages of the conversation. */
  readonly messages: readonly Message[];
  /** The answer that is being streamed, since the last message. */
  readonly draft: { readonly text: string; readonly reasoning: string };
  /** Messages that were sent and are not in `messages` yet. */
  readonly queued: readonly UserMessage[];
  /** Messages that the last answer did not take: send them again, or drop them. */
  readonly returned: readonly { readonly message: UserMessage; readonly reason: string }[];
  /** The approvals that wait for an answer. */
  readonly pending: readonly ApprovalRequest[];
  /** Whether this user may answer them. */
  readonly mayAnswer: boolean;
  /** The calls of client tools that wait for a result. */
  readonly calls: readonly ToolCall[];
  /** Whether an answer is running. */
  readonly running: boolean;
  /** Why the last answer failed, or could not be read. */
  readonly error?: Error;
}

/** A request that the server has refused, or an answer that failed. */
export class ChatError extends Error {
  constructor(
    message: string,
    /** The status of the HTTP response; undefined for an answer that failed after it had begun. */
    readonly status?: number,
    /** Whether the same request may succeed later. */
    readonly retryable = status === 503 || status === 429,
    /** The seconds after which the server suggests to try again. */
    readonly retryAfter?: number,
  ) {
    super(message);
    this.name = "ChatError";
  }
}

interface Stored {
  messages: Message[];
  running: boolean;
  pending: ApprovalRequest[];
  clientCalls: ToolCall[];
  mayAnswer: boolean;
}

const LAST = new Set<string>(["chat_done", "chat_aborted", "chat_failed", "reload"]);
const NO_DRAFT = { text: "", reasoning: "" };
/** Seconds before each new try to read an answer whose connection was lost. */
const DELAYS = [0.2, 1, 2, 5, 10, 20];

/** One conversation with an agent. */
export class Chat {
  readonly id: string;
  private current: ChatState = {
    messages: [],
    draft: NO_DRAFT,
    queued: [],
    returned: [],
    pending: [],
    mayAnswer: true,
    calls: [],
    running: false,
  };
  private readonly listeners = new Set<() => void>();
  private connection = new AbortController();
  private busy = false;
  private stopping = false;

  constructor(private readonly options: Options) {
    this.id = options.id ?? crypto.randomUUID();
  }

  get state(): ChatState {
    return this.current;
  }

  /** Calls `listener` after each change of `state`; returns a function that ends this. */
  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Loads the conversation, and follows the answer that is running, if any, to its end. */
  load(): Promise<void> {
    return this.run(() => this.rejoin());
  }

  /**
   * Sends a message, and follows its answer to the end.
   *
   * While an answer runs, the message is sent into it: "next" means before its next step, and "idle"
   * means when it would end. The promise then resolves as soon as the server has accepted it.
   */
  async send(content: Content, { when = "next" }: { when?: "next" | "idle" } = {}): Promise<void> {
    const parts = typeof content === "string" ? [{ part: "text" as const, text: content }] : [...content];
    const message = { id: crypto.randomUUID(), parts };
    await this.until(() => this.current.running || !this.busy); // loading, or running a client tool
    if (this.current.running) return this.steer({ message, when });
    this.set({ queued: [...this.current.queued, { role: "user", ...message }] });
    try {
      await this.ask({ message });
    } catch (error) {
      this.set({ queued: without(this.current.queued, message.id) });
      throw error;
    }
  }

  /** Answers approval requests, by their ids, and follows the rest of the answer. */
  answer(answers: Record<string, Answer>): Promise<void> {
    return this.ask({ answers });
  }

  /** Sends results of client tools, by the ids of the calls, and follows the rest of the answer. */
  resolve(results: Record<string, Result>): Promise<void> {
    return this.ask({ results });
  }

  /** Makes an answer again, by default the last; the messages after it are removed. */
  regenerate(messageId?: string): Promise<void> {
    return this.ask({ regenerate: true, ...(messageId && { messageId }) });
  }

  /** Stops the answer: on the server, and before the results of client tools are sent. */
  async stop(): Promise<void> {
    this.stopping = true;
    await this.request(`/${encodeURIComponent(this.id)}/stop`, {}, null);
  }

  /** Closes the connection, without stopping an answer that the server keeps (`"detach"`). */
  close(): void {
    this.connection.abort();
  }

  private ask(body: object): Promise<void> {
    return this.run(() => this.follow(body));
  }

  private async steer(body: object): Promise<void> {
    for (const delay of [...DELAYS.slice(0, 3), 0]) {
      try {
        await this.request(`/${encodeURIComponent(this.id)}/messages`, body);
        return;
      } catch (error) {
        // Nobody knows whether the message was queued; with the same id, it is queued once.
        if (!(error instanceof ChatError && error.status === 503 && delay)) throw error;
        await seconds(delay);
      }
    }
  }

  /** Runs one answer and the client tools that it calls, until nothing more can be done here. */
  private async run(work: () => Promise<void>): Promise<void> {
    if (this.busy) throw new ChatError("An answer is running in this conversation.");
    this.connection = new AbortController();
    this.busy = true;
    this.stopping = false;
    this.set({ error: undefined });
    try {
      await work();
      for (let results = await this.results(); results; results = await this.results()) {
        await this.follow({ results });
      }
    } catch (error) {
      if (!this.connection.signal.aborted) throw error;
    } finally {
      this.busy = false;
      this.set({ running: false });
    }
  }

  /** Runs the client tools that wait; returns their results, or undefined if there are none. */
  private async results(): Promise<Record<string, Result> | undefined> {
    const results: Record<string, Result> = {};
    const { tools = {} } = this.options;
    const calls = this.current.calls.filter((call) => Object.hasOwn(tools, call.name));
    await Promise.all(
      calls.map(async (call) => {
        try {
          results[call.id] = { value: (await tools[call.name]!(call.arguments, call)) ?? null };
        } catch (error) {
          results[call.id] = { error: error instanceof Error ? error.message : String(error) };
        }
      }),
    );
    return calls.length && !this.stopping && !this.connection.signal.aborted ? results : undefined;
  }

  /** Asks for an answer and reads it to its end, over as many connections as it takes. */
  private async follow(body: object): Promise<void> {
    this.set({ running: true });
    const response = await this.request("", { conversation: this.id, ...body });
    this.set({ pending: [], calls: [], returned: [], draft: NO_DRAFT });
    if (!(await this.read(response))) await this.rejoin();
    this.set({ running: false });
  }

  /** Loads the messages, and reads the running answer from its beginning. */
  private async rejoin(): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        const path = `/${encodeURIComponent(this.id)}`;
        const stored = (await (await this.request(`${path}/messages`)).json()) as Stored;
        const { messages, pending, clientCalls, mayAnswer, running } = stored;
        const ids = new Set(messages.map((message) => message.id));
        const queued = this.current.queued.filter((message) => !ids.has(message.id));
        const state = { ...this.current, messages, mayAnswer, queued, running, draft: NO_DRAFT };
        const shown = running ? state : ended(state, "The answer has ended.");
        this.set({ ...shown, pending, calls: clientCalls });
        if (!running || (await this.read(await this.request(`${path}/stream`)))) break;
      } catch (error) {
        const refused = error instanceof ChatError && !error.retryable;
        if (refused || this.connection.signal.aborted || tries === DELAYS.length) throw error;
      }
      await seconds(DELAYS[Math.min(tries, DELAYS.length - 1)]!);
    }
    this.set({ running: false });
  }

  /** Reads the frames of a response; returns whether the answer has ended. */
  private async read(response: Response): Promise<boolean> {
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let last = "";
    try {
      while (reader) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop()!;
        for (const line of lines) {
          if (!line.startsWith("data: ")) continue;
          const frame = JSON.parse(line.slice(6)) as Frame;
          this.options.onFrame?.(frame);
          if ("path" in frame && frame.path?.length) continue; // of a sub-agent
          this.current = next(this.current, frame);
          if (LAST.has(frame.event)) last = frame.event;
        }
        this.set({});
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // a TypeError: the connection was lost
    }
    return last !== "" && last !== "reload";
  }

  private async request(
    path: string,
    body?: object,
    signal: AbortSignal | null = this.connection.signal,
  ): Promise<Response> {
    const { headers, fetch: send = fetch, url } = this.options;
    const init = new Headers(typeof headers === "function" ? await headers() : headers);
    if (body) init.set("Content-Type", "application/json");
    const response = await send(url + path, {
      method: body ? "POST" : "GET",
      headers: init,
      body: body && JSON.stringify(body),
      signal,
    });
    if (response.ok) return response;
    const text = await response.text();
    const wait = Number(response.headers.get("Retry-After")) || undefined;
    throw new ChatError(detail(text) || `The server answered ${response.status}.`, response.status, undefined, wait);
  }

  /** Waits until something holds for the state. */
  private until(holds: () => boolean): Promise<void> {
    return new Promise((done) => {
      const check = () => holds() && (forget(), done());
      const forget = this.subscribe(check);
      check();
    });
  }

  private set(change: Partial<ChatState>): void {
    this.current = { ...this.current, ...change };
    for (const listener of this.listeners) listener();
  }
}

/** The state after a frame. */
function next(state: ChatState, frame: Frame): ChatState {
  const { draft } = state;
  switch (frame.event) {
    case "text_delta":
      return { ...state, draft: { ...draft, text: draft.text + frame.text } };
    case "reasoning_delta":
      return { ...state, draft: { ...draft, reasoning: draft.reasoning + frame.text } };
    case "response_reset":
      return { ...state, draft: NO_DRAFT };
    case "message_queued":
      return { ...state, queued: [...without(state.queued, frame.message.id), frame.message] };
    case "message_returned": {
      const { message, reason } = frame;
      return {
        ...state,
        queued: without(state.queued, message.id),
        returned: [...state.returned, { message, reason }],
      };
    }
    case "message_added": {
      const { message } = frame;
      const at = state.messages.findIndex((other) => other.id === message.id);
      // A message that is there already begins again: its answer is made anew.
      const before = at < 0 ? state.messages : state.messages.slice(0, at);
      const queued = without(state.queued, message.id);
      return { ...state, messages: [...before, message], queued, draft: NO_DRAFT };
    }
    case "approval_requested":
      return { ...state, pending: [...state.pending, frame.request] };
    case "tool_call_finished": // answered by somebody else
      return { ...state, pending: state.pending.filter(({ call }) => call.id !== frame.call_id) };
    case "chat_done": {
      const { pending, client_calls: calls } = frame.response;
      return { ...ended(state, "The answer has ended."), pending, calls };
    }
    case "chat_aborted":
      return ended(state, "The answer was stopped.");
    case "chat_failed": {
      const { message, retryable, retry_after } = frame.error;
      const error = new ChatError(message, undefined, retryable, retry_after);
      return { ...ended(state, message), error };
    }
    default:
      return state;
  }
}

/** The state after an answer: what was not delivered until now is returned. */
function ended(state: ChatState, reason: string): ChatState {
  const late = state.queued.map((message) => ({ message, reason }));
  const returned = [...state.returned, ...late];
  return { ...state, running: false, queued: [], returned, pending: [], calls: [] };
}

function without(messages: readonly UserMessage[], id: string): UserMessage[] {
  return messages.filter((message) => message.id !== id);
}

/** The sentence in the body of a refusal. */
function detail(text: string): string {
  try {
    const body = JSON.parse(text) as { detail?: unknown };
    return typeof body.detail === "string" ? body.detail : text;
  } catch {
    return text;
  }
}

const seconds = (delay: number) => new Promise((done) => setTimeout(done, delay * 1000));

/** The text with the marks that hide or reorder text as numbers: an approval must read as what runs. */
export function visible(text: string): string {
  return text.replace(/\p{Cf}/gu, (mark) => `\\u{${mark.codePointAt(0)!.toString(16)}}`);
}
