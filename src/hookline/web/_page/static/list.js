// The list of conversations, by date: search, rename, delete.

import { $, button, make, prompted, seenText, tell } from './dom.js';
import { actions, ask, askJson, wordsOf } from './server.js';

let words = '';

function groupOf(seconds) {
  if (!seconds) return 'Earlier';
  const day = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate());
  const then = new Date(seconds * 1000);
  const days = Math.round((day(new Date()) - day(then)) / 86400000);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  if (days < 7) return 'Last 7 days';
  return then.toLocaleDateString('en', { month: 'long', year: 'numeric' });
}

export async function refreshList() {
  const asked = words;
  let found;
  try {
    found = (await askJson(`conversations${asked ? `?search=${encodeURIComponent(asked)}` : ''}`)).conversations;
  } catch {
    return;
  }
  if (asked !== words) return;
  const rows = [];
  let group = '';
  for (const each of found) {
    const its = groupOf(each.updated);
    if (its !== group) rows.push(make('li', 'group', group = its));
    rows.push(row(each));
  }
  if (!found.length) rows.push(make('li', 'quiet group', asked ? 'Nothing found.' : 'No conversations yet.'));
  $('conversations').replaceChildren(...rows);
  markCurrent();
}

function row({ id, title, updated }) {
  const name = seenText(title || id);
  const open = button('conversation', name, () => actions.open(id));
  open.dataset.id = id;
  open.title = updated ? `${name}\n${new Date(updated * 1000).toLocaleString('en')}` : name;
  return make('li', 'entry', null, open,
    button('plain', `Rename ${name}`, () => rename(id, name), 'edit'),
    button('plain', `Delete ${name}`, () => remove(id, name), 'remove'));
}

async function rename(id, name) {
  const title = await prompted('Rename this conversation', { value: name });
  if (!title) return;
  await changing(ask(`conversations/${encodeURIComponent(id)}`, { method: 'PATCH', body: { title: title.slice(0, 60) } }));
}

async function remove(id, name) {
  if (!await prompted(`Delete “${name}”?`, { yes: 'Delete', danger: true })) return;
  if (await changing(ask(`conversations/${encodeURIComponent(id)}`, { method: 'DELETE' }))) actions.gone(id);
}

async function changing(request) {
  try {
    await request;
    return true;
  } catch (error) {
    tell(wordsOf(error));
    $('list-problem').textContent = wordsOf(error);
    return false;
  } finally {
    refreshList();
  }
}

export function markCurrent() {
  $('list-problem').textContent = '';
  for (const entry of document.querySelectorAll('.conversation')) {
    const current = entry.dataset.id === actions.conversation();
    entry.setAttribute('aria-current', String(current));
    if (current) $('title').textContent = entry.textContent;
  }
}

let timer = 0;
$('search').addEventListener('input', () => {
  words = $('search').value.trim();
  clearTimeout(timer);
  timer = setTimeout(refreshList, 150);
});
