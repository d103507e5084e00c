// Plays a script against a server with the chat of the Vercel AI SDK: its transport, its reader of
// chunks and its state machine, as `useChat` has them. The script is JSON on stdin; JSON comes out.
// The first argument names the version: ai, ai6.
const ai = await import(process.argv[2] ?? 'ai');
const { AbstractChat, DefaultChatTransport } = ai;

class State {
  status = 'ready';
  error = undefined;
  messages = [];
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((old, at) => (at === index ? structuredClone(message) : old));
    const text = message.parts.filter((part) => part.type === 'text').map((part) => part.text);
    lengths.push(text.join('').length);
  };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(options) { super({ ...options, state: new State() }); }
}

let input = '';
for await (const piece of process.stdin) input += piece;
const { url, token, id, script, options = {} } = JSON.parse(input);
const lengths = [];
const data = [];
const errors = [];
const finishes = [];
const ran = []; // the inputs of the tools that run here
const headers = { Authorization: `Bearer ${token}` };
const chat = new Chat({
  id,
  transport: new DefaultChatTransport({ api: url, headers }),
  onData: (part) => data.push(part),
  onError: (error) => errors.push(error.message),
  onFinish: ({ isAbort, isDisconnect, isError, finishReason }) =>
    finishes.push({ isAbort, isDisconnect, isError, finishReason }),
  onToolCall: ({ toolCall }) => { // not awaited: the call is answered once its stream has ended
    const output = options.tools?.[toolCall.toolName];
    if (output !== undefined) {
      ran.push(toolCall.input);
      (chat.addToolOutput ?? chat.addToolResult)({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output });
    }
  },
  sendAutomaticallyWhen: options.tools
    ? ai.lastAssistantMessageIsCompleteWithToolCalls
    : options.automatic ? ai.lastAssistantMessageIsCompleteWithApprovalResponses : undefined,
});
const until = async (holds) => {
  while (!holds()) await new Promise((done) => setTimeout(done, 5));
};
const text = () => chat.lastMessage?.parts.filter((p) => p.type === 'text').map((p) => p.text).join('') ?? '';

for (const step of script) {
  if (step.send !== undefined) await chat.sendMessage({ text: step.send });
  if (step.begin !== undefined) chat.sendMessage({ text: step.begin });
  if (step.until !== undefined) await until(() => text().includes(step.until));
  if (step.ready) await until(() => chat.status === 'ready');
  if (step.stop) await chat.stop();
  if (step.resume) await chat.resumeStream();
  if (step.regenerate) await chat.regenerate();
  if (step.load) {
    const response = await fetch(`${url}/${encodeURIComponent(id)}/messages`, { headers });
    chat.messages = (await response.json()).messages;
  }
  if (step.post) await fetch(`${url}${step.post}`, {
    method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: '{}',
  });
  if (step.answer !== undefined) {
    const waiting = chat.lastMessage.parts.filter((p) => p.state === 'approval-requested');
    for (const part of waiting) {
      await chat.addToolApprovalResponse({ id: part.approval.id, approved: step.answer, reason: step.reason });
    }
    await new Promise((done) => setTimeout(done, 20));
    await until(() => chat.status === 'ready' || chat.status === 'error');
  }
  if (step.resend) await chat.sendMessage();
  if (step.forge) {
    const last = structuredClone(chat.lastMessage);
    for (const part of last.parts) if (part.approval) Object.assign(part, step.forge);
    chat.messages = [...chat.messages.slice(0, -1), last];
  }
}
if (options.tools) await until(() => text().includes(options.last));
if (options.tools) await until(() => chat.status === 'ready' || chat.status === 'error');
const valid = ai.safeValidateUIMessages
  ? (await ai.safeValidateUIMessages({ messages: chat.messages })).error?.message ?? null
  : null;
const output = JSON.stringify({
  ran, valid, status: chat.status, error: chat.error?.message, messages: chat.messages, lengths, data, errors, finishes,
});
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
