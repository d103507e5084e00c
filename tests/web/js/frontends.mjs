// Builds the pages that the tests have written from docs/frontends.md, each with the clients of its
// version, and serves them behind the proxy of the page's own Vite configuration. The arguments are
// the folder and the origin of the server; the address comes out, and the end of stdin ends it.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import vue from '@vitejs/plugin-vue';
import { build, loadConfigFromFile, mergeConfig, preview } from 'vite';

const [root, target] = process.argv.slice(2);
process.env.AGENT_URL = target;
process.env.NODE_ENV = 'development'; // React then mounts everything twice, as in development
const pages = readdirSync(root, { withFileTypes: true }).filter((each) => each.isDirectory());
const PACKAGES = ['ai', '@ai-sdk/react', '@ai-sdk/vue', '@ai-sdk/svelte'];

// Of each package package.json has three versions: `ai`, and `ai5` and `ai6` beside it.
const versions = {
  name: 'versions',
  enforce: 'pre',
  resolveId(source, importer = '', options) {
    const version = /\/[a-z-]+-([56])\/src\//.exec(importer)?.[1];
    if (!version || !PACKAGES.includes(source)) return null;
    return this.resolve(`${source.split('/').at(-1)}${version}`, importer, { ...options, skipSelf: true });
  },
};

const command = { command: 'build', mode: 'development' };
const { config } = await loadConfigFromFile(command, join(root, 'vite.config.ts'));
const whole = mergeConfig(config, {
  root,
  configFile: false,
  logLevel: 'error',
  mode: 'development',
  plugins: [versions, vue(), svelte({ configFile: false })],
  build: {
    minify: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 10_000,
    rolldownOptions: { input: pages.map(({ name }) => join(root, name, 'index.html')) },
  },
  preview: { host: '127.0.0.1', port: 0 },
});
await build(whole);
const server = await preview(whole);
console.log(`http://127.0.0.1:${server.httpServer.address().port}`);
process.stdin.resume().on('end', () => process.exit(0));
