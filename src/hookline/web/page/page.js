// The chat page of hookline: one file, no dependency, no build step. All text that comes from the
// server goes into the page as text nodes; nothing is ever read as HTML.

const $ = (id) => document.getElementById(id);
const base = new URL('./', location.href);
const wide = matchMedia('(min-width: 68.01rem)');

let token = '';
let conversation = null; // the id of the one that is shown
let view = null; // what is shown of it: a new one for each conversation
let running = false;
let filled = null; // resolves when what the server holds of the conversation is on the page

// ── elements ──────────────────────────────────────────────────────────────────────────────────

function make(tag, kind = '', text = null, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== null) element.textContent = text;
  element.append(...children);
  return element;
}

function milliseconds(value) {
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  if (value >= 10) return `${Math.round(value)} ms`;
  return value >= 1 ? `${value.toFixed(1)} ms` : `${Math.round(value * 1000)} µs`;
}

function pretty(value) {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

// ── the server ────────────────────────────────────────────────────────────────────────────────

class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function ask(path, { method = 'GET', body, headers = {}, signal } = {}) {
  const all = { Authorization: `Bearer ${token}`, ...headers };
  if (body !== undefined) all['Content-Type'] = 'application/json';
  const response = await fetch(new URL(path, base), {
    method, headers: all, signal, cache: 'no-store',
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.status === 401) {
    needToken(token ? 'This token is not the right one.' : '');
    throw new Problem(401, 'A token is needed.');
  }
  if (!response.ok) throw new Problem(response.status, (await response.text()).slice(0, 300));
  return response;
}

// Reads server-sent events: frames end with an empty line, and each holds one line of data.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const frames = held.split('\n\n');
    held = frames.pop();
    for (const frame of frames) {
      let id = '';
      let data = '';
      for (const line of frame.split('\n')) {
        if (line.startsWith('id: ')) id = line.slice(4);
        else if (line.startsWith('data: ')) data = line.slice(6);
      }
      if (data) yield [id, JSON.parse(data)];
    }
  }
}

// ── what is shown of a conversation ───────────────────────────────────────────────────────────

class View {
  constructor() {
    this.calls = new Map(); // by call id: its card
    this.answer = null; // the block of the answer in the making
    this.part = null; // the text or reasoning that grows
    this.shown = []; // what was put on the page since the last committed message
    this.user = null; // a message of the user's that is not committed yet
    this.status = null;
    this.spoke = false;
    this.timeline = new Timeline();
    $('log').replaceChildren();
  }

  add(element) {
    $('empty')?.remove();
    $('log').append(element);
  }

  note(text, bad = false) {
    this.add(make('p', bad ? 'note bad' : 'note', text));
  }

  problem(error) {
    this.note(error instanceof Problem ? error.message : 'The server cannot be reached.', true);
  }

  block() {
    if (!this.answer) {
      this.answer = make('div', 'answer');
      this.add(this.answer);
    }
    return this.answer;
  }

  // ── messages ──

  message(message) {
    if (message.role === 'user') return this.userMessage(message);
    if (message.role === 'tool') return this.result(message);
    this.answer = null;
    for (const part of message.parts) {
      if (part.part === 'text') this.grow('text', part.text);
      else if (part.part === 'reasoning') { if (part.text) this.grow('reasoning', part.text); }
      else {
        const card = this.card(part.id, part.name);
        card.arguments(part.arguments);
      }
      this.part = null;
    }
    if (message.partial) this.block().lastElementChild?.classList.add('partial');
    this.commit();
  }

  userMessage(message) {
    const words = message.parts.map((part) => (part.part === 'text' ? part.text : `[${part.media_type}]`));
    const text = words.join('');
    this.answer = null;
    if (this.user) {
      this.user.textContent = text;
      this.user = null;
      return;
    }
    const said = make('div', 'said', text);
    this.add(make('div', 'user', null, said));
    return said;
  }

  result(message) {
    const card = this.calls.get(message.call_id);
    if (!card || card.settled) return;
    let value = message.text;
    try { value = JSON.parse(value); } catch { /* a plain text */ }
    if (value?.error?.message !== undefined) value = value.error.message;
    card.settle(message.outcome ?? 'ok', value);
  }

  commit() {
    this.answer = null;
    this.part = null;
    this.shown = [];
  }

