// Blocks of Markdown → elements, with only the tags below. While a text grows, what is the same stays
// in the document: only the nodes from the first difference on are made again.

import { copyButton, make, seen } from './dom.js';

const TAGS = new Set(('p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a br hr '
  + 'table thead tbody tr th td span sup').split(' '));
const CLASSES = new Set(['c', 'k', 'b', 'f', 's', 'n', 'i', 'd', 'lines', 'maths', 'footnote']);
const BOXES = { open: ['☐', 'to do'], checked: ['☑', 'done'] }; // of a list of tasks
const GROWING = new Set(['p', 'ul', 'ol', 'li', 'blockquote', 'pre']);

// A node as it is shown. `tops` are its nodes in the document, `inner` is the element that holds its
// `children`; without `inner`, it is replaced as a whole.
function show(node, parent) {
  if (typeof node === 'string') return { node, tops: seen(node, false) };
  const [tag, attributes, ...nodes] = node;
  const children = nodes.map((child) => show(child, tag));
  const tops = children.flatMap((child) => child.tops);
  if (!TAGS.has(tag)) return { node, tops };
  // Headings of an answer are below the page's heading, whatever level the model uses.
  const heading = /^h[1-6]$/.test(tag);
  const inner = make(tag === 'pre' ? 'code' : heading ? 'h2' : tag, heading ? `level-${tag[1]}` : '', null, ...tops);
  if (tag === 'a') return { node, tops: link(inner, attributes.href ?? '') };
  if (Object.hasOwn(BOXES, attributes.class)) return { node, tops: [box(...BOXES[attributes.class])] };
  if (tag === 'td' || tag === 'th' || (!parent && tag !== 'table' && tag !== 'pre')) inner.dir = 'auto';
  if (CLASSES.has(attributes.class)) inner.className = attributes.class;
  if (['left', 'center', 'right'].includes(attributes.align)) inner.classList.add(attributes.align);
  if (/^\d{1,9}$/.test(attributes.start ?? '')) inner.start = Number(attributes.start);
  const shown = { node, tops: [inner], inner, children };
  if (tag === 'table') shown.tops = [region(inner)];
  if (tag === 'pre') shown.tops = [code(inner, attributes.language ?? '', () => textOf(shown.node))];
  return shown;
}

// Shows other nodes in an element; returns them as they are shown.
export function update(element, old, nodes, parent = '') {
  let at = 0;
  while (at < old.length && at < nodes.length && same(old[at].node, nodes[at])) at += 1;
  const shown = old.slice(0, at);
  if (at < old.length && at < nodes.length && grow(old[at], nodes[at])) shown.push(old[at]);
  for (const { tops } of old.slice(shown.length)) for (const top of tops) top.remove();
  const added = nodes.slice(shown.length).map((node) => show(node, parent));
  element.append(...added.flatMap(({ tops }) => tops));
  return [...shown, ...added];
}

// Changes the children of a node, if it is the same otherwise.
function grow(shown, node) {
  const { inner } = shown;
  if (!inner || typeof node === 'string' || !same(shown.node.slice(0, 2), node.slice(0, 2))) return false;
  shown.children = update(inner, shown.children, node.slice(2), node[0]);
  shown.node = node;
  return true;
}

function same(one, other) {
  if (one === other) return true;
  if (!Array.isArray(one) || !Array.isArray(other)) {
    return typeof one === 'object' && typeof other === 'object' && JSON.stringify(one) === JSON.stringify(other);
  }
  return one.length === other.length && one.every((each, at) => same(each, other[at]));
}

function textOf(node) {
  return typeof node === 'string' ? node : node.slice(2).map(textOf).join('');
}

// The innermost last element of a list of shown nodes that can take more text.
export function lastOf(list) {
  let last = null;
  for (let shown = list.at(-1); shown?.inner; shown = shown.children.at(-1)) {
    if (!GROWING.has(shown.node[0]) && shown.node[1].class !== 'lines') break;
    last = shown.inner;
  }
  return last;
}

function box(sign, meaning) {
  const made = make('span', 'task', sign);
  made.setAttribute('role', 'img');
  made.setAttribute('aria-label', meaning);
  return made;
}

function region(table) {
  const box = make('div', 'table', null, table);
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', 'Table');
  return box;
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

function code(inner, language, text) {
  const head = make('div', 'code-head', null,
    make('span', 'language', /^[\w+#.-]+$/.test(language) ? language : 'text'),
    copyButton(text, 'Copy the code'));
  const pre = make('pre', '', null, inner);
  pre.tabIndex = 0;
  return make('div', 'code', null, head, pre);
}
