import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { it } from 'node:test';
import { promisify } from 'node:util';
import { onNode } from './server.js';

const PACKAGE = resolve(__dirname, '../..');

onNode('the README', (bench) => {
  it('has an example that runs', async () => {
    const text = await readFile(join(PACKAGE, 'README.md'), 'utf8');
    const [, example = ''] = /```js\n(.*?)```/s.exec(text) ?? [];
    const file = join(PACKAGE, 'build', 'example.mjs');
    // Inside the package, its own name resolves to it.
    await writeFile(file, example.replace('redis://localhost:6379', bench.url));
    const { stdout } = await promisify(execFile)('node', [file]);
    assert.match(stdout, /^paid with token \d{16}\n$/);
  });
});