  // ── parts ──

  grow(kind, text) {
    if (this.part?.kind !== kind) {
      const said = make('div', 'said', '');
      let outer = said;
      if (kind === 'reasoning') {
        outer = make('details', 'reasoning', null, make('summary', '', 'Reasoning'), said);
      }
      this.part = { kind, node: said.appendChild(document.createTextNode('')) };
      this.block().append(outer);
      this.shown.push(outer);
    }
    this.part.node.appendData(text);
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
    if (event.path?.length) return this.nested(event);
    this.timeline.event(event);
    switch (event.event) {
      case 'chat_started':
        this.spoke = false;
        if (event.message && !this.user) this.user = this.userMessage(event.message);
        break;
      case 'text_delta': this.spoke = true; this.grow('text', event.text); break;
      case 'reasoning_delta': this.grow('reasoning', event.text); break;
      case 'part_end': this.part = null; break;
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
      case 'tool_call_finished': {
        const { result } = event;
        this.calls.get(event.call_id)?.settle(event.outcome, result.message ?? result.value ?? null);
        break;
      }
      case 'status': this.tell(event.call_id, event.type, event.data); break;
      case 'message_added':
        if (event.message.role === 'assistant') this.commit();
        else this.message(event.message);
        break;
      case 'response_reset': this.withdraw(); break;
      case 'chat_done': this.done(event.response); break;
      case 'chat_aborted': {
        const reason = event.reason || 'stopped';
        this.broken(`${reason[0].toUpperCase()}${reason.slice(1)}.`, false);
        break;
      }
      case 'chat_failed': this.broken(event.error.message, true); break;
    }
  }

  nested(event) {
    const card = this.calls.get(event.path[0]);
    if (!card) return;
    if (event.event === 'status') card.tell(event.type, event.data);
    if (event.event === 'tool_call_started') card.tell(`calls ${event.call.name}`);
  }

  tell(callId, type, data) {
    const card = this.calls.get(callId);
    if (card) card.tell(type, data);
    else setState(running ? `${type}` : '', running);
  }

  done(response) {
    if (response.text && !this.spoke && response.steps === 0) this.grow('text', response.text);
    for (const request of response.pending ?? []) this.question(request);
    if (response.usage) {
      const { input_tokens: input, output_tokens: output } = response.usage;
      if (input || output) this.add(make('p', 'usage', `${input} tokens in, ${output} out`));
    }
    this.commit();
  }

  broken(text, bad) {
    for (const card of this.calls.values()) if (!card.settled) card.settle('aborted', 'not finished');
    this.note(text, bad);
    this.commit();
  }

  question(request) {
    const card = this.card(request.call.id, request.call.name);
    card.arguments(request.call.arguments);
    card.ask(request);
  }
}

// One tool call: its name, state, arguments, result, and the buttons of an approval.
class Card {
  constructor(id, name) {
    this.id = id;
    this.settled = false;
    this.written = '';
    this.badge = make('span', 'badge writing', 'writing');
    this.given = make('pre');
    this.body = make('div', '', null, make('div', 'label', 'Arguments'), this.given);
    this.brief = make('span', 'brief');
    const summary = make('summary', '', null, make('span', 'name', name), this.brief, this.badge);
    this.element = make('details', 'call', null, summary, this.body);
  }

  write(text) {
    this.written += text;
    this.given.textContent = this.written;
  }

  arguments(value) {
    this.given.textContent = pretty(value);
    if (value === null || typeof value !== 'object') return;
    const short = Object.entries(value).map(([key, each]) => `${key}: ${typeof each === 'string' ? each : JSON.stringify(each)}`);
    this.brief.textContent = short.join(', ').slice(0, 120);
  }

  state(kind, text) {
    this.badge.className = `badge ${kind}`;
    this.badge.textContent = text;
  }

  tell(type, data) {
    const more = data === null || data === undefined ? '' : ` ${pretty(data)}`;
    if (!this.told) {
      this.told = make('pre');
      this.body.append(make('div', 'label', 'Progress'), this.told);
    }
    this.told.textContent += `${this.told.textContent ? '\n' : ''}${type}${more}`;
    if (!this.settled) this.state('running', type.slice(0, 24));
  }

