// One tool call: its name, state, arguments, result, and the question for approval.

import { button, diffLines, editable, make, pretty, seen, seenText } from './dom.js';
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
    if (!this.settled) this.state('running', seenText(type).slice(0, 24));
    if (typeof data?.diff === 'string') return this.body.append(...described({ kind: 'diff', path: data.path, text: data.diff }));
    if (!this.told) {
      this.told = make('pre');
      this.told.tabIndex = 0;
      this.body.append(make('div', 'label', 'Progress'), this.told);
    }
    if (type === 'output' && typeof data?.text === 'string') return this.told.append(...seen(data.text));
    const more = data === null || data === undefined ? '' : ` ${pretty(data)}`;
    this.told.append(...seen(`${this.told.textContent ? '\n' : ''}${type}${more}`));
  }

  settle(outcome, value) {
    this.settled = true;
    this.state(outcome, outcome);
    this.question?.remove();
    const shown = make('pre', '', null, ...seen(pretty(value) ?? ''));
    shown.tabIndex = 0;
    this.body.append(make('div', 'label', outcome === 'ok' ? 'Result' : 'Outcome'), shown);
  }

  // Names the hooks that decided about the call, and the person, if that was somebody else.
  decided(ran) {
    if (actions.about?.details && ran?.hooks?.length && !this.hooks) {
      const ids = (ran.hook_ids ?? []).filter((id) => !ran.hooks.includes(id));
      const named = ran.hooks.join(', ') + (ids.length ? ` (${ids.join(', ')})` : '');
      this.hooks = make('p', 'fact', null, make('span', 'quiet', 'Decided by '), ...seen(named));
      this.body.append(this.hooks);
    }
    if (!ran?.by || ran.approved == null || actions.about?.approvals !== false) return;
    const text = `${ran.approved ? 'approved' : 'denied'} by ${ran.by}${ran.note ? `: ${ran.note}` : ''}`;
    this.badge.before(make('span', 'by', null, ...seen(text)));
  }

  // The question does not take the focus: a person who is typing must not approve by accident.
  // `decide` gets an answer, and resolves to whether the server accepted it; without it, somebody
  // else decides.
  ask(request, decide) {
    this.request = request;
    this.waits = true;
    this.element.open = true;
    this.state('waiting', decide ? 'needs your approval' : 'waiting for approval');
    this.question?.remove();
    this.question = make('div', 'question', null,
      make('p', 'said', null, ...seen(request.prompts.join('\n'))),
      ...(request.details ?? []).flatMap((detail) => (detail ? described(detail) : [])),
      decide ? this.answers(request, decide) : make('p', 'quiet', 'Somebody else decides. The decision appears here.'));
    this.question.setAttribute('role', 'group');
    this.question.setAttribute('aria-label', decide ? `Approve ${this.name}?` : `${this.name} waits for approval`);
    this.element.append(this.question);
  }

  // The call is for the program that declared its tool, which may be another one than this page.
  awaitClient() {
    this.waits = true;
    this.element.open = true;
    this.state('waiting', 'waits for a result');
    this.question?.remove();
    this.question = make('p', 'quiet', 'This call runs in the application that you use, and waits for its result.');
    this.element.append(this.question);
  }

  // The question was answered, and the call runs or not elsewhere.
  answered(approved) {
    this.settled = true;
    this.state(approved ? 'ok' : 'denied', approved ? 'approved' : 'denied');
    this.question.remove();
    this.element.open = false;
  }

  answers(request, decide) {
    const note = make('input', 'reason');
    note.placeholder = 'Reason (optional)';
    note.setAttribute('aria-label', `Why ${this.name} may run or not; the model sees why it may not`);
    const all = () => this.question.querySelectorAll('button, input, textarea');
    const answer = async (said) => {
      for (const each of all()) each.disabled = true;
      if (!await decide(said, note.value.trim())) for (const each of all()) each.disabled = false;
    };
    const deny = () => answer({ approved: false, reason: note.value.trim() || 'denied by the user' });
    note.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') event.preventDefault(); // a button decides, and not a line that ends
    });
    return make('div', 'buttons', null,
      button('', 'Approve', () => answer({ approved: true })),
      ...(actions.about?.edits === false ? [] : [button('plain', 'Edit', () => this.edit(request, answer))]),
      make('span', 'deny', null, note, button('danger', 'Deny', deny)));
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

// Shows the details of a question: a command or a text as it is, a diff by its lines.
function described({ kind, ...detail }) {
  return Object.entries(detail).flatMap(([name, value]) => {
    const text = pretty(value);
    if (!/^(?:text|diff|command)$/.test(name) && !text.includes('\n')) {
      return [make('p', 'fact', null, make('span', 'quiet', `${seenText(name)}: `), ...seen(text))];
    }
    const diff = name === 'diff' || kind === 'diff';
    const shown = make('pre', diff ? 'diff' : '', null, ...(diff ? diffLines(text) : seen(text)));
    shown.tabIndex = 0;
    return [make('div', 'label', seenText(name === 'text' ? kind ?? name : name)), shown];
  });
}
