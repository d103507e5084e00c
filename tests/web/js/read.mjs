// Reads UI message streams with the SDK's own parser and message reader. JSON on stdin: a list of
// streams in base64; a list comes out. The first argument names the version: ai, ai6, ai5.
const { parseJsonEventStream, readUIMessageStream, uiMessageChunkSchema } =
  await import(process.argv[2] ?? 'ai');

async function read(base64) {
  let failed;
  let message;
  const chunks = parseJsonEventStream({
    stream: new Blob([Buffer.from(base64, 'base64')]).stream(),
    schema: uiMessageChunkSchema,
  }).pipeThrough(
    new TransformStream({
      transform(chunk, controller) {
        if (!chunk.success) throw chunk.error;
        controller.enqueue(chunk.value);
      },
    }),
  );
  const onError = (error) => { failed ??= String(error?.message ?? error); };
  try {
    for await (const each of readUIMessageStream({ stream: chunks, onError })) message = each;
  } catch (error) {
    onError(error);
  }
  return { message, failed };
}

let input = '';
for await (const piece of process.stdin) input += piece;
const results = [];
for (const each of JSON.parse(input)) results.push(await read(each));
const output = JSON.stringify(results);
process.stdout.write(output, () => process.exit(0)); // a pipe is not written at once
