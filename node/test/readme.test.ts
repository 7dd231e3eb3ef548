import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { it } from 'node:test';
import { promisify } from 'node:util';
import { onNode } from './server.js';

const PACKAGE = resolve(__dirname, '../..');

onNode('the README', (bench) => {
  it('has examples that run', async () => {
    const text = await readFile(join(PACKAGE, 'README.md'), 'utf8');
    const wrote: string[] = [];
    for (const [, example = ''] of text.matchAll(/```js\n(.*?)```/gs)) {
      // Inside the package, its own name resolves to it.
      const file = join(PACKAGE, 'build', 'example.mjs');
      const here = example.replace(
        "{ url: 'redis://localhost:6379' }",
        `{ socket: { path: '${bench.path}', tls: false } }`,
      );
      await writeFile(file, here.replace('redis://localhost:6379', bench.url));
      wrote.push((await promisify(execFile)('node', [file])).stdout);
    }
    assert.match(wrote.join(''), /^paid with token \d{16}\n\{ state: 'paid', before: 'new' \}\ntaken-away\n$/);
  });
});
