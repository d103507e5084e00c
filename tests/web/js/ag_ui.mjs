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
  if (step.setState !== undefined) agent.setState(step.setState);
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
  if (step.results) { // of the tools that run here, by name
    const known = new Set(agent.messages.filter((m) => m.role === 'tool').map((m) => m.toolCallId));
    const calls = agent.messages.flatMap((m) => m.toolCalls ?? []).filter((call) => !known.has(call.id));
    for (const call of calls) {
      const content = step.results[call.function.name];
      agent.addMessage({ id: `result-${call.id}`, role: 'tool', toolCallId: call.id, content });
    }
    await run({ runId: `run-${number++}`, ...(step.parameters ?? {}) });
  }
  if (step.cancel) {
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status: 'cancelled' }));
    await run({ runId: `run-${number++}`, resume });
  }
}
const output = JSON.stringify({
  messages: agent.messages, state: agent.state, events, runs, lengths, warnings, pending: agent.pendingInterrupts,
});
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