  settle(outcome, value) {
    this.settled = true;
    this.state(outcome, outcome);
    this.buttons?.remove();
    this.body.append(make('div', 'label', outcome === 'ok' ? 'Result' : 'Outcome'), make('pre', '', pretty(value)));
  }

  ask(request) {
    this.element.open = true;
    this.state('waiting', 'needs your approval');
    const yes = make('button', '', 'Approve');
    const no = make('button', 'danger', 'Deny');
    const answer = (approved) => {
      yes.disabled = no.disabled = true;
      run({ conversation, answers: { [request.id]: approved ? { approved } : { approved, reason: 'denied by the user' } } })
        .then((fine) => { if (!fine) yes.disabled = no.disabled = false; });
    };
    yes.addEventListener('click', () => answer(true));
    no.addEventListener('click', () => answer(false));
    this.buttons?.remove();
    this.buttons = make('div', 'question', null,
      make('p', 'said', request.prompts.join('\n')), make('div', 'buttons', null, yes, no));
    // It takes no focus: whoever is typing must not approve by the next key.
    this.buttons.setAttribute('role', 'group');
    this.buttons.setAttribute('aria-label', `Approve ${request.call.name}?`);
    this.element.append(this.buttons);
  }
}

// ── the timeline ──────────────────────────────────────────────────────────────────────────────

class Timeline {
  constructor() {
    this.bars = [];
    this.open = new Map();
    this.end = 1;
    this.runs = 0;
    this.run = null;
    this.count = 0;
    this.last = null;
    $('waterfall').replaceChildren();
    $('hooks').replaceChildren();
    this.empty();
  }

  empty() {
    $('no-steps').hidden = this.bars.length > 0;
    $('no-hooks').hidden = this.count > 0;
    $('hook-count').textContent = this.count ? `${this.count} fired` : '';
  }

  // A hook can be told before the first event of its run, so either may begin a run.
  begin(run) {
    if (run === this.run) return;
    this.run = run;
    this.runs += 1;
    this.bars = [];
    this.end = 1;
    this.drawn = 0;
    this.last = null;
    if (this.runs > 1) {
      $('waterfall').append(make('li', 'run', `run ${this.runs}`));
      $('hooks').append(make('li', 'run', `run ${this.runs}`));
    }
  }

  event(event) {
    const { at = 0 } = event;
    if (this.open.size && at - this.drawn > 100) this.draw(at);
    switch (event.event) {
      case 'step_started': this.bar('model', `step ${event.iteration}`, '', at); break;
      case 'message_added': if (event.message.role === 'assistant') this.close('model', at); break;
      case 'step_finished': this.close('model', at); break;
      case 'tool_call_started': this.bar(event.call.id, event.call.name, 'tool', at); break;
      case 'tool_call_finished':
        if (!this.open.has(event.call_id)) this.bar(event.call_id, event.name, 'tool', 0); // approved
        this.close(event.call_id, at, event.outcome);
        break;
      case 'chat_done': case 'chat_aborted': case 'chat_failed':
        for (const request of event.response?.pending ?? []) this.close(request.call.id, at, 'waiting');
        for (const key of [...this.open.keys()]) this.close(key, at);
        break;
    }
  }

  bar(key, name, kind, at) {
    this.close(key, at);
    const bar = make('div', 'bar');
    const time = make('span', 'time', '…');
    const title = make('span', 'bar-name', name);
    title.title = name;
    const row = make('li', `bar-row ${kind}`, null, title, make('div', 'track', null, bar), time);
    const entry = { row, bar, time, from: at, to: null };
    this.bars.push(entry);
    this.open.set(key, entry);
    $('waterfall').append(row);
    this.draw(at);
    this.empty();
  }

  close(key, at, outcome = '') {
    const entry = this.open.get(key);
    if (!entry) return;
    this.open.delete(key);
    entry.to = at;
    if (outcome) entry.row.classList.add(outcome);
    entry.time.textContent = outcome === 'waiting' ? 'waits' : milliseconds(at - entry.from);
    this.draw(at);
  }

  draw(at) {
    this.drawn = at;
    this.end = Math.max(this.end, at);
    for (const { bar, from, to } of this.bars) {
      bar.style.left = `${Math.min(99, (from / this.end) * 100)}%`;
      bar.style.width = `${(((to ?? this.end) - from) / this.end) * 100}%`;
    }
  }

