// The server: requests with the token, if there is one, and the event streams in the responses.

import { $ } from './dom.js';

const base = new URL('./', location.href);

export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Functions of the page that its parts call; page.js sets them.
export const actions = {};

const given = new URLSearchParams(location.hash.slice(1));
let token = given.get('token') ?? sessionStorage.getItem('hookline-token') ?? '';
if (given.has('token')) {
  sessionStorage.setItem('hookline-token', token);
  given.delete('token');
  history.replaceState(null, '', `#${given}`);
}

export function useToken(value) {
  token = value;
  sessionStorage.setItem('hookline-token', token);
}

export async function ask(path, { method = 'GET', body, headers = {}, signal } = {}) {
  const all = { ...headers };
  if (token) all.Authorization = `Bearer ${token}`; // without a token, a cookie may be enough
  if (body !== undefined) all['Content-Type'] = 'application/json';
  const response = await fetch(new URL(path, base), {
    method, headers: all, signal, cache: 'no-store',
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (response.status === 401) {
    needToken(token ? 'This token is wrong.' : '');
    throw new Problem(401, 'A token is required.');
  }
  if (!response.ok) throw new Problem(response.status, (await response.text()).slice(0, 300));
  return response;
}

export async function askJson(path, options) {
  return (await ask(path, options)).json();
}

export function wordsOf(error) {
  return error instanceof Problem ? error.message : 'The server is not reachable.';
}

function needToken(problem) {
  $('token-error').textContent = problem;
  if (!$('ask-token').open) $('ask-token').showModal();
}

// Reads server-sent events: frames end with an empty line, and each holds one line of data.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const frames = held.split('\n\n');
    held = frames.pop();
    for (const frame of frames) {
      let id = '';
      let data = '';
      for (const line of frame.split('\n')) {
        if (line.startsWith('id: ')) id = line.slice(4);
        else if (line.startsWith('data: ')) data = line.slice(6);
      }
      if (data) yield [id, JSON.parse(data)];
    }
  }
}
