// The inbox: the calls of others that wait for this person's approval, in place of the conversation.

import { $, make, seen, tell } from './dom.js';
import { Card } from './card.js';
import { makeSection } from './section.js';
import { actions, ask, askJson, wordsOf } from './server.js';

const EVERY = 10000; // milliseconds between two looks at the server

const rows = new Map(); // the row of each request, by its id
const decided = new Set(); // the ids of the requests that were answered here

export function watchInbox() {
  if (!actions.about?.inbox) return;
  refresh();
  setInterval(() => { if (document.visibilityState === 'visible') refresh(); }, EVERY);
  document.addEventListener('visibilitychange', () => { if (document.visibilityState === 'visible') refresh(); });
}

async function refresh() {
  let requests;
  try {
    requests = (await askJson('approvals')).approvals;
  } catch (error) {
    $('inbox-problem').textContent = wordsOf(error);
    return;
  }
  $('inbox-problem').textContent = '';
  const ids = new Set(requests.map(({ id }) => id));
  for (const [id, row] of rows) if (!ids.has(id) && !decided.has(id)) { row.remove(); rows.delete(id); }
  const before = rows.size;
  for (const request of requests) {
    if (rows.has(request.id)) continue;
    rows.set(request.id, rowOf(request));
    $('requests').append(rows.get(request.id));
  }
  if (rows.size > before) tell('An approval waits for you.');
  for (const row of rows.values()) row.aged();
  count();
}

function count() {
  const waiting = [...rows.keys()].filter((id) => !decided.has(id)).length;
  if (rows.size) $('show-inbox').hidden = false;
  $('inbox-count').textContent = String(waiting);
  $('show-inbox').setAttribute('aria-label', `Approvals: ${waiting} waiting`);
  $('no-requests').hidden = waiting > 0;
}

function rowOf(request) {
  const since = make('time');
  const card = new Card(request.call.id, request.call.name);
  card.arguments(request.call.arguments);
  card.ask(request, (answer, note) => decide(request, card, answer, note));
  const who = make('strong', '', null, ...seen(request.principal || 'somebody'));
  const row = make('li', 'request', null, make('p', 'asker', null, who, ' asks, ', since), card.element);
  row.aged = () => {
    since.textContent = age(request.asked_at);
    if (request.expires) since.textContent += `, until ${new Date(request.expires * 1000).toLocaleTimeString('en')}`;
  };
  if (request.asked_at) {
    since.dateTime = new Date(request.asked_at * 1000).toISOString();
    since.title = new Date(request.asked_at * 1000).toLocaleString('en');
  }
  return row;
}

function age(seconds) {
  const minutes = Math.floor((Date.now() / 1000 - seconds) / 60);
  if (!seconds) return 'at an unknown time';
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ago`;
  return `${Math.floor(minutes / 1440)} days ago`;
}

async function decide(request, card, answer, note) {
  const said = answer.approved && note ? { ...answer, note } : answer;
  try {
    await ask('approvals', { method: 'POST', body: { id: request.id, ...said } });
  } catch (error) {
    await refresh();
    $('inbox-problem').textContent = wordsOf(error);
    return false;
  }
  decided.add(request.id);
  card.answered(answer.approved);
  count();
  tell(`${answer.approved ? 'Approved' : 'Denied'}. ${$('inbox-count').textContent} left.`);
  const next = [...rows].find(([id]) => !decided.has(id))?.[1];
  (next?.querySelector('summary') ?? $('inbox-title')).focus(); // no button: Enter must not decide twice
  return true;
}

export const openInbox = makeSection('inbox', refresh, () => {
  for (const id of decided) { rows.get(id)?.remove(); rows.delete(id); }
  decided.clear();
});
