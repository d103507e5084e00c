// Markdown while it streams. The server parses the text and sends blocks; here each becomes
// elements, with only the tags below. Until the blocks arrive, the plain text is shown.

import { $, copyButton, make, seen } from './dom.js';
import { actions, askJson } from './server.js';

const TAGS = new Set(('p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a br hr '
  + 'table thead tbody tr th td span').split(' '));
const CLASSES = new Set(['c', 'k', 'b', 'f', 's', 'n', 'i', 'd', 'maths']);
const MOST = 50; // texts in one request

// ── blocks → elements ─────────────────────────────────────────────────────────────────────────

function built(node) {
  if (typeof node === 'string') return seen(node, false);
  const [tag, attributes, ...children] = node;
  if (!TAGS.has(tag)) return children.flatMap(built);
  if (tag === 'pre') return [code(attributes.language ?? '', children)];
  // Headings of an answer are below the page's heading, whatever level the model uses.
  const heading = /^h[1-6]$/.test(tag);
  const element = make(heading ? 'h2' : tag, heading ? `level-${tag[1]}` : '', null, ...children.flatMap(built));
  if (tag === 'a') return link(element, attributes.href ?? '');
  if (CLASSES.has(attributes.class)) element.className = attributes.class;
  if (['left', 'center', 'right'].includes(attributes.align)) element.classList.add(attributes.align);
  if (/^\d{1,9}$/.test(attributes.start ?? '')) element.start = Number(attributes.start);
  if (tag === 'table') {
    const box = make('div', 'table', null, element);
    box.tabIndex = 0;
    box.setAttribute('role', 'region');
    box.setAttribute('aria-label', 'Table');
    return [box];
  }
  return [element];
}

function link(element, href) {
  let address;
  try { address = new URL(href); } catch { return [...element.childNodes]; }
  if (!['http:', 'https:', 'mailto:'].includes(address.protocol)) return [...element.childNodes];
  element.href = address.href;
  element.target = '_blank';
  element.rel = 'noopener noreferrer nofollow';
  element.title = address.href;
  // A link text that looks like another address is followed by the real host.
  const named = element.textContent.match(/^\s*(?:https?:\/\/)?([\w-]+(?:\.[\w-]+)+)/i);
  if (named && address.host && named[1].toLowerCase() !== address.hostname.toLowerCase()) {
    return [element, make('span', 'leads', ` (${address.host})`)];
  }
  return [element];
}

function code(language, children) {
  const inner = make('code', '', null, ...children.flatMap(built));
  const text = children.map((each) => (typeof each === 'string' ? each : each[2])).join('');
  const head = make('div', 'code-head', null,
    make('span', 'language', /^[\w+#.-]+$/.test(language) ? language : 'text'),
    copyButton(() => text, 'Copy the code'));
  const pre = make('pre', '', null, inner);
  pre.tabIndex = 0;
  return make('div', 'code', null, head, pre);
}

// ── asking the server ─────────────────────────────────────────────────────────────────────────

let waiting = [];

// Texts that are needed at about the same time share a request.
function read(text) {
  return new Promise((done, failed) => {
    if (!waiting.length) setTimeout(flush);
    waiting.push({ text, done, failed });
    if (waiting.length >= MOST) flush();
  });
}

async function flush() {
  const these = waiting;
  waiting = [];
  if (!these.length) return;
  try {
    const { texts } = await askJson('page/markdown', { method: 'POST', body: { texts: these.map(({ text }) => text) } });
    these.forEach(({ done }, at) => done(texts[at]));
  } catch (error) {
    for (const { failed } of these) failed(error);
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

// A growing Markdown text. All blocks except the last one are final: only the text after them is
// parsed again.
export class Prose {
  constructor() {
    this.text = '';
    this.from = 0; // the start of the part that is parsed again
    this.finished = 0; // the number of elements before that part
    this.reading = false;
    this.tail = document.createTextNode('');
    this.element = make('div', 'prose', null, this.tail);
    this.element.prose = this;
  }

  append(text) {
    text = text.replaceAll('\r', '');
    this.text += text;
    if (PLAIN_ONLY.test(text)) this.tail.appendData(text);
    else this.tail.parentNode.append(...seen(text, false), this.tail = document.createTextNode(''));
    this.refresh();
  }

  // Sets a complete text; it is parsed once it is near the visible part.
  set(text) {
    this.text = text.replaceAll('\r', '');
    this.element.replaceChildren(...seen(this.text, false), this.tail);
    near.observe(this.element);
  }

  // A link may be defined below its use.
  finish() {
    if (/^ {0,3}\[[^\]]+\]:/m.test(this.text)) {
      this.from = this.finished = 0;
      this.seenUpTo = -1;
    }
    this.refresh();
  }

  async refresh() {
    if (this.reading || this.seenUpTo === this.text.length) return;
    this.reading = true;
    const { from } = this;
    const upTo = this.text.length;
    const part = this.text.slice(from, upTo);
    try {
      const blocks = await read(part);
      if (this.from === from) { // else `finish` wants the whole text by now, and not this part
        this.seenUpTo = upTo;
        this.change(() => this.draw(blocks, part, upTo));
      }
    } catch {
      if (this.from === from) return; // keep the plain text
    } finally {
      this.reading = false;
    }
    this.refresh();
  }

  draw(blocks, part, upTo) {
    const kept = [...this.element.childNodes].slice(0, this.finished);
    const made = blocks.map(({ node }) => built(node));
    this.tail = document.createTextNode('');
    this.element.replaceChildren(...kept, ...made.flat());
    this.growing(part).append(...seen(this.text.slice(upTo), false), this.tail);
    if (blocks.length > 1) {
      this.finished += made.slice(0, -1).flat().length;
      let line = blocks.at(-1).line;
      let at = 0;
      while (line-- > 0) at = part.indexOf('\n', at) + 1;
      this.from += at;
    }
  }

  // Where unparsed text is appended: in the last paragraph, item or code block.
  growing(part) {
    const last = this.element.lastElementChild;
    if (last?.localName === 'p') return last;
    if (/(^|\n) *(```+|~~~+) *\n*$/.test(part)) return this.element; // the code block has ended, or begins
    return [...this.element.querySelectorAll(':scope > :last-child :is(li, pre > code)')].at(-1) ?? this.element;
  }

  change(how) { actions.stick(how); }
}

const PLAIN_ONLY = /^[\n\t\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff]*$/;
