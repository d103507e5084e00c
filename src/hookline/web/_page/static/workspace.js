// What the agent has done in its workspace: its plan, and the files that it has changed. Both come
// from the statuses of tools, live or from the stored timeline.

import { $, diffLines, make, seen, seenText } from './dom.js';

const MARKS = { open: '○', active: '◐', done: '✓' };

export class Workspace {
  constructor() {
    this.files = new Map(); // the row of each file, by its path
    this.leftOut = 0;
    for (const id of ['plan', 'changed']) { $(id).replaceChildren(); $(`${id}-section`).hidden = true; }
    $('changed-left-out').hidden = true;
  }

  // Shows a status. Returns whether it is shown here alone, and not with its call, too.
  status(type, data) {
    if (type === 'file_changed' && typeof data?.path === 'string') this.changed(data);
    else if (type === 'plan' && Array.isArray(data?.items)) return this.plan(data.items);
    else if (type === 'workspace' && data?.kind === 'files_changed') return this.more(data.left_out);
    return false;
  }

  plan(items) {
    const done = items.filter(({ status }) => status === 'done').length;
    $('plan-count').textContent = `${done} of ${items.length} done`;
    $('plan').replaceChildren(...items.map(({ text, status }) => {
      const mark = make('span', 'mark', MARKS[status] ?? MARKS.open);
      mark.setAttribute('aria-hidden', 'true');
      const state = status === 'open' ? [] : [make('span', 'hidden', ` (${seenText(String(status))})`)];
      return make('li', `item ${status in MARKS ? status : 'open'}`, null, mark,
        make('span', '', null, ...seen(String(text)), ...state));
    }));
    $('plan-section').hidden = !items.length;
    return true;
  }

  // A file that is changed several times has one row, with all differences in their order.
  changed({ path, diff, before, after }) {
    let file = this.files.get(path);
    if (!file) {
      file = { added: 0, removed: 0, isNew: before === null, kind: make('span', 'quiet'), count: make('span', 'lines-changed'), body: make('div') };
      const name = make('span', 'path', null, ...seen(path));
      file.row = make('li', '', null, make('details', 'part', null, make('summary', '', null, name, file.kind, file.count), file.body));
      this.files.set(path, file);
    }
    const text = typeof diff === 'string' ? diff : '';
    for (const line of text.split('\n').slice(2)) {
      if (line[0] === '+') file.added += 1;
      if (line[0] === '-') file.removed += 1;
    }
    file.kind.textContent = after === null ? 'deleted' : file.isNew ? 'new' : '';
    file.count.replaceChildren(make('span', 'i', `+${file.added}`), ' ', make('span', 'd', `−${file.removed}`));
    file.body.append(text ? diffBox(text) : make('p', 'quiet', 'This difference is too large to be shown.'));
    $('changed').append(file.row); // the latest is the last
    $('changed-count').textContent = String(this.files.size);
    $('changed-section').hidden = false;
  }

  more(count) {
    this.leftOut += count;
    $('changed-left-out').textContent = `${this.leftOut} more are not listed.`;
    $('changed-left-out').hidden = false;
    return true;
  }
}

function diffBox(text) {
  const box = make('pre', 'diff', null, ...diffLines(text.replace(/^--- .*\n\+\+\+ .*\n/, '')));
  box.tabIndex = 0;
  return box;
}
