import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, it } from 'node:test';
import { promisify } from 'node:util';
import { onNode } from './server.js';

const run = promisify(execFile);
const PACKAGE = resolve(__dirname, '../..');

const USE = `
const locks = new Palisade(process.argv[2]);
const work = async () => {
  const lock = await locks.lock('packed');
  console.log(typeof lock.token, lock.isValid, lock instanceof Lock, await lock.release());
  await locks.close();
};
work();
`;

const TYPED = `
export async function work(locks: Palisade, signal: AbortSignal): Promise<number> {
  const lock: Lock = await locks.lock('k', { ttl: 10_000, signal });
  const ran: Once<string> = await locks.once('nightly', 50_000, async () => 'done');
  for await (const leader of locks.election('e').observe()) console.log(leader?.value.toString());
  const permit = await locks.semaphore(new Uint8Array(2), 3).tryAcquire();
  const reason: string = (await lock.lost).reason;
  const fake: Palisade = new FakeServer().locks({ ttl: 100 });
  await fake.close();
  return lock.token + (permit?.number ?? 0) + reason.length + (ran.ran ? ran.value.length : 0);
}
// @ts-expect-error what is internal is no part of the types
export const internal = (lock: Lock) => lock.held;
// @ts-expect-error there is no such option
new Palisade('redis://localhost', { tll: 1 });
// @ts-expect-error a wait is a number
new Palisade('redis://localhost', { wait: '1' });
`;

onNode('the package', (bench) => {
  let folder = '';

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'palisade-pack-'));
    const pack = ['pack', '--ignore-scripts', '--pack-destination', folder, '--silent'];
    const { stdout: name } = await run('npm', pack, { cwd: PACKAGE });
    await writeFile(join(folder, 'package.json'), '{ "private": true }');
    const packed = join(folder, name.trim());
    // The peer dependency is installed too, from what the setup has fetched already.
    const quick = ['--prefer-offline', '--no-audit', '--no-fund', '--silent'];
    await run('npm', ['install', ...quick, packed, '@types/node@20'], { cwd: folder });
  });

  after(() => rm(folder, { recursive: true, force: true }));

  it('has its licences', async () => {
    for (const name of ['LICENSE-APACHE', 'LICENSE-MIT']) {
      const packed = await readFile(join(folder, 'node_modules', 'palisade-client', name));
      assert.deepEqual(packed, await readFile(resolve(PACKAGE, '..', name)));
    }
  });

  it('is had by import', async () => {
    await writeFile(join(folder, 'a.mjs'), `import { Lock, Palisade } from 'palisade-client';${USE}`);
    const { stdout } = await run('node', [join(folder, 'a.mjs'), bench.url]);
    assert.equal(stdout, 'number true true freed\n');
  });

  it('is built where its folder is installed from a fresh clone', async () => {
    const clone = join(folder, 'clone');
    const unbuilt = ['package.json', 'package-lock.json', 'tsconfig.json', 'src'];
    for (const name of unbuilt) await cp(join(PACKAGE, name), join(clone, 'node', name), { recursive: true });
    // A rehearsal builds too: npm hands its settings on to the installation of what the build needs.
    const { stdout: rehearsed } = await run('npm', ['pack', '--dry-run', '--silent'], { cwd: join(clone, 'node') });
    assert.match(rehearsed, /^palisade-client-.*\.tgz$/m);
    await rm(join(clone, 'node', 'node_modules'), { recursive: true });
    const application = join(folder, 'application');
    await mkdir(application);
    await writeFile(join(application, 'package.json'), '{ "private": true }');
    const quick = ['--prefer-offline', '--no-audit', '--no-fund', '--silent'];
    await run('npm', ['install', ...quick, join(clone, 'node')], { cwd: application });
    await writeFile(join(application, 'a.mjs'), `import { Lock, Palisade } from 'palisade-client';${USE}`);
    const { stdout } = await run('node', [join(application, 'a.mjs'), bench.url]);
    assert.equal(stdout, 'number true true freed\n');
  });

  it('is had by require', async () => {
    await writeFile(join(folder, 'b.cjs'), `const { Lock, Palisade } = require('palisade-client');${USE}`);
    const { stdout } = await run('node', [join(folder, 'b.cjs'), bench.url]);
    assert.equal(stdout, 'number true true freed\n');
  });

  it('has the same classes by both', async () => {
    const text = `import * as esm from 'palisade-client';
      import { createRequire } from 'node:module';
      const cjs = createRequire(import.meta.url)('palisade-client');
      const { FakeServer } = createRequire(import.meta.url)('palisade-client/testing');
      if (FakeServer !== (await import('palisade-client/testing')).FakeServer) throw new Error('two fakes');
      if (!(new FakeServer().locks() instanceof esm.Palisade)) throw new Error('another Palisade');
      const names = Object.keys(cjs).filter((name) => name !== '__esModule');
      console.log(names.length > 10 && names.every((name) => esm[name] === cjs[name]));`;
    await writeFile(join(folder, 'c.mjs'), text);
    const { stdout } = await run('node', [join(folder, 'c.mjs')]);
    assert.equal(stdout, 'true\n');
  });

  it('has types, however modules are meant', async () => {
    const imports = `import { type Lock, type Once, Palisade } from 'palisade-client';
      import { FakeServer } from 'palisade-client/testing';`;
    const tsc = join(PACKAGE, 'node_modules', 'typescript', 'bin', 'tsc');
    const check = async (names: string[], ...modules: string[]) => {
      for (const name of names) await writeFile(join(folder, name), imports + TYPED);
      const settings = ['--target', 'es2022', '--types', 'node', '--strict', '--skipLibCheck', 'false', ...modules];
      const args = [tsc, '--noEmit', ...settings, ...names];
      const { stdout } = await run('node', args, { cwd: folder }).catch((error) => error);
      assert.equal(stdout, '');
    };
    await check(['typed.mts', 'typed.cts'], '--module', 'node20');
    await check(['bundled.ts'], '--module', 'esnext', '--moduleResolution', 'bundler');
  });
});
