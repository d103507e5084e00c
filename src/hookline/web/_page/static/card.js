// One tool call: its name, state, arguments, result, and the question for approval.

import { button, editable, make, pretty, seen, seenText } from './dom.js';
import { actions } from './server.js';

export class Card {
  constructor(id, name) {
    this.id = id;
    this.name = seenText(name);
    this.settled = false;
    this.written = '';
    this.badge = make('span', 'badge writing', 'writing');
    this.given = make('pre');
    this.given.tabIndex = 0;
    this.body = make('div', '', null, make('div', 'label', 'Arguments'), this.given);
    this.brief = make('span', 'brief');
    const summary = make('summary', '', null, make('span', 'name', null, ...seen(name)), this.brief, this.badge);
    this.element = make('details', 'call', null, summary, this.body);
  }

  write(text) {
    this.written += text;
    this.given.replaceChildren(...seen(this.written));
  }

  arguments(value) {
    this.given.replaceChildren(...seen(pretty(value)));
    if (value === null || typeof value !== 'object') return;
    const short = Object.entries(value).map(([key, each]) => `${key}: ${typeof each === 'string' ? each : JSON.stringify(each)}`);
    this.brief.replaceChildren(...seen(short.join(', ').slice(0, 120)));
  }

  state(kind, text) {
    this.badge.className = `badge ${kind}`;
    this.badge.textContent = text;
  }

  tell(type, data) {
    const more = data === null || data === undefined ? '' : ` ${pretty(data)}`;
    if (!this.told) {
      this.told = make('pre');
      this.told.tabIndex = 0;
      this.body.append(make('div', 'label', 'Progress'), this.told);
    }
    this.told.append(...seen(`${this.told.textContent ? '\n' : ''}${type}${more}`));
    if (!this.settled) this.state('running', seenText(type).slice(0, 24));
  }

  settle(outcome, value) {
    this.settled = true;
    this.state(outcome, outcome);
    this.question?.remove();
    const shown = make('pre', '', null, ...seen(pretty(value) ?? ''));
    shown.tabIndex = 0;
    this.body.append(make('div', 'label', outcome === 'ok' ? 'Result' : 'Outcome'), shown);
  }

  // The question does not take the focus: a person who is typing must not approve by accident.
  ask(request) {
    this.element.open = true;
    this.state('waiting', 'needs your approval');
    const reason = make('input', 'reason');
    reason.placeholder = 'Reason (optional)';
    reason.setAttribute('aria-label', `Why ${this.name} may not run; the model sees the reason`);
    const all = () => this.question.querySelectorAll('button, input, textarea');
    const answer = (said) => {
      for (const each of all()) each.disabled = true;
      actions.answer(request.id, said).then((fine) => {
        if (!fine) for (const each of all()) each.disabled = false;
      });
    };
    const deny = () => answer({ approved: false, reason: reason.value.trim() || 'denied by the user' });
    reason.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') { event.preventDefault(); deny(); }
    });
    const decides = actions.about?.approvals !== false;
    const buttons = decides ? make('div', 'buttons', null,
      button('', 'Approve', () => answer({ approved: true })),
      ...(actions.about?.edits === false ? [] : [button('plain', 'Edit', () => this.edit(request, answer))]),
      make('span', 'deny', null, reason, button('danger', 'Deny', deny)))
      : make('p', 'said', 'Someone else decides.');
    this.question?.remove();
    this.question = make('div', 'question', null,
      make('p', 'said', null, ...seen(request.prompts.join('\n'))), buttons);
    this.question.setAttribute('role', 'group');
    this.question.setAttribute('aria-label', `Approve ${this.name}?`);
    this.element.append(this.question);
  }

  edit(request, answer) {
    this.editor?.remove();
    const area = make('textarea', 'json');
    area.value = editable(request.call.arguments);
    area.rows = Math.min(14, area.value.split('\n').length + 1);
    area.spellcheck = false;
    area.setAttribute('aria-label', `Arguments of ${this.name}, as JSON`);
    const problem = make('p', 'error-text');
    problem.setAttribute('role', 'alert');
    const run = button('', 'Approve changes', () => {
      let changed;
      try { changed = JSON.parse(area.value); } catch (error) { problem.textContent = `This is not JSON: ${error.message}`; return; }
      if (changed === null || typeof changed !== 'object' || Array.isArray(changed)) {
        problem.textContent = 'The arguments must be a JSON object: { … }';
        return;
      }
      answer({ approved: true, arguments: changed });
    });
    const leave = button('plain', 'Cancel', () => { this.editor.remove(); });
    this.editor = make('div', 'editor', null, area, problem, make('div', 'buttons', null, run, leave));
    this.question.append(this.editor);
    area.focus();
  }
}
