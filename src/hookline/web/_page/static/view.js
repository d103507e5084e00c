// Shows a conversation: its messages, and the events of the active run.

import { $, button, copyButton, make, seen } from './dom.js';
import { Card } from './card.js';
import { giveBack, giveBackQueued, queue, unqueue } from './compose.js';
import { Prose } from './markdown.js';
import { actions, ask, wordsOf } from './server.js';
import { Timeline } from './timeline.js';
import { Workspace } from './workspace.js';

const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
}

function sized(count) {
  return count < 1024 ? `${count} bytes` : count < 1048576 ? `${Math.round(count / 1024)} KiB` : `${(count / 1048576).toFixed(1)} MiB`;
}

// Shows an image or file of a message from its own bytes: nothing is fetched from other sites.
function attached(part) {
  const name = part.name ?? part.media_type;
  if (!part.data) return make('span', 'file', null, ...seen(`${name} ${part.url ?? ''}`));
  const bytes = bytesOf(part.data);
  const address = URL.createObjectURL(new Blob([bytes], { type: PICTURES.has(part.media_type) ? part.media_type : 'application/octet-stream' }));
  if (PICTURES.has(part.media_type)) {
    const picture = make('img', 'picture');
    picture.src = address;
    picture.alt = part.name ?? 'an image';
    return picture;
  }
  const link = make('a', 'file', null, ...seen(name), make('span', 'quiet', ` ${sized(bytes.length)}`));
  link.href = address;
  link.download = name;
  return link;
}

export class View {
  constructor() {
    this.calls = new Map(); // the card of each call, by call id
    this.answer = null; // the block of the unfinished answer
    this.part = null; // the growing text or reasoning
    this.shown = []; // the elements added since the last committed message
    this.user = null; // a user message that is not committed yet
    this.delivered = new Set(); // the ids of the messages that the run has added
    this.returned = []; // the last events, if they return messages
    this.refusals = new Map(); // why a message was not delivered, by its id
    this.over = false; // whether the run has ended
    this.spoke = false;
    this.whole = false; // whether messages arrive whole, not in pieces
    this.feedback = {};
    this.timeline = new Timeline();
    this.workspace = new Workspace();
    $('log').replaceChildren();
  }

  add(element) {
    $('empty')?.remove();
    $('log').append(element);
    return element;
  }

  note(text, bad = false) {
    this.add(make('p', bad ? 'note bad' : 'note', null, ...seen(text)));
  }

  problem(error) {
    this.note(wordsOf(error), true);
  }

  // Says that there is no answer. While nothing comes after the note, the question can be asked again.
  failed(text, bad = true) {
    this.note(text, bad);
    const asked = [...$('log').querySelectorAll('.user')].at(-1);
    if (!asked?.dataset.id) return; // the question is not stored
    $('log').lastElementChild.append(button('plain retry', 'Try again', () => actions.again()));
  }

  block() {
    if (!this.answer) this.answer = this.add(make('div', 'answer'));
    return this.answer;
  }

  // ── messages ──

  message(message) {
    if (message.role === 'user') return this.userMessage(message);
    if (message.role === 'tool') return this.result(message);
    this.answer = null;
    this.whole = true;
    for (const part of message.parts) {
      if (part.part === 'text') this.grow('text', part.text);
      else if (part.part === 'reasoning') { if (part.text) this.grow('reasoning', part.text); }
      else if (part.part === 'call') this.card(part.id, part.name).arguments(part.raw ?? part.arguments);
      else if (part.media_type) this.block().append(attached(part));
      else if (part.part === 'source') this.block().append(make('p', 'quiet', null, ...seen(`Source: ${part.title ?? ''} ${part.url ?? ''}`)));
      this.part = null;
    }
    this.whole = false;
    if (message.partial) this.block().lastElementChild?.classList.add('partial');
    this.tools(message);
    this.commit();
  }

  userMessage(message) {
    if (this.user) this.user.remove();
    this.user = null;
    this.answer = null;
    const said = make('div', 'said');
    said.dir = 'auto';
    for (const part of message.parts) {
      if (part.part === 'text') said.append(...seen(part.text, false));
      else said.append(attached(part));
    }
    const row = make('div', 'user', null, said);
    row.dataset.id = message.id ?? '';
    if (message.id) row.append(this.userTools(message, row, said));
    return this.add(row);
  }

  userTools(message, row, said) {
    const text = () => message.parts.filter(({ part }) => part === 'text').map((part) => part.text).join('');
    const tools = make('div', 'tools', null, copyButton(text, 'Copy this message'),
      button('plain', 'Edit in a new conversation', () => this.edit(message, row, said, text()), 'edit'));
    return tools;
  }

