// The timeline: a bar for each step and call, and every hook as it fires.

import { $, make, milliseconds, seen, seenText } from './dom.js';
import { toggleChanges, toggleStep } from './detail.js';

// How an open step and an open call end with their chat.
const ENDS = { chat_failed: ['error', 'aborted'], chat_aborted: ['aborted', 'aborted'] };

export class Timeline {
  constructor() {
    this.bars = [];
    this.open = new Map();
    this.end = 1;
    this.runs = 0;
    this.run = null;
    this.count = 0;
    this.last = null;
    this.lastRows = new Map(); // the last row of a call with its sub-agent, and of a server's calls in this step
    $('waterfall').replaceChildren();
    $('hooks').replaceChildren();
    this.empty();
  }

  empty() {
    $('no-steps').hidden = this.bars.length > 0 || this.runs > 1;
    $('no-hooks').hidden = this.count > 0;
    $('hook-count').textContent = this.count ? `${this.count} fired` : '';
  }

  // A hook may arrive before the first event of its run, so both may begin a run.
  begin(run) {
    if (run === this.run) return;
    this.run = run;
    this.runs += 1;
    this.bars = [];
    this.open = new Map();
    this.end = 1;
    this.drawn = 0;
    this.last = null;
    this.lastRows = new Map();
    if (this.runs > 1) {
      $('waterfall').append(make('li', 'run', `run ${this.runs}`));
      $('hooks').append(make('li', 'run', `run ${this.runs}`));
    }
  }

  event(event) {
    const { at = 0, path = [], chat_id: chat = '' } = event;
    const within = path.map((id) => `${id}/`).join(''); // the key prefix of a sub-agent
    const bar = (key, name, kind, from, more) => this.bar(within + key, name, kind, from, { path, ...more });
    if (this.open.size && at - this.drawn > 100) this.draw(at);
    switch (event.event) {
      case 'step_started': {
        const { iteration } = event;
        for (const key of this.lastRows.keys()) if (!path.length && key.startsWith('scope ')) this.lastRows.delete(key);
        const place = path.length ? `${encodeURIComponent(chat)}/${iteration}` : String(iteration);
        bar('model', `step ${iteration}`, '', at, { step: place });
        break;
      }
      case 'message_added': if (event.message.role === 'assistant') this.close(`${within}model`, at); break;
      case 'step_finished': this.close(`${within}model`, at); break;
      case 'tool_call_started': bar(event.call.id, event.call.name, 'tool', at, { scope: event.scope }); break;
      case 'tool_call_finished':
        if (!this.open.has(within + event.call_id)) bar(event.call_id, event.name, 'tool', 0); // approved
        this.close(within + event.call_id, at, event.outcome);
        break;
      case 'chat_done': case 'chat_aborted': case 'chat_failed':
        for (const request of event.response?.pending ?? []) this.close(within + request.call.id, at, 'waiting');
        for (const [key, { row }] of [...this.open]) {
          const outcome = ENDS[event.event]?.[row.matches('.tool') ? 1 : 0];
          if (key.startsWith(within)) this.close(key, Math.max(at, this.drawn), outcome);
        }
        break;
    }
  }

  // Calls of a step to the same server, or from the same other scope, are grouped, and the rows of a
  // sub-agent are below the call that started it.
  place(row, key, path, scope) {
    let after = this.lastRows.get(path.join('/'));
    if (scope && scope !== 'agent') {
      const group = `scope ${scope}`;
      if (!this.lastRows.has(group)) {
        this.lastRows.set(group, make('li', 'server', seenText(scope)));
        $('waterfall').append(this.lastRows.get(group));
      }
      after = this.lastRows.get(group);
    }
    this.put(row, after);
    this.lastRows.set(key, row);
  }

  // Inserts a row after another row and its group.
  put(row, after) {
    if (!after) return $('waterfall').append(row);
    after.after(row);
    for (const [key, last] of this.lastRows) if (last === after) this.lastRows.set(key, row);
  }

  bar(key, name, kind, at, { path = [], scope = null, step = null } = {}) {
    this.close(key, at);
    const bar = make('span', 'bar');
    const time = make('span', 'time', '…');
    const title = make('span', 'bar-name', seenText(name));
    title.title = seenText(name);
    const { run } = this;
    const line = make(step === null ? 'div' : 'button', `bar-row ${kind}`, null, title, make('span', 'track', null, bar), time);
    line.style.setProperty('--depth', path.length);
    const row = make('li', '', null, line);
    if (step !== null) {
      line.type = 'button';
      line.setAttribute('aria-expanded', 'false');
      line.addEventListener('click', () => toggleStep(line, row, run, step));
    }
    const entry = { row: line, bar, time, from: at, to: null };
    this.bars.push(entry);
    this.open.set(key, entry);
    this.place(row, key, path, scope);
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
    this.count += event.times ?? 1;
    const same = this.last && ['point', 'hook', 'outcome'].every((key) => this.last.event[key] === event[key]);
    if (same) {
      this.last.times += event.times ?? 1;
      this.last.spent += event.duration;
      this.last.point.textContent = `${event.point} ×${this.last.times}`;
      this.last.took.textContent = milliseconds(this.last.spent);
      this.last.changes.push(...(event.changes ?? []).slice(0, 20 - this.last.changes.length));
    } else {
      this.newHook(event);
    }
    this.empty();
  }

  newHook(event) {
    const changes = [...(event.changes ?? [])];
    const times = event.times ?? 1;
    const outcome = event.outcome === 'ok' && changes.length ? 'changed' : event.outcome;
    const point = make('span', 'point', times > 1 ? `${event.point} ×${times}` : event.point);
    const took = make('span', 'time took', milliseconds(event.own ?? event.duration));
    if (event.own != null) took.title = `its own time; ${milliseconds(event.duration)} including the wrapped call`;
    const hook = seenText(event.id && event.id !== event.hook ? `${event.hook} (${event.id})` : event.hook);
    const by = make('span', 'by', hook);
    by.title = hook;
    const line = make(changes.length ? 'button' : 'div', 'hook-row', null,
      make('span', 'time', milliseconds(event.at ?? 0)), point,
      make('span', `decided ${outcome}`, outcome), by, took);
    const row = make('li', outcome === 'ok' ? 'hook silent' : 'hook', null, line);
    if (changes.length) {
      line.type = 'button';
      line.setAttribute('aria-expanded', 'false');
      line.addEventListener('click', () => toggleChanges(line, row, changes));
    }
    $('hooks').append(row);
    this.last = { event, point, took, times, spent: event.duration, changes };
  }
}

const only = $('decisions');
only.checked = localStorage.getItem('hookline-decisions') === 'only';
const show = () => $('hooks').classList.toggle('decisions', only.checked);
only.addEventListener('change', () => {
  localStorage.setItem('hookline-decisions', only.checked ? 'only' : 'all');
  show();
});
show();
