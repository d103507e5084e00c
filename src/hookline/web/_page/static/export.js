// Exports a conversation as a file: as JSON, or as readable Markdown.

import { $, make, pretty, tell } from './dom.js';
import { askJson, wordsOf } from './server.js';

function fenced(text, language = '') {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = '`'.repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}\n`;
}

function asMarkdown(title, messages) {
  const out = [`# ${title}\n`];
  for (const message of messages) {
    if (message.role === 'tool') {
      out.push(`**Result of ${message.name}** (${message.outcome ?? 'ok'})\n`, fenced(message.text));
      continue;
    }
    out.push(message.role === 'user' ? '## You\n' : '## Agent\n');
    for (const part of message.parts) {
      if (part.part === 'text') out.push(`${part.text}\n`);
      else if (part.part === 'call') out.push(`**Calls ${part.name}**\n`, fenced(pretty(part.arguments), 'json'));
      else if (part.part === 'reasoning' && part.text) out.push(`${part.text.replace(/^/gm, '> ')}\n`);
      else if (part.media_type) out.push(`*[${part.name ?? part.media_type}]*\n`);
    }
  }
  return out.join('\n');
}

export async function save(id, kind) {
  const title = $('title').textContent;
  try {
    const { messages } = await askJson(`native/${encodeURIComponent(id)}/messages`);
    const json = kind === 'json';
    const text = json ? JSON.stringify({ title, id, messages }, null, 2) : asMarkdown(title, messages);
    const blob = new Blob([text], { type: json ? 'application/json' : 'text/markdown' });
    const link = make('a');
    link.href = URL.createObjectURL(blob);
    link.download = `${title.replace(/[^\p{L}\p{N} _-]/gu, '').trim().slice(0, 60) || 'conversation'}.${json ? 'json' : 'md'}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    tell('Saved.');
  } catch (error) {
    tell(wordsOf(error));
  }
}
