// Plays a script against a server with the chat of clients/typescript, whose build is the first
// argument. The script is JSON on stdin; JSON comes out.
const { Chat, visible } = await import(process.argv[2]);

let input = '';
for await (const piece of process.stdin) input += piece;
const { url, token, id, script, tools = {}, cuts = [] } = JSON.parse(input);
const frames = [];
const notes = []; // of the text that is being streamed
const failures = []; // of the methods, in order
const ran = []; // the arguments of the tools that run here
const paths = []; // of the requests

/** A fetch whose next responses lose their connection after so many frames. */
async function cutting(address, init) {
  paths.push(new URL(address).pathname);
  const response = await fetch(address, init);
  if (!response.headers.get('content-type')?.includes('event-stream') || !cuts.length) return response;
  let left = cuts.shift();
  const cut = new TransformStream({
    transform(chunk, controller) {
      const pieces = Buffer.from(chunk).toString().split(/(?<=\n\n)/);
      for (const piece of pieces) {
        if (left > 0) controller.enqueue(Buffer.from(piece));
        if (piece.includes('data: ')) left -= 1;
      }
      if (left <= 0) controller.error(new TypeError('terminated'));
    },
  });
  return new Response(response.body.pipeThrough(cut), response);
}

const chat = new Chat({
  url, id, fetch: cutting,
  headers: async () => ({ Authorization: `Bearer ${token}` }),
  onFrame: (frame) => frames.push(frame),
  tools: Object.fromEntries(Object.entries(tools).map(([name, output]) => [name, (args) => {
    ran.push(args);
    if (output?.throw) throw new Error(output.throw);
    return output;
  }])),
});
const until = async (holds) => {
  while (!holds()) await new Promise((done) => setTimeout(done, 5));
};
const tried = async (work) => {
  try {
    await work;
  } catch (error) {
    failures.push({ name: error.name, message: error.message, status: error.status, retryable: error.retryable });
  }
};
const background = [];

for (const step of script) {
  if (step.send !== undefined) await tried(chat.send(step.send, step.options));
  if (step.begin !== undefined) background.push(tried(chat.send(step.begin)));
  if (step.until !== undefined) await until(() => chat.state.draft.text.includes(step.until));
  if (step.frame) await until(() => frames.some((frame) => frame.event === step.frame));
  if (step.note) notes.push(chat.state.draft.text);
  if (step.ready) await Promise.all(background);
  if (step.stop) await tried(chat.stop());
  if (step.close) chat.close();
  if (step.load) await tried(chat.load());
  if (step.loading) background.push(tried(chat.load()));
  if (step.regenerate) await tried(chat.regenerate(step.messageId));
  if (step.resolve) await tried(chat.resolve(step.resolve));
  if (step.answer !== undefined) {
    const ids = step.id ? [step.id] : chat.state.pending.map((request) => request.id);
    await tried(chat.answer(Object.fromEntries(ids.map((each) => [each, step.answer]))));
  }
}
const { error, ...state } = chat.state;
const output = JSON.stringify({
  ...state, error: error && { message: error.message, retryable: error.retryable },
  frames, notes, failures, ran, paths,
  prompts: state.pending.flatMap((request) => request.prompts.map(visible)),
  details: state.pending.map((request) => visible(JSON.stringify(request.details))),
  arguments: state.pending.map((request) => visible(JSON.stringify(request.call.arguments))),
});
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
