// Reads native streams with the chat of clients/typescript, whose build is the first argument. JSON
// on stdin: a list of {before, stream in base64}; a list of states comes out.
const { Chat } = await import(process.argv[2]);

async function read({ before, stream }) {
  const stored = { messages: before, running: false, pending: [], clientCalls: [], mayAnswer: true };
  const fetch = async (address, init) => {
    if (!init.body) return Response.json(stored);
    return new Response(new Blob([Buffer.from(stream, 'base64')]).stream());
  };
  const chat = new Chat({ url: 'http://localhost/native', id: 'c1', fetch });
  await chat.load();
  await chat.send('hi');
  return { ...chat.state, error: chat.state.error?.message };
}

let input = '';
for await (const piece of process.stdin) input += piece;
const results = [];
for (const each of JSON.parse(input)) results.push(await read(each));
const output = JSON.stringify(results);
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
