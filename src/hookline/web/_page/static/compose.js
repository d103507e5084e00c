// The message field: the text, the attached files, and the queued messages.

import { $, button, make, tell } from './dom.js';
import { actions } from './server.js';

const PICTURES = /^image\/(?:png|jpeg|gif|webp)$/;
let files = []; // { name, media_type, data, url, size }

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
  return { parts, back: () => putBack(text, before) };
}

function putBack(text, before) {
  $('say').value = [text, $('say').value].filter(Boolean).join('\n');
  files = [...before, ...files];
  showFiles();
  grow();
}

export function hint(text) {
  $('hint').textContent = text;
  $('hint').hidden = !text;
  tell(text);
}

// ── queued messages ──
//
// A message that is written while an answer runs is sent into the answer, where it waits for its
// place. If the answer takes no message, the message is sent after it.

const rows = new Map(); // the rows of the waiting messages, by id; '' is sent after the answer
const sent = new Map(); // the messages that this page has sent into an answer, by id
let later = null; // the message to be sent after the answer

function showRow(id, label, parts, ...tools) {
  const words = parts.find(({ part }) => part === 'text')?.text ?? 'a file';
  const row = make('p', 'waits', null, make('span', 'brief', `${label}: ${words}`), ...tools);
  rows.set(id, row);
  $('queued').append(row);
  $('queued').hidden = false;
  tell(`${label}.`);
}

function hideRow(id) {
  rows.get(id)?.remove();
  rows.delete(id);
  $('queued').hidden = !rows.size;
}

// Shows a message that waits in the running answer; `taken`: it was sent by this page.
export function queue(id, parts, taken = null) {
  if (taken) sent.set(id, taken);
  if (!rows.has(id)) showRow(id, 'Queued', parts);
}

// Forgets a message: it has its place in the conversation, or another conversation is shown.
export function unqueue(id) {
  sent.delete(id);
  hideRow(id);
}

// Gives back a message that was not delivered. `taken`: it was sent by this page.
export function giveBack(id, reason, taken = sent.get(id)) {
  taken?.back();
  unqueue(id);
  hint(`Not delivered: ${reason}`);
}

// Gives back the messages that the ended answer has not taken.
export function giveBackQueued() {
  const left = [...rows.keys()].filter(Boolean);
  for (const id of left.reverse()) { // each is put before the text that is there
    sent.get(id)?.back();
    unqueue(id);
  }
  if (left.length) hint('Not delivered: the answer did not take the message.');
}

export function clearQueued() {
  for (const id of [...rows.keys()]) hideRow(id);
}

// Keeps a message to be sent after the answer.
export function sendLater(taken) {
  if (later) { taken.back(); hint('One message is already waiting.'); return; }
  later = taken;
  showRow('', 'Will be sent after this answer', taken.parts, button('plain', 'Edit it', () => takeLater()?.back(), 'close'));
}

export function takeLater() {
  const taken = later;
  later = null;
  hideRow('');
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
