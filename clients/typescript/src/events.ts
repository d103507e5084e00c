// The frames of hookline's native protocol.
// Generated from the events of the Python library by scripts/dev/generate.py. Do not edit.

/** The chat began. */
export interface ChatStarted {
  event: "chat_started";
  chat_id: string;
  seq: number;
  path?: string[];
  agent: string;
  message?: UserMessage;
  conversation_id?: string;
  parent_chat_id?: string;
  resumes?: string;
}

/** A message from the user, or from a hook in place of the user. */
export interface UserMessage {
  role: "user";
  id: string;
  parts: (Text | Image | File)[];
  chat_id?: string;
  at?: number;
}

/** A piece of text; `meta` holds the provider's own data, such as citations. */
export interface Text {
  part: "text";
  text: string;
  meta?: Record<string, unknown>;
}

/** A picture: its bytes, or a URL. */
export interface Image {
  part: "image";
  media_type: string;
  data?: string;
  url?: string;
  meta?: Record<string, unknown>;
}

/** A document, a sound or a video: its bytes, or a URL. */
export interface File {
  part: "file";
  media_type: string;
  name?: string;
  data?: string;
  url?: string;
  meta?: Record<string, unknown>;
}

/** A step began. A model call follows, unless a hook answers instead of the model. */
export interface StepStarted {
  event: "step_started";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
}

/** More text of the answer. */
export interface TextDelta {
  event: "text_delta";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  text: string;
}

/** More of the model's reasoning. */
export interface ReasoningDelta {
  event: "reasoning_delta";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  text: string;
}

/** The streamed text or reasoning is complete. */
export interface PartEnd {
  event: "part_end";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  part: "reasoning" | "text";
}

/** A piece of a call's arguments, while the model writes them. Use it only for display. */
export interface ToolCallDelta {
  event: "tool_call_delta";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  index: number;
  call_id: string;
  name: string;
  arguments: string;
}

/** The hooks of a call have accepted or refused it; `call` includes their changes. */
export interface ToolCallStarted {
  event: "tool_call_started";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  call: ToolCall;
  scope?: string | null;
}

/** A tool call by the model. */
export interface ToolCall {
  part: "call";
  id: string;
  name: string;
  arguments: Record<string, unknown>;
  raw?: string;
  meta?: Record<string, unknown>;
}

/** A call ended with a result or a failure. */
export interface ToolCallFinished {
  event: "tool_call_finished";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  call_id: string;
  name: string;
  outcome: "aborted" | "answered" | "denied" | "error" | "ok" | "stopped";
  result: ToolResult | ToolFailure;
}

/** The result of a tool: `value` is JSON data; `media` is sent to the model with the value. */
export interface ToolResult {
  kind: "result";
  value?: unknown;
  media: (Image | File)[];
  truncated: boolean;
}

/** The failure of a tool call, as sent to the model. */
export interface ToolFailure {
  kind: "error";
  message: string;
  type: string;
  issues: string[];
}

/** A hook or a tool reported progress. */
export interface Status {
  event: "status";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  type: string;
  data?: unknown;
  call_id?: string;
}

/** A call waits for an answer. */
export interface ApprovalRequested {
  event: "approval_requested";
  chat_id: string;
  seq: number;
  path?: string[];
  request: ApprovalRequest;
}

/** A call that waits for an approval. `call` is exactly the call that runs after an approval. */
export interface ApprovalRequest {
  id: string;
  call: ToolCall;
  prompts: string[];
  chat_id: string;
  path?: string[];
  conversation_id?: string;
  iteration: number;
  digest: string;
  tool_digest: string;
  asked_at?: number;
  details: Record<string, unknown>[];
  expires?: number;
  schema?: Record<string, unknown>;
}

/** A message was sent into the running chat. A MessageAdded with its id follows if it is committed, or a MessageReturned if it is not. */
export interface MessageQueued {
  event: "message_queued";
  chat_id: string;
  seq: number;
  path?: string[];
  message: UserMessage;
  when: "idle" | "next";
}

/** A message that was sent into the running chat was not delivered; it is in no history. */
export interface MessageReturned {
  event: "message_returned";
  chat_id: string;
  seq: number;
  path?: string[];
  message: UserMessage;
  reason: string;
}

/** A message was committed to history. */
export interface MessageAdded {
  event: "message_added";
  chat_id: string;
  seq: number;
  path?: string[];
  message: UserMessage | AssistantMessage | ToolMessage;
}

/** An answer of the model. If `partial` is true, the answer was cut off and has no calls. */
export interface AssistantMessage {
  role: "assistant";
  id: string;
  parts: (Text | Reasoning | ToolCall | Source | Image | File)[];
  finish_reason?: "length" | "other" | "pause" | "refusal" | "stop" | "tool_calls";
  usage?: Usage;
  model?: string;
  partial: boolean;
  meta?: Record<string, unknown>;
  chat_id?: string;
  at?: number;
}

