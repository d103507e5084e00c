// The details behind a click in the timeline: a step's request and response, a hook's changes.

import { make, milliseconds, seen } from './dom.js';
import { actions, askJson, wordsOf } from './server.js';

function toggle(line, row, made) {
  const open = line.getAttribute('aria-expanded') === 'true';
  line.setAttribute('aria-expanded', String(!open));
  if (open) row.querySelector('.detail')?.remove();
  else row.append(made());
}

function text(value, kind = '') {
  const pre = make('pre', kind, null, ...seen(value));
  pre.tabIndex = 0;
  return pre;
}

export function toggleChanges(line, row, changes) {
  toggle(line, row, () => make('div', 'detail', null, ...changes.flatMap(({ name, before, after }) => [
    make('div', 'label', name),
    before ? text(before, 'before') : make('p', 'quiet nothing', 'empty before'),
    after ? text(after, 'after') : make('p', 'quiet nothing', 'empty after'),
  ])));
}

export function toggleStep(line, row, run, place) {
  toggle(line, row, () => {
    const box = make('div', 'detail', null, make('p', 'quiet', 'Loading …'));
    askJson(`page/${encodeURIComponent(actions.conversation())}/steps/${encodeURIComponent(run)}/${place}`).then(
      (found) => box.replaceChildren(...shown(found)),
      (error) => box.replaceChildren(make('p', 'quiet', actions.about?.details || error.status !== 404
        ? wordsOf(error) : 'Requests are not recorded here: serve the page with details.')),
    );
    return box;
  });
}

function folded(title, count, ...content) {
  const summary = make('summary', '', null, make('span', 'name', title), make('span', 'brief', count));
  return make('details', 'part', null, summary, make('div', '', null, ...content));
}

function shown(step) {
  const facts = [['Model', step.model]];
  if (step.usage) {
    const { input_tokens: input, output_tokens: output, cache_read_tokens: cached } = step.usage;
    facts.push(['Tokens', `${input} in${cached ? ` (${cached} cached)` : ''}, ${output} out`]);
  }
  if (step.cost != null) facts.push(['Cost', `${actions.about?.currency ?? ''}${step.cost.toPrecision(3)}`]);
  if (step.first != null) facts.push(['First token', `after ${milliseconds(step.first)}`]);
  if (step.took != null) facts.push(['Answered', `after ${milliseconds(step.took)}`]);
  if (step.tries > 1) facts.push(['Tries', String(step.tries)]);
  if (step.finish_reason) facts.push(['Finished', step.finish_reason]);
  const list = make('dl', 'facts', null, ...facts.flatMap(([name, value]) => [make('dt', '', name), make('dd', '', null, ...seen(value))]));
  const more = [list];
  if (step.system) more.push(folded('System', '', text(step.system)));
  const total = step.messages.length + step.left_out;
  const messages = step.messages.flatMap(([role, said]) => [make('div', 'label', role), text(said)]);
  if (step.left_out) messages.unshift(make('p', 'quiet', `${step.left_out} earlier messages are not shown.`));
  more.push(folded('Messages', String(total), ...messages));
  if (step.tools.length) {
    more.push(folded('Tools', String(step.tools.length),
      ...step.tools.flatMap(([name, about]) => [make('div', 'label', null, ...seen(name)), make('p', 'quiet', about || 'without a description')])));
  }
  const settings = Object.entries(step.settings);
  if (settings.length) more.push(folded('Settings', '', ...settings.map(([name, value]) => make('p', 'setting', `${name} = ${value}`))));
  more.push(folded('Answer', '', text(step.answer || '(nothing yet)')));
  return more;
}