  edit(message, row, said, text) {
    if (row.querySelector('textarea')) return;
    const area = make('textarea', 'edited');
    area.value = text;
    area.rows = Math.min(12, text.split('\n').length + 1);
    area.setAttribute('aria-label', 'The edited message');
    const leave = () => { form.remove(); said.hidden = false; };
    const go = () => {
      if (!area.value.trim()) return;
      const rest = message.parts.filter(({ part }) => part !== 'text');
      actions.fork(message.id, [{ part: 'text', text: area.value }, ...rest]).then((fine) => { if (!fine) leave(); });
    };
    const form = make('div', 'editor', null, area, make('div', 'buttons', null,
      button('', 'Ask in a new conversation', go), button('plain', 'Cancel', leave)));
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); go(); }
      if (event.key === 'Escape') { event.stopPropagation(); leave(); }
    });
    said.hidden = true;
    row.prepend(form);
    area.focus();
  }

  // Adds the tools of a complete answer.
  tools(message) {
    if (!message.id || message.parts.some(({ part }) => part === 'call')) return;
    const text = message.parts.filter(({ part }) => part === 'text').map((part) => part.text).join('\n\n');
    if (!text || !this.answer) return;
    const judge = (value, name, picture) => {
      const made = button('plain', name, async () => {
        const before = this.feedback[message.id];
        const next = before === value ? null : value;
        mark(next);
        try {
          await ask(`conversations/${encodeURIComponent(actions.conversation())}/feedback`, { method: 'POST', body: { message: message.id, value: next } });
        } catch (error) {
          mark(before ?? null);
          this.problem(error);
        }
      }, picture);
      return made;
    };
    const up = judge('up', 'Good answer', 'up');
    const down = judge('down', 'Bad answer', 'down');
    const mark = (value) => {
      this.feedback[message.id] = value;
      up.setAttribute('aria-pressed', String(value === 'up'));
      down.setAttribute('aria-pressed', String(value === 'down'));
    };
    mark(this.feedback[message.id] ?? null);
    this.answer.append(make('div', 'tools', null, copyButton(() => text, 'Copy this answer'),
      button('plain again', 'Regenerate', () => actions.again(message.id), 'again'), up, down));
  }

  // Removes the last question and everything after it: it is answered again.
  takeBack() {
    const questions = $('log').querySelectorAll('.user');
    let element = questions[questions.length - 1] ?? null;
    while (element) {
      const next = element.nextElementSibling;
      element.remove();
      element = next;
    }
    this.commit();
  }

  result(message) {
    const card = this.calls.get(message.call_id);
    card?.decided(message.ran);
    if (!card || card.settled) return;
    let value = message.text;
    try { value = JSON.parse(value); } catch { /* plain text */ }
    if (value?.error?.message !== undefined) value = value.error.message;
    card.settle(message.outcome ?? 'ok', value);
  }

  commit() {
    this.part?.prose?.finish();
    this.answer = null;
    this.part = null;
    this.shown = [];
  }

  // ── parts ──

  grow(kind, text) {
    if (this.part?.kind !== kind) {
      this.part?.prose.finish();
      const prose = new Prose();
      let outer = prose.element;
      outer.dir = 'auto';
      if (kind === 'reasoning') {
        outer = make('details', 'reasoning', null, make('summary', '', 'Reasoning'), prose.element);
      }
      this.part = { kind, prose };
      this.block().append(outer);
      this.shown.push(outer);
    }
    if (this.whole) this.part.prose.set(text);
    else this.part.prose.append(text);
  }

  card(id, name) {
    let card = this.calls.get(id);
    if (!card) {
      card = new Card(id, name);
      this.calls.set(id, card);
      this.block().append(card.element);
      this.shown.push(card.element);
    }
    return card;
  }

  withdraw() {
    for (const element of this.shown) element.remove();
    for (const [id, card] of this.calls) if (!card.element.isConnected) this.calls.delete(id);
    if (this.answer && !this.answer.childElementCount) this.answer.remove();
    this.commit();
  }

  // ── events ──

  event(event, run) {
    this.timeline.begin(run);
    if (event.event === 'hook') return this.timeline.hook(event);
    if (event.event === 'status' && this.workspace.status(event.type, event.data)) return;
    if (event.path?.length) return this.nested(event);
    this.timeline.event(event);
    if (event.event !== 'message_returned') { // each text is put before the text that is there
      for (const { message, reason } of this.returned.splice(0).reverse()) {
        this.refusals.set(message.id, reason);
        giveBack(message.id, reason);
      }
    }
    switch (event.event) {
      case 'chat_started':
        this.spoke = this.over = false;
        if (event.message && !this.user) this.user = this.userMessage({ ...event.message, id: '' });
        break;
      case 'text_delta': this.spoke = true; this.grow('text', event.text); break;
      case 'reasoning_delta': this.grow('reasoning', event.text); break;
      case 'part_end': this.part?.prose.finish(); this.part = null; break;
      case 'tool_call_delta':
        this.part = null;
        this.card(event.call_id, event.name).write(event.arguments);
        break;
      case 'tool_call_started': {
        const card = this.card(event.call.id, event.call.name);
        card.arguments(event.call.raw ?? event.call.arguments);
        card.state('running', 'running');
        break;
      }
      case 'tool_call_finished': this.settle(event); break;
      case 'status': this.tell(event.call_id, event.type, event.data); break;
      case 'message_queued': queue(event.message.id, event.message.parts); break;
      case 'message_returned': this.returned.push(event); break;
      case 'message_added':
        this.delivered.add(event.message.id);
        unqueue(event.message.id);
        if (event.message.role === 'assistant') {
          this.tools(event.message);
          this.commit();
        } else this.message(event.message);
        break;
      case 'response_reset': this.withdraw(); break;
      case 'chat_done': this.done(event.response); break;
      case 'chat_aborted': this.broken('aborted', event.reason || 'stopped'); this.end(); break;
      case 'chat_failed': this.broken('failed', event.error.message); this.end(); break;
    }
  }

  // This page has sent a message into the run. The run's events may have told so before.
  sent(id, taken) {
    if (this.delivered.has(id)) return;
    if (this.refusals.has(id)) { giveBack(id, this.refusals.get(id), taken); return; }
    queue(id, taken.parts, taken);
    if (this.over) giveBackQueued();
  }

  end() {
    this.over = true;
    giveBackQueued();
    this.commit();
  }

  nested(event) {
    this.timeline.event(event);
    if (event.event === 'tool_call_finished') this.settle(event); // a question of a sub-agent
    const card = this.calls.get(event.path[0]);
    if (!card) return;
    if (event.event === 'status') card.tell(event.type, event.data);
    if (event.event === 'tool_call_started') card.tell(`calls ${event.call.name}`);
  }

  settle({ call_id: id, outcome, result }) {
    const card = this.calls.get(id);
    if (card && !card.settled) card.settle(outcome, result.message ?? result.value ?? null);
  }

  tell(callId, type, data) {
    const card = this.calls.get(callId);
    if (card) card.tell(type, data);
    else actions.state(type);
  }

  done(response) {
    if (response.text && !this.spoke && response.steps === 0) this.grow('text', response.text);
    for (const request of response.pending ?? []) this.question(request);
    for (const call of response.client_calls ?? []) this.clientCall(call);
    if (response.usage) this.usage(response.usage);
    this.end();
    this.sayIfEmpty();
  }

  sayIfEmpty() {
    const asked = [...$('log').querySelectorAll('.user')].at(-1);
    const parts = $('log').querySelectorAll('.answer > :not(.reasoning, .call, .tools)');
    const after = (part) => asked?.compareDocumentPosition(part) & Node.DOCUMENT_POSITION_FOLLOWING;
    const waits = [...this.calls.values()].some((card) => card.waits && !card.settled);
    if (asked && !waits && ![...parts].some(after)) this.failed('The answer has no text.', false);
  }

  clientCall(call) {
    const card = this.card(call.id, call.name);
    card.arguments(call.raw ?? call.arguments);
    card.awaitClient();
  }

  usage({ input_tokens: input, output_tokens: output }) {
    if (input || output) this.add(make('p', 'usage', `${input} tokens in, ${output} out`));
  }

  broken(kind, text) {
    for (const card of this.calls.values()) if (!card.settled && !card.question) card.settle('aborted', 'not finished');
    if (kind === 'aborted') this.note(`${text[0].toUpperCase()}${text.slice(1)}.`);
    else this.failed(text);
    this.commit();
  }

  // Shows a past run, as stored by the server.
  past(kept) {
    if (kept.ended === 'done') {
      if (kept.usage) this.usage(kept.usage);
    } else if (kept.ended) this.broken(kept.ended, kept.text);
  }

  draw(kept) {
    this.timeline.begin(kept.run);
    for (const frame of kept.frames) {
      if (frame.event === 'hook') this.timeline.hook(frame);
      else if (frame.event === 'status') this.workspace.status(frame.type, frame.data);
      else this.timeline.event(frame);
    }
  }

  // The ids of the requests that wait for an answer.
  waiting() {
    return [...this.calls.values()].filter((card) => card.request && !card.settled).map((card) => card.request.id);
  }

  question(request) {
    // A call of a sub-agent may have the id of a call of its parent.
    const card = this.card([...(request.path ?? []), request.call.id].join('/'), request.call.name);
    card.arguments(request.call.arguments);
    const mine = actions.about?.approvals !== false;
    card.ask(request, mine ? (said) => actions.answer(request.id, said) : null);
  }
}
