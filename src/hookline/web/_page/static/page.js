// The chat page of hookline: no dependencies, no build step. This file handles the runs and the
// user's actions; view.js shows the conversation, timeline.js the steps, calls and hooks.

import { $, button, make } from './dom.js';
import { clearQueued, grow, hint, sendLater, take, takeLater } from './compose.js';
import { save } from './export.js';
import { openInbox, watchInbox } from './inbox.js';
import { markCurrent, refreshList } from './list.js';
import './look.js';
import { offerPolicies } from './policies.js';
import { refreshRules } from './rules.js';
import { closeSection } from './section.js';
import { actions, ask, askJson, events, Problem, useToken } from './server.js';
import { View } from './view.js';

const wide = matchMedia('(min-width: 68.01rem)');

let conversation = null; // the id of the shown conversation
let view = null; // the view of the conversation; each conversation gets a new view
let running = false;
let met = null; // resolves when the agent and the options are known
let filled = null; // resolves when the stored conversation is on the page

// ── runs ──────────────────────────────────────────────────────────────────────────────────────

function setState(text, busy = false) {
  $('state').textContent = text;
  $('state').classList.toggle('busy', busy);
}

function setRunning(value) {
  running = value;
  $('stop').hidden = !value;
  document.body.classList.toggle('answering', value);
  setState(value ? 'answering' : '', value);
}

// Starts a run and shows it. Resolves to whether the server accepted it.
async function run(body) {
  if (running) return false;
  const mine = view;
  setRunning(true);
  let ended = '';
  try {
    const response = await ask('native', { method: 'POST', body });
    refreshList();
    if (body.regenerate) mine.takeBack();
    ended = await show(mine, response);
    return true;
  } catch (error) {
    if (mine === view) mine.problem(error);
    return false;
  } finally {
    if (mine === view) over(ended);
    refreshList();
  }
}

// Ends a run: sends the message that waits for its end, unless the run failed or was aborted.
function over(ended) {
  setRunning(false);
  refreshRules();
  if (ended === 'asked') awaitDecision(view);
  const taken = takeLater();
  if (taken && ended === 'chat_done') say(taken);
  else taken?.back();
}

// Waits until somebody else has decided about the calls that wait in the conversation.
async function awaitDecision(mine) {
  await met;
  if (actions.about?.approvals !== false) return;
  const id = conversation;
  let before = null;
  for (let wait = 1000; ; wait = Math.min(15000, wait * 1.2)) {
    await new Promise((done) => setTimeout(done, wait));
    if (mine !== view || running) return;
    const now = await askJson(`page/${encodeURIComponent(id)}/pending`).catch(() => null);
    if (!now || mine !== view || running) continue;
    before ??= mine.waiting().sort().join();
    if (now.running || now.pending.sort().join() !== before) return void load(id);
  }
}

// Shows a stream, and returns the name of its last event. A broken stream is continued.
async function show(mine, response) {
  let last = '';
  let tries = 0;
  for (;;) {
    let since = performance.now();
    try {
      for await (const [id, event] of events(response)) {
        if (performance.now() - since > 20) { // many events at once: let the browser draw
          await new Promise((done) => setTimeout(done));
          since = performance.now();
        }
        if (mine !== view) return '';
        tries = 0;
        last = id || last;
        stick(() => mine.event(event, id.split('-')[0]));
        if (event.event === 'reload') { load(conversation); return ''; }
        if (/^chat_(done|aborted|failed)$/.test(event.event) && !event.path?.length) {
          return event.response?.pending?.length ? 'asked' : event.event;
        }
      }
    } catch (error) {
      if (mine !== view) return '';
    }
    if (!last || tries >= 5) throw new Problem(0, 'The connection was lost.');
    setState('reconnecting', true);
    await new Promise((done) => setTimeout(done, 300 * 2 ** tries));
    tries += 1;
    try {
      response = await ask(`native/${encodeURIComponent(conversation)}/stream`, { headers: { 'Last-Event-ID': last } });
      if (response.status === 204) { load(conversation); return ''; }
      setState('answering', true);
    } catch (error) {
      if (error instanceof Problem) throw error;
    }
  }
}