/** The model's reasoning; `meta` holds the provider's own data, such as signatures. */
export interface Reasoning {
  part: "reasoning";
  text: string;
  meta?: Record<string, unknown>;
}

/** A source of an answer: a page or document that a provider's own tool found. */
export interface Source {
  part: "source";
  url?: string;
  title?: string;
  name?: string;
  media_type?: string;
  meta?: Record<string, unknown>;
}

/** Token counts. `input_tokens` and `output_tokens` include cached and reasoning tokens. */
export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  reasoning_tokens: number;
}

/** The result of one call; `text` is sent to the model. */
export interface ToolMessage {
  role: "tool";
  id: string;
  call_id: string;
  name: string;
  text: string;
  outcome: "aborted" | "answered" | "denied" | "error" | "ok" | "stopped";
  media: (Image | File)[];
  ran?: RanCall;
  chat_id?: string;
  at?: number;
}

/** What became of a call that a hook or a person decided about; never sent to a model. */
export interface RanCall {
  arguments?: Record<string, unknown>;
  hooks: string[];
  hook_ids: string[];
  approved?: boolean;
  by?: string;
  note?: string;
  at?: number;
  duration?: number;
}

/** A provider's own tool found a page or document that the answer is based on. */
export interface SourceAdded {
  event: "source_added";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  source: Source;
}

/** The model, or its provider's own tool, made a picture or a file. */
export interface FileAdded {
  event: "file_added";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  file: Image | File;
}

/** Discard the part of this step's answer that was shown since the last MessageAdded. */
export interface ResponseReset {
  event: "response_reset";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
}

/** All calls of the step have results. */
export interface StepFinished {
  event: "step_finished";
  chat_id: string;
  seq: number;
  path?: string[];
  iteration: number;
  finish_reason?: "length" | "other" | "pause" | "refusal" | "stop" | "tool_calls";
  usage?: Usage;
}

/** The chat is done. */
export interface ChatDone {
  event: "chat_done";
  chat_id: string;
  seq: number;
  path?: string[];
  response: Response;
}

/** The response of a chat. `stop_reason` is None only if the chat ended normally. */
export interface Response {
  chat_id: string;
  text: string;
  reasoning: string;
  messages: (UserMessage | AssistantMessage | ToolMessage)[];
  usage: Usage;
  finish_reason?: "length" | "other" | "pause" | "refusal" | "stop" | "tool_calls";
  stop_reason?: string;
  pending: ApprovalRequest[];
  client_calls: ToolCall[];
  output?: unknown;
  steps: number;
}

/** The chat was aborted; `partial` holds the messages that were kept. */
export interface ChatAborted {
  event: "chat_aborted";
  chat_id: string;
  seq: number;
  path?: string[];
  reason?: string;
  partial: (UserMessage | AssistantMessage | ToolMessage)[];
}

/** The chat failed; the exception itself is raised after this event. */
export interface ChatFailed {
  event: "chat_failed";
  chat_id: string;
  seq: number;
  path?: string[];
  error: ErrorInfo;
}

/** An exception as JSON data. */
export interface ErrorInfo {
  type: string;
  message: string;
  retryable: boolean;
  retry_after?: number;
}

/** A hook ran: its hook point, its outcome, and its duration. */
export interface HookFired {
  chat_id: string;
  point: string;
  hook: string;
  id?: string;
  outcome: string;
  duration: number;
  own?: number;
  times: number;
  changes: FieldChange[];
}

/** One value that a hook changed, with its text before and after. */
export interface FieldChange {
  name: string;
  before: string;
  after: string;
}

/** Any event of a chat. Fields that are null are left out. */
export type ChatEvent =
  | ChatStarted
  | StepStarted
  | TextDelta
  | ReasoningDelta
  | PartEnd
  | ToolCallDelta
  | ToolCallStarted
  | ToolCallFinished
  | Status
  | ApprovalRequested
  | MessageQueued
  | MessageReturned
  | MessageAdded
  | SourceAdded
  | FileAdded
  | ResponseReset
  | StepFinished
  | ChatDone
  | ChatAborted
  | ChatFailed;

/** A hook that ran; sent only with a timeline. */
export type HookFrame = HookFired & { event: "hook" };

/** Frames were lost: load the messages again. */
export interface ReloadFrame {
  event: "reload";
}

/** One frame of a stream; `at` is its time in milliseconds since the run began. */
export type Frame = (ChatEvent | HookFrame | ReloadFrame) & { at?: number };

/** A message of a conversation. */
export type Message = UserMessage | AssistantMessage | ToolMessage;
