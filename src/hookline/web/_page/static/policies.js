// Policies: what hooks that the application offers would have done to this person's latest chats.

import { $, make, seen, tell } from './dom.js';
import { makeSection } from './section.js';
import { actions, askJson, wordsOf } from './server.js';

const COLUMNS = ['Chat', 'Call', 'Was', 'Now', 'By', 'Why'];

let running = false;

export async function offerPolicies() {
  if (!actions.about?.policies) return;
  let names;
  try {
    names = (await askJson('policies')).policies;
  } catch { return; } // the page works without them
  $('policy').replaceChildren(...names.map((name) => {
    const option = make('option', '', name);
    option.value = name;
    return option;
  }));
  $('show-policies').hidden = !names.length;
}

async function tryOut() {
  if (running) return;
  running = true;
  $('policies-problem').textContent = '';
  $('report').replaceChildren(make('p', 'quiet', 'The chats are replayed …'));
  try {
    show(await askJson('policies', { method: 'POST', body: { policy: $('policy').value } }));
  } catch (error) {
    $('report').replaceChildren();
    $('policies-problem').textContent = wordsOf(error);
  }
  running = false;
}

function show(report) {
  const counts = Object.entries(report.counts).map(([now, count]) => `${now} ${count}`).join(', ');
  const chats = `${report.more ? 'the latest ' : ''}${report.chats}`;
  const summary = `Chats that would differ: ${report.differ} of ${chats}${counts && ` (${counts})`}`;
  const lines = [make('p', 'summary', summary)];
  if (report.verdicts.length) lines.push(tableOf(report.verdicts));
  if (report.verdicts.some(({ after }) => after)) lines.push(make('p', 'quiet', '* after an earlier difference in the chat'));
  for (const [why, count] of Object.entries(report.inexact)) {
    lines.push(make('p', 'quiet', null, `Inexact (${count}): `, ...seen(why)));
  }
  $('report').replaceChildren(...lines);
  tell(summary);
}

function tableOf(verdicts) {
  const head = make('tr', '', null, ...COLUMNS.map((name) => make('th', '', name)));
  const body = make('tbody', '', null, ...verdicts.map(rowOf));
  const table = make('table', '', null, make('thead', '', null, head), body);
  const box = make('div', 'table', null, table);
  box.tabIndex = 0; // it may scroll
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', 'Differences');
  return box;
}

function rowOf({ conversation, title, call, was, now, after, by, why }) {
  const chat = make('a', '', null, ...seen(title || conversation));
  chat.href = `#c=${encodeURIComponent(conversation)}`;
  chat.addEventListener('click', (event) => { event.preventDefault(); actions.open(conversation); });
  const texts = [call, was, after ? `${now} *` : now, by, why];
  return make('tr', '', null, make('td', '', null, chat), ...texts.map((text) => make('td', '', null, ...seen(text))));
}

makeSection('policies', () => {});
$('policy-form').addEventListener('submit', (event) => { event.preventDefault(); tryOut(); });
