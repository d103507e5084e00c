// Remembered approvals: the calls that run without a question in this conversation, or in all.

import { $, button, make, pretty, seen, tell } from './dom.js';
import { makeSection } from './section.js';
import { actions, ask, askJson, wordsOf } from './server.js';

function path(rule = '') {
  const id = actions.conversation();
  return `rules${rule && `/${encodeURIComponent(rule)}`}${id ? `?conversation=${encodeURIComponent(id)}` : ''}`;
}

export async function refreshRules() {
  const asked = path();
  let rules;
  try {
    ({ rules } = await askJson(asked));
  } catch { return; } // the page works without them
  if (asked !== path()) return;
  $('rule-list').replaceChildren(...rules.map(rowOf));
  $('no-rules').hidden = rules.length > 0;
  $('show-rules').hidden = !rules.length && $('rules').hidden;
}

function rowOf({ id, agent, tool, arguments: args, scope, by, until }) {
  const parts = [
    scope === 'always' ? 'in all conversations' : 'in this conversation',
    by && `approved by ${by}`,
    until && `until ${new Date(until * 1000).toLocaleString('en')}`,
  ];
  return make('li', 'request', null,
    make('p', '', null, make('strong', '', null, ...seen(tool)), ' of ', ...seen(agent)),
    make('pre', '', null, ...seen(pretty(args))),
    make('p', 'quiet', null, ...seen(parts.filter(Boolean).join(', '))),
    button('plain', 'Revoke', () => revoke(id)));
}

async function revoke(id) {
  $('rules-problem').textContent = '';
  try {
    await ask(path(id), { method: 'DELETE' });
    tell('Revoked.');
  } catch (error) {
    $('rules-problem').textContent = wordsOf(error);
  }
  await refreshRules();
  $('rules-title').focus();
}

makeSection('rules', refreshRules, refreshRules);
