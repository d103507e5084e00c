// Plays a script against a server with AG-UI's HttpAgent, which verifies every event that comes.
import { HttpAgent } from '@ag-ui/client';

let input = '';
for await (const piece of process.stdin) input += piece;
const { url, token, threadId, script, messages = [] } = JSON.parse(input);
const agent = new HttpAgent({ url, threadId, headers: { Authorization: `Bearer ${token}` } });
agent.setMessages(messages);
const events = [];
const lengths = [];
const warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(' '));
const runs = [];
const subscriber = {
  onEvent: ({ event }) => { events.push(event); },
  onTextMessageContentEvent: ({ textMessageBuffer }) => { lengths.push(textMessageBuffer.length); },
};
const run = async (parameters) => {
  try {
    await agent.runAgent(parameters, subscriber);
    runs.push('resolved');
  } catch (error) {
    runs.push(String(error?.message ?? error));
  }
};
let number = 0;
for (const step of script) {
  if (step.send !== undefined) {
    agent.addMessage({ id: `u${number}`, role: 'user', content: step.send });
    const parameters = { runId: `run-${number++}`, ...(step.parameters ?? {}) };
    if (step.stopAt !== undefined) {
      const stopper = agent.subscribe({
        onTextMessageContentEvent: ({ textMessageBuffer, event }) => {
          if ((textMessageBuffer + event.delta).includes(step.stopAt)) agent.abortRun();
        },
      });
      await run(parameters);
      stopper.unsubscribe();
    } else await run(parameters);
  }
  if (step.answer !== undefined) {
    const resume = agent.pendingInterrupts.map((interrupt) => (
      { interruptId: step.id ?? interrupt.id, status: 'resolved', payload: step.answer }));
    await run({ runId: `run-${number++}`, resume });
  }
  if (step.cancel) {
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: 'cancelled' }));
    await run({ runId: `run-${number++}`, resume });
  }
}
const output = JSON.stringify({
  messages: agent.messages, events, runs, lengths, warnings, pending: agent.pendingInterrupts,
});
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
