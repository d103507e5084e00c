// Elements. All text from the server becomes text nodes; nothing is ever parsed as HTML.

export const $ = (id) => document.getElementById(id);

export function make(tag, kind = '', text = null, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text !== null) element.textContent = text;
  element.append(...children);
  return element;
}

const PATHS = {
  again: 'M20 11a8 8 0 1 0-2.3 6.2M20 4v7h-7',
  attach: 'M8 12.5l6-6a3 3 0 0 1 4.2 4.2l-8 8a5 5 0 0 1-7-7l7.5-7.5',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h11v11H9zM15 9V4H4v11h5',
  done: 'M5 12.5l5 5L19 7',
  down: 'M7 4v9H4V4zM7 13l4 7c2 0 2.500-1.500 2-3l-.6-3H18a2 2 0 0 0 2-2.400l-1.300-6A2 2 0 0 0 16.700 4H7',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  remove: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  up: 'M7 20v-9H4v9zM7 11l4-7c2 0 2.500 1.500 2 3l-.6 3H18a2 2 0 0 1 2 2.400l-1.300 6a2 2 0 0 1-2 1.600H7',
};

// An icon; its meaning is also given in words.
export function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(space, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
}

export function button(kind, text, act, picture = '') {
  const made = make('button', kind, picture ? null : text);
  made.type = 'button';
  if (picture) {
    made.classList.add('icon');
    made.append(icon(picture));
    made.title = text;
    made.setAttribute('aria-label', text);
  }
  made.addEventListener('click', act);
  return made;
}

export function milliseconds(value) {
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  if (value >= 10) return `${Math.round(value)} ms`;
  return value >= 1 ? `${value.toFixed(1)} ms` : `${Math.round(value * 1000)} µs`;
}

export function pretty(value) {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

// ── invisible characters ──────────────────────────────────────────────────────────────────────────
//
// Characters that hide, reorder or take no space are shown as their numbers. Names, arguments,
// questions and results show all of them; prose keeps the joiners and marks of direction that some
// scripts and emoji need.

const UNSEEN = '\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164\\ufe00-\\ufe0f\\uffa0\\u{e0100}-\\u{e01ef}';
const STRICT = new RegExp(`[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Zs}${UNSEEN}]`, 'gu');
const PROSE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const PLAIN = new Set([' ', '\n', '\t']);
const WRITTEN = new Set('\u200c\u200d\u200e\u200f\u061c');

function number(char) {
  const code = char.codePointAt(0).toString(16);
  if (code.length <= 4) return `\\u${code.padStart(4, '0')}`;
  return `\\u{${code}}`;
}

// Returns the text as nodes in which nothing is hidden.
export function seen(text, strict = true) {
  const nodes = [];
  let from = 0;
  for (const { 0: char, index } of text.matchAll(strict ? STRICT : PROSE)) {
    if (PLAIN.has(char) || (!strict && WRITTEN.has(char))) continue;
    if (index > from) nodes.push(document.createTextNode(text.slice(from, index)));
    const shown = make('span', 'unseen', number(char));
    shown.title = 'an invisible character';
    nodes.push(shown);
    from = index + char.length;
  }
  if (from < text.length) nodes.push(document.createTextNode(text.slice(from)));
  return nodes;
}

export function seenText(text) {
  return text.replace(STRICT, (char) => (PLAIN.has(char) ? char : number(char)));
}

// Returns the lines of a difference, each with its colour.
export function diffLines(text) {
  const kind = (line) => {
    if (/^(?:--- |\+\+\+ |@@)/.test(line)) return 'quiet';
    return line[0] === '+' ? 'i' : line[0] === '-' ? 'd' : '';
  };
  return text.split(/(?<=\n)/).map((line) => make('span', kind(line), null, ...seen(line)));
}

// Returns JSON to be edited, with invisible characters escaped.
export function editable(value) {
  const units = (char) => [...Array(char.length).keys()]
    .map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');
  return JSON.stringify(value, null, 2).replace(STRICT, (char) => (PLAIN.has(char) ? char : units(char)));
}

// ── small things ──────────────────────────────────────────────────────────────────────────────

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch { /* not over plain HTTP, or the browser refuses */ }
  const area = make('textarea', 'hidden');
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

export function copyButton(text, name = 'Copy') {
  const made = button('plain', name, async () => {
    await copy(text());
    made.replaceChildren(icon('done'));
    tell('Copied.');
    setTimeout(() => made.replaceChildren(icon('copy')), 1500);
  }, 'copy');
  return made;
}

// Announces a text to screen readers.
export function tell(text) {
  $('said').textContent = text;
}

// Asks for a text or a confirmation in a dialog. Resolves to the text or “yes”, or to null.
export function prompted(title, { value = null, yes = 'Save', danger = false } = {}) {
  return new Promise((resolve) => {
    const dialog = $('ask');
    const field = $('ask-field');
    $('ask-title').textContent = title;
    $('ask-yes').textContent = yes;
    $('ask-yes').className = danger ? 'danger' : '';
    $('ask-label').hidden = field.hidden = value === null;
    field.required = value !== null;
    field.value = value ?? '';
    dialog.returnValue = '';
    dialog.addEventListener('close', () => {
      if (dialog.returnValue !== 'yes') resolve(null);
      else resolve(value === null ? true : field.value.trim() || null);
    }, { once: true });
    dialog.showModal();
    if (value !== null) field.select();
  });
}
