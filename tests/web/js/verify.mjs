// Feeds AG-UI streams to HttpAgent as HTTP answers that come in pieces, and says what it made of
// them. JSON on stdin: a list of {data, threadId, runId, messages}; a list comes out.
import { HttpAgent } from '@ag-ui/client';

let warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(' '));
console.error = () => {};

async function verify({ data, threadId, runId, messages }) {
  warnings = [];
  const body = Buffer.from(data, 'base64');
  const fetch = async () => new Response(
    new ReadableStream({
      start(controller) {
        for (let at = 0; at < body.length; at += 701) {
          controller.enqueue(new Uint8Array(body.subarray(at, at + 701)));
        }
        controller.close();
      },
    }),
    { headers: { 'content-type': 'text/event-stream' } },
  );
  const agent = new HttpAgent({ url: 'http://localhost/', threadId, fetch });
  agent.setMessages(messages);
  let failed;
  try {
    // A RUN_ERROR is told to subscribers; whether the promise is rejected too is the client's affair.
    await agent.runAgent({ runId }, { onRunErrorEvent: ({ event }) => { failed ??= event.message; } });
  } catch (error) {
    failed ??= String(error?.message ?? error);
  }
  return { messages: agent.messages, pending: agent.pendingInterrupts, failed, warnings };
}

let input = '';
for await (const piece of process.stdin) input += piece;
const results = [];
for (const each of JSON.parse(input)) results.push(await verify(each));
const output = JSON.stringify(results);
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