// Keeps the end of the conversation visible, unless the reader has scrolled away from it.
let following = true;
let top = 0; // the last scroll position of the log
let height = 0; // the height of its content at that time
let moving = 0; // the next frame, if the view moves in it

function stick(change) {
  change();
  if (!moving) moving = requestAnimationFrame(follows); // one layout for all changes of a frame
}

function follows() {
  moving = 0;
  if (following) $('log').scrollTop = $('log').scrollHeight;
  $('latest').hidden = following;
}

function toEnd() {
  following = true;
  follows();
}

// Growing content does not move the view, and shrinking content moves it to its end: only a scroll
// upwards in the same content leaves the end. A browser may find out the height of the last messages
// only when they are in view, so the end may have moved.
function scrolled() {
  const log = $('log');
  const left = log.scrollHeight - log.scrollTop - log.clientHeight;
  if (left < 60) following = true;
  else if (log.scrollTop < top - 2 && log.scrollHeight >= height) following = false;
  top = log.scrollTop;
  height = log.scrollHeight;
  if (following && left > 1) stick(() => {});
  $('latest').hidden = following;
}

// ── conversations ─────────────────────────────────────────────────────────────────────────────

async function load(id) {
  conversation = id;
  location.hash = id ? `c=${encodeURIComponent(id)}` : '';
  view = new View();
  const mine = view;
  setRunning(false);
  takeLater()?.back();
  clearQueued();
  hint('');
  markCurrent();
  $('export').hidden = !id;
  refreshRules();
  filled = id ? fill(mine, id) : null;
  if (!id) {
    $('title').textContent = 'New chat';
    showEmpty();
  } else if (await filled) {
    await follow(mine, id);
  }
}

// The empty page: the agent, and suggested questions.
function showEmpty() {
  const { about } = actions;
  const box = make('div', 'empty');
  box.id = 'empty';
  box.append(make('h2', '', about?.title ?? 'New chat'));
  if (about?.model) box.append(make('p', 'quiet', about.name === about.title ? about.model : `${about.name} · ${about.model}`));
  box.append(make('p', '', about?.description || 'Ask a question. The timeline shows every hook that fires.'));
  if (about?.starters.length) {
    box.append(make('div', 'starters', null, ...about.starters.map((text) => button('plain starter', text, () => {
      $('say').value = text;
      send();
    }))));
  }
  $('log').replaceChildren(box);
}

// Shows a stored conversation. Resolves to whether it has an active run.
async function fill(mine, id) {
  try {
    const path = encodeURIComponent(id);
    const [{ messages, pending, clientCalls, running: live }, kept] = await Promise.all([
      askJson(`native/${path}/messages`),
      askJson(`page/${path}/timeline`).catch(() => ({ runs: [], feedback: {} })),
      met,
    ]);
    if (mine !== view) return false;
    mine.feedback = kept.feedback;
    const past = kept.runs.filter(({ ended }) => ended);
    const known = new Set(messages.map((message) => message.id));
    for (const each of past.filter(({ after }) => !known.has(after))) mine.draw(each);
    for (const message of messages) {
      mine.message(message);
      for (const each of past) if (each.after === message.id) { mine.draw(each); mine.past(each); }
    }
    for (const each of past) if (!each.after && each.ended !== 'done') mine.past(each);
    for (const request of pending ?? []) mine.question(request);
    for (const call of clientCalls ?? []) mine.clientCall(call);
    mine.commit();
    if (!live && past.at(-1)?.ended === 'done') mine.sayIfEmpty();
    if (pending?.length) awaitDecision(mine);
    toEnd();
    requestAnimationFrame(toEnd); // once the height of the last messages is known
    return live;
  } catch (error) {
    if (mine === view) mine.problem(error);
    return false;
  }
}

async function follow(mine, id) {
  setRunning(true);
  let ended = '';
  try {
    const response = await ask(`native/${encodeURIComponent(id)}/stream`);
    if (response.status === 204) return void load(id); // the run has just ended
    ended = await show(mine, response);
  } catch (error) {
    if (mine === view) mine.problem(error);
  } finally {
    if (mine === view) over(ended);
    refreshList();
  }
}