  hook(event) {
    this.count += 1;
    const same = this.last && ['point', 'hook', 'outcome'].every((key) => this.last.event[key] === event[key]);
    if (same) {
      this.last.times += 1;
      this.last.spent += event.duration;
      this.last.point.textContent = `${event.point} ×${this.last.times}`;
      this.last.took.textContent = milliseconds(this.last.spent);
    } else {
      const point = make('span', 'point', event.point);
      const took = make('span', 'time took', milliseconds(event.duration));
      const by = make('span', 'by', event.hook);
      by.title = event.hook;
      const row = make('li', 'hook', null, make('span', 'time', milliseconds(event.at ?? 0)), point,
        make('span', `decided ${event.outcome}`, event.outcome), by, took);
      $('hooks').append(row);
      this.last = { event, point, took, times: 1, spent: event.duration };
    }
    this.empty();
  }
}

// ── runs ──────────────────────────────────────────────────────────────────────────────────────

function setState(text, busy = false) {
  $('state').textContent = text;
  $('state').classList.toggle('busy', busy);
}

function setRunning(value) {
  running = value;
  $('stop').hidden = !value;
  $('send').hidden = value;
  setState(value ? 'answering' : '', value);
}

// Begins a run and shows it. Resolves to whether the server took it.
async function run(body) {
  if (running) return false;
  const mine = view;
  setRunning(true);
  try {
    const response = await ask('native', { method: 'POST', body });
    await show(mine, response);
    return true;
  } catch (error) {
    if (mine === view) mine.problem(error);
    return false;
  } finally {
    if (mine === view) setRunning(false);
    refreshList();
  }
}

// Shows a stream. One that breaks off is read on from where it broke.
async function show(mine, response) {
  let last = '';
  let tries = 0;
  for (;;) {
    try {
      for await (const [id, event] of events(response)) {
        if (mine !== view) return;
        tries = 0;
        last = id || last;
        stick(() => mine.event(event, id.split('-')[0]));
        if (/^chat_(done|aborted|failed)$/.test(event.event) && !event.path?.length) return;
      }
    } catch (error) {
      if (mine !== view) return;
    }
    if (!last || tries >= 5) throw new Problem(0, 'The connection was lost.');
    setState('connecting again', true);
    await new Promise((done) => setTimeout(done, 300 * 2 ** tries));
    tries += 1;
    try {
      response = await ask(`native/${encodeURIComponent(conversation)}/stream`, { headers: { 'Last-Event-ID': last } });
      if (response.status === 204) return void load(conversation);
      setState('answering', true);
    } catch (error) {
      if (error instanceof Problem) throw error;
    }
  }
}

// Keeps the end of the conversation in sight, unless the reader has scrolled away from it.
function stick(change) {
  const log = $('log');
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
  $('latest').hidden = atEnd;
}

async function load(id) {
  conversation = id;
  location.hash = id ? `c=${encodeURIComponent(id)}` : '';
  view = new View();
  const mine = view;
  setRunning(false);
  markCurrent();
  filled = id ? fill(mine, id) : null;
  if (!id) {
    $('log').append(make('p', '', 'Ask something. Every hook that fires is shown in the timeline.'));
    $('log').firstElementChild.id = 'empty';
    $('title').textContent = 'New chat';
  } else if (await filled) {
    await follow(mine, id);
  }
}

// Puts what the server holds of a conversation on the page. Resolves to whether a run of it goes on.
async function fill(mine, id) {
  try {
    const { messages, pending, running: live } = await (await ask(`native/${encodeURIComponent(id)}/messages`)).json();
    if (mine !== view) return false;
    for (const message of messages) mine.message(message);
    for (const request of pending ?? []) mine.question(request);
    $('log').scrollTop = $('log').scrollHeight;
    return live;
  } catch (error) {
    if (mine !== view) return false;
    if (error.status === 404) load(null);
    else mine.problem(error);
    return false;
  }
}

async function follow(mine, id) {
  setRunning(true);
  try {
    const response = await ask(`native/${encodeURIComponent(id)}/stream`);
    if (response.status === 204) return void load(id); // it has just ended
    await show(mine, response);
  } catch (error) {
    if (mine === view) mine.problem(error);
  } finally {
    if (mine === view) setRunning(false);
    refreshList();
  }
}

