// Markdown while it streams. The server parses the text and sends blocks; elements.js shows them.
// Until the blocks arrive, the plain text is shown.

import { $, make, seen } from './dom.js';
import { lastOf, update } from './elements.js';
import { actions, askJson } from './server.js';

const MOST = 50; // texts in one request
const REQUESTS = 2; // at once
const TRIES = 10; // of a request that finds the server busy
const LONGEST = 200000; // a longer text is not parsed as a whole
const OFTEN = 60; // milliseconds between two parses of a text
const SPEED = 20; // characters to parse per millisecond: a long block is parsed less often

// ── asking the server ─────────────────────────────────────────────────────────────────────────

let waiting = [];
let running = 0; // requests that are not answered yet

// Texts that are needed at about the same time share a request.
function read(text) {
  return new Promise((done, failed) => {
    if (!waiting.length) setTimeout(flush);
    waiting.push({ text, done, failed });
  });
}

async function flush() {
  if (!waiting.length || running === REQUESTS) return;
  const these = waiting.splice(0, MOST);
  running += 1;
  try {
    const { texts } = await parse(these.map(({ text }) => text));
    these.forEach(({ done }, at) => done(texts[at]));
  } catch (error) {
    for (const { failed } of these) failed(error);
  } finally {
    running -= 1;
    setTimeout(flush);
  }
}

// A server that is busy is asked again.
async function parse(texts) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await askJson('page/markdown', { method: 'POST', body: { texts } });
    } catch (error) {
      if (error.status !== 503 || tries === TRIES) throw error;
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}

// ── a text ────────────────────────────────────────────────────────────────────────────────────

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    target.prose.refresh();
  }
}, { root: $('log'), rootMargin: '1000px' });

// A growing Markdown text. All blocks except the last one are final: only the text from that one on is
// parsed again, until the text is complete.
export class Prose {
  constructor() {
    this.text = '';
    this.parsed = 0; // the length of the text in `blocks`
    this.from = 0; // the start of the last block
    this.blocks = []; // as they are shown
    this.final = 0; // the number of blocks before the last one
    this.complete = true; // whether no more text comes
    this.whole = false; // whether all of the text is parsed again
    this.busy = false; // whether a parse is under way, or about to be
    this.tail = document.createTextNode('');
    this.loose = [this.tail]; // the text that is not parsed yet
    this.element = make('div', 'prose', null, this.tail);
    this.element.prose = this;
  }

  append(text) {
    text = text.replaceAll('\r', '');
    this.text += text;
    this.complete = false;
    if (PLAIN_ONLY.test(text)) this.tail.appendData(text);
    else this.add(this.tail.parentNode, text);
    this.refresh();
  }

  // Sets a complete text; it is parsed once it is near the visible part.
  set(text) {
    this.text = text.replaceAll('\r', '');
    this.add(this.element, this.text);
    near.observe(this.element);
  }

  // A link may be defined below its use, and a definition may be in any block.
  finish() {
    this.complete = true;
    this.whole = this.text.length <= LONGEST && this.text.includes(']:');
    this.wake?.();
    this.refresh();
  }

  add(element, text) {
    this.tail = document.createTextNode('');
    const nodes = [...seen(text, false), this.tail];
    element.append(...nodes);
    this.loose.push(...nodes);
  }

  async refresh() {
    if (this.busy) return;
    this.busy = true;
    try {
      while (this.whole || this.parsed < this.text.length) {
        const from = this.whole ? 0 : this.from;
        const upTo = this.text.length;
        const whole = this.complete;
        const blocks = await read(this.text.slice(from, upTo)).catch(() => null);
        if (!blocks) return; // the plain text stays
        if (whole) this.whole = false;
        actions.stick(() => this.draw(blocks, from, upTo));
        if (!this.complete) await this.pause(Math.max(OFTEN, (upTo - from) / SPEED));
      }
    } finally {
      this.busy = false;
    }
  }

  // Waits, at most until the text is complete.
  pause(milliseconds) {
    return new Promise((done) => {
      this.wake = done;
      setTimeout(done, milliseconds);
    });
  }

  // Shows the blocks of a part of the text.
  draw(blocks, from, upTo) {
    for (const node of this.loose) node.remove();
    this.loose = [];
    const final = from ? this.blocks.slice(0, this.final) : [];
    const changed = this.blocks.slice(final.length);
    this.blocks = [...final, ...update(this.element, changed, blocks.map(({ node }) => node))];
    this.final = Math.max(0, this.blocks.length - 1);
    this.parsed = upTo;
    const part = this.text.slice(from, upTo);
    this.add(this.growing(part), this.text.slice(upTo));
    let line = blocks.at(-1)?.line ?? 0;
    let at = 0;
    while (line-- > 0) at = part.indexOf('\n', at) + 1;
    this.from = from + at;
  }

  // Where text that is not parsed yet is appended: in the last paragraph, item or code block.
  growing(part) {
    if (/(^|\n) *(```+|~~~+) *\n*$/.test(part)) return this.element; // the code block has ended, or begins
    return lastOf(this.blocks) ?? this.element;
  }
}

const PLAIN_ONLY = /^[\n\t\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff]*$/;