// ── actions of the user ────────────────────────────────────────────────────────────────────────

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(10))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function send() {
  const meant = conversation;
  await filled; // a message typed during loading comes after the loaded ones
  if (conversation !== meant) return;
  const taken = take();
  if (taken && running) steer(taken);
  else if (taken) say(taken);
}

let steering = Promise.resolve(); // one message after the other, so that they arrive in order

// Sends a message into the running answer. If the answer takes none, it is sent after the answer.
function steer(taken) {
  const mine = view;
  const path = `native/${encodeURIComponent(conversation)}/messages`;
  const message = { id: newId(), parts: taken.parts };
  steering = steering.then(async () => {
    try {
      const { id } = await askJson(path, { method: 'POST', body: { message } });
      if (mine === view) mine.sent(id, taken);
    } catch (error) {
      if (mine !== view || error.status !== 409) {
        taken.back();
        view.problem(error);
      } else if (running) sendLater(taken);
      else say(taken);
    }
  });
}

function say(taken) {
  if (!conversation) {
    conversation = newId();
    location.hash = `c=${conversation}`;
    $('title').textContent = (taken.parts.find(({ part }) => part === 'text')?.text ?? 'A file').slice(0, 60);
    $('export').hidden = false;
  }
  toEnd();
  run({ conversation, message: { parts: taken.parts } }).then((fine) => { if (!fine) taken.back(); });
}

function stop() {
  if (running && conversation) {
    setState('stopping', true);
    ask(`native/${encodeURIComponent(conversation)}/stop`, { method: 'POST', body: {} }).catch(() => {});
  }
}

Object.assign(actions, {
  conversation: () => conversation,
  state: (text) => setState(running ? text : '', running),
  stick,
  open(id) { closePanels(); closeSection(); load(id); },
  gone(id) { if (id === conversation) load(null); },
  answer: (id, said) => run({ conversation, answers: { [id]: said } }),
  again: (messageId) => run({ conversation, regenerate: true, messageId }),
  async fork(before, parts) {
    if (running) { hint('An answer is running; stop it first.'); return false; }
    const mine = view;
    try {
      const path = `conversations/${encodeURIComponent(conversation)}/fork`;
      const { id, kept } = await askJson(path, { method: 'POST', body: { before, id: newId() } });
      if (kept) await load(id);
      else { await load(null); conversation = id; location.hash = `c=${id}`; $('export').hidden = false; }
      say({ parts, back() {} });
      return true;
    } catch (error) {
      if (mine === view) mine.problem(error);
      return false;
    }
  },
});

// ── panels ────────────────────────────────────────────────────────────────────────────────────

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
$('say').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
$('stop').addEventListener('click', () => { stop(); $('say').focus(); });
$('new').addEventListener('click', () => { closePanels(); closeSection(); load(null); $('say').focus(); });
$('latest').addEventListener('click', toEnd);
$('log').addEventListener('scroll', scrolled);
$('log').addEventListener('load', follows, true); // an image has its size now
for (const kind of ['markdown', 'json']) {
  $(`export-${kind}`).addEventListener('click', () => { $('export').open = false; save(conversation, kind); });
}
for (const name of ['policies', 'rules']) $(`show-${name}`).addEventListener('click', closePanels);
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
addEventListener('click', (event) => { if (!$('export').contains(event.target)) $('export').open = false; });
addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || $('ask-token').open || $('ask').open) return;
  const { classList } = document.body;
  if ($('export').open) $('export').open = false;
  else if (classList.contains('list-open') || classList.contains('timeline-open')) closePanels();
  else if (!closeSection()) stop();
});
addEventListener('hashchange', () => {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has('approvals')) return openInbox();
  const id = given.get('c');
  if (id !== conversation) load(id);
});

$('token-form').addEventListener('submit', () => {
  useToken($('token').value.trim());
  $('token').value = '';
  begin();
});

async function meet() {
  try {
    actions.about = await askJson('page/about');
    document.title = actions.about.title;
    if ($('empty')) showEmpty();
    watchInbox();
    offerPolicies();
  } catch { /* the page works without it */ }
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  refreshList();
  met = meet();
  if (given.has('approvals')) openInbox();
  load(given.get('c')); // at once: a late response must not replace the page of a fast typist
}

expanded();
begin();
grow();
$('say').focus();