// ── the list of conversations ─────────────────────────────────────────────────────────────────

async function refreshList() {
  let found;
  try {
    found = (await (await ask('conversations')).json()).conversations;
  } catch {
    return;
  }
  $('conversations').replaceChildren(...found.map(({ id, title }) => {
    const button = make('button', 'conversation', title || id);
    button.dataset.id = id;
    button.addEventListener('click', () => { closePanels(); load(id); });
    return make('li', '', null, button);
  }));
  markCurrent();
}

function markCurrent() {
  for (const button of document.querySelectorAll('.conversation')) {
    const current = button.dataset.id === conversation;
    button.setAttribute('aria-current', String(current));
    if (current) $('title').textContent = button.textContent;
  }
}

// ── the token ─────────────────────────────────────────────────────────────────────────────────

function needToken(problem) {
  $('token-error').textContent = problem;
  if (!$('ask-token').open) $('ask-token').showModal();
}

$('token-form').addEventListener('submit', () => {
  token = $('token').value.trim();
  sessionStorage.setItem('hookline-token', token);
  $('token').value = '';
  begin();
});

// ── what the user does ────────────────────────────────────────────────────────────────────────

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(10))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function send() {
  const meant = conversation;
  await filled; // whoever types before the conversation is there speaks after it
  if (conversation !== meant) return;
  const text = $('say').value;
  if (!text.trim() || running) return;
  $('say').value = '';
  grow();
  if (!conversation) {
    conversation = newId();
    location.hash = `c=${conversation}`;
    $('title').textContent = text.slice(0, 60);
  }
  $('log').scrollTop = $('log').scrollHeight;
  run({ conversation, message: text }).then((fine) => {
    if (!fine && !$('say').value) { $('say').value = text; grow(); }
  });
}

function stop() {
  if (running && conversation) {
    setState('stopping', true);
    ask(`native/${encodeURIComponent(conversation)}/stop`, { method: 'POST', body: {} }).catch(() => {});
  }
}

function grow() {
  $('say').style.height = 'auto';
  $('say').style.height = `${Math.min($('say').scrollHeight + 2, innerHeight * 0.4)}px`;
}

function closePanels() {
  document.body.classList.remove('list-open', 'timeline-open');
  expanded();
}

function expanded() {
  const { classList } = document.body;
  $('show-list').setAttribute('aria-expanded', String(classList.contains('list-open')));
  const open = wide.matches ? !classList.contains('no-timeline') : classList.contains('timeline-open');
  $('show-timeline').setAttribute('aria-expanded', String(open));
}

$('form').addEventListener('submit', (event) => { event.preventDefault(); send(); });
$('say').addEventListener('input', grow);
$('say').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
$('stop').addEventListener('click', () => { stop(); $('say').focus(); });
$('new').addEventListener('click', () => { closePanels(); load(null); $('say').focus(); });
$('latest').addEventListener('click', () => { $('log').scrollTop = $('log').scrollHeight; $('latest').hidden = true; });
$('log').addEventListener('scroll', () => {
  const log = $('log');
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 60) $('latest').hidden = true;
});
$('show-list').addEventListener('click', () => {
  document.body.classList.toggle('list-open');
  document.body.classList.remove('timeline-open');
  expanded();
});
$('show-timeline').addEventListener('click', () => {
  document.body.classList.toggle(wide.matches ? 'no-timeline' : 'timeline-open');
  document.body.classList.remove('list-open');
  expanded();
});
wide.addEventListener('change', closePanels);
addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || $('ask-token').open) return;
  const { classList } = document.body;
  if (classList.contains('list-open') || classList.contains('timeline-open')) closePanels();
  else stop();
});
addEventListener('hashchange', () => {
  const id = new URLSearchParams(location.hash.slice(1)).get('c');
  if (id !== conversation) load(id);
});

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  refreshList();
  load(given.get('c')); // at once: an answer that comes late must not take the page from a fast typist
}

const given = new URLSearchParams(location.hash.slice(1));
token = given.get('token') ?? sessionStorage.getItem('hookline-token') ?? '';
if (given.has('token')) {
  sessionStorage.setItem('hookline-token', token);
  given.delete('token');
  history.replaceState(null, '', `#${given}`);
}
expanded();
begin();
$('say').focus();
