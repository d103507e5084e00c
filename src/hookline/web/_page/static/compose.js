// The message field: the text, the attached files, and the queued message.

import { $, button, make, tell } from './dom.js';
import { actions } from './server.js';

const PICTURES = /^image\/(?:png|jpeg|gif|webp)$/;
let files = []; // { name, media_type, data, url, size }
let queued = null; // the parts of a message to be sent after the answer

export function grow() {
  $('say').style.height = 'auto';
  $('say').style.height = `${Math.min($('say').scrollHeight + 2, innerHeight * 0.4)}px`;
}

// ── files ──

function base64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = '';
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

async function attach(list) {
  const most = (actions.about?.most ?? 4194304) * 0.7; // base64 needs a third more
  for (const file of list) {
    const held = files.reduce((sum, { size }) => sum + size, 0);
    if (held + file.size > most) {
      hint(`${file.name} is too large: the limit is ${Math.floor(most / 1048576 * 10) / 10} MiB.`);
      continue;
    }
    const data = base64(await file.arrayBuffer());
    const media = file.type || 'application/octet-stream';
    const url = PICTURES.test(media) ? URL.createObjectURL(file) : null;
    files.push({ name: file.name || 'picture', media_type: media, data, url, size: file.size });
  }
  showFiles();
}

function showFiles() {
  $('files').replaceChildren(...files.map((file) => {
    const shown = file.url ? make('img', 'thumb') : make('span', 'file', file.name);
    if (file.url) {
      shown.src = file.url;
      shown.alt = file.name;
    }
    return make('li', '', null, shown, button('plain', `Remove ${file.name}`, () => {
      files = files.filter((each) => each !== file);
      showFiles();
      $('say').focus();
    }, 'close'));
  }));
  $('files').hidden = !files.length;
}

// ── the message ──

// Takes the written message as parts; null if it is empty.
export function take() {
  const text = $('say').value;
  if (!text.trim() && !files.length) return null;
  const parts = text.trim() ? [{ part: 'text', text }] : [];
  for (const { name, media_type, data } of files) {
    if (media_type.startsWith('image/')) parts.push({ part: 'image', media_type, data });
    else parts.push({ part: 'file', media_type, name, data });
  }
  const before = files;
  $('say').value = '';
  files = [];
  showFiles();
  grow();
  return { parts, back: () => giveBack(text, before) };
}

function giveBack(text, before) {
  if (!$('say').value) $('say').value = text;
  if (!files.length) files = before;
  showFiles();
  grow();
}

// ── the queued message ──

export function hint(text) {
  $('hint').textContent = text;
  $('hint').hidden = !text;
  tell(text);
}

export function enqueue() {
  const taken = take();
  if (!taken) return;
  if (queued) { taken.back(); hint('One message is already waiting.'); return; }
  queued = taken;
  const words = taken.parts.find(({ part }) => part === 'text')?.text ?? 'a file';
  $('queued').replaceChildren(make('span', 'brief', `Will be sent after this answer: ${words}`),
    button('plain', 'Edit it', unqueue, 'close'));
  $('queued').hidden = false;
  tell('It will be sent after this answer.');
}

export function unqueue() {
  const taken = queued;
  queued = null;
  $('queued').hidden = true;
  taken?.back();
}

export function nextQueued() {
  const taken = queued;
  queued = null;
  $('queued').hidden = true;
  return taken;
}

// ── wiring ──

$('say').addEventListener('input', () => { grow(); hint(''); });
$('attach').addEventListener('click', () => $('pick').click());
$('pick').addEventListener('change', () => { attach([...$('pick').files]); $('pick').value = ''; $('say').focus(); });
$('say').addEventListener('paste', (event) => {
  if (event.clipboardData?.files.length) { event.preventDefault(); attach([...event.clipboardData.files]); }
});
for (const kind of ['dragenter', 'dragover']) {
  document.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    document.body.classList.add('dropping');
  });
}
document.addEventListener('dragleave', (event) => { if (!event.relatedTarget) document.body.classList.remove('dropping'); });
document.addEventListener('drop', (event) => {
  document.body.classList.remove('dropping');
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault();
  attach([...event.dataTransfer.files]);
});
