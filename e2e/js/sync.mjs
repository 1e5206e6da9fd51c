// Two devices edit while they are away and come back: each sends what it did and walks
// the hash trees of both kinds of maps, as the TypeScript clients in the field do, with
// hash functions of its own. Usage as for client.mjs.
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import { Client, urls } from './lib.mjs';

function hash(text) {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return h >>> 0;
}

function mix(h) {
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const stampText = (t) => `${t.millis}:${t.counter}:${t.nodeId}`;
const newer = (a, b) => a.millis - b.millis || a.counter - b.counter || a.nodeId.localeCompare(b.nodeId);

// valueText is how clients write a value into the text that they hash.
function valueText(value) {
  if (value === null || typeof value !== 'object') return String(value);
  return JSON.stringify(value, Object.keys(value).sort());
}

// tree returns the hashes of all nodes, by path.
function tree(items) {
  const nodes = { '': 0 };
  const leaves = {};
  for (const [key, item] of Object.entries(items)) {
    const path = hash(key).toString(16).padStart(8, '0').slice(0, 3);
    leaves[path] = ((leaves[path] ?? 0) + mix(item)) >>> 0;
  }
  let level = leaves;
  for (let depth = 3; depth > 0; depth--) {
    const above = {};
    for (const [path, h] of Object.entries(level)) {
      nodes[path] = h;
      const parent = path.slice(0, depth - 1);
      above[parent] = ((above[parent] ?? 0) + mix(h)) >>> 0;
    }
    level = above;
  }
  return { ...nodes, ...level };
}

// Device keeps one map of each kind across connections.
class Device {
  constructor(name) {
    this.name = name;
    this.records = {};
    this.sets = {};
    this.removed = new Set();
    this.pending = [];
    this.nextId = 1;
    this.counter = 0;
    this.requests = 0;
  }

  stamp() {
    return { millis: Date.now(), counter: this.counter++, nodeId: this.name };
  }

  queue(op) {
    this.pending.push({ ...op, synced: false, id: String(this.nextId++) });
  }

  put(key, value) {
    const timestamp = this.stamp();
    const record = { value, timestamp };
    this.mergeRecord(key, record);
    this.queue({ mapName: 'notes', opType: value === null ? 'REMOVE' : 'PUT', key, record, timestamp });
  }

  add(key, value) {
    const timestamp = this.stamp();
    const orRecord = { value, timestamp, tag: stampText(timestamp) };
    this.mergeSet({ key, records: [orRecord], tombstones: [] });
    this.queue({ mapName: 'labels', opType: 'OR_ADD', key, orRecord, timestamp });
  }

  drop(key, value) {
    for (const rec of Object.values(this.sets[key] ?? {}).filter((r) => r.value === value)) {
      this.mergeSet({ key, records: [], tombstones: [rec.tag] });
      this.queue({ mapName: 'labels', opType: 'OR_REMOVE', key, orTag: rec.tag, timestamp: this.stamp() });
    }
  }

  mergeRecord(key, record) {
    const mine = this.records[key];
    if (!mine || newer(record.timestamp, mine.timestamp) > 0) this.records[key] = record;
  }

  mergeSet({ key, records, tombstones }) {
    for (const tag of tombstones) {
      this.removed.add(tag);
      for (const set of Object.values(this.sets)) delete set[tag];
    }
    for (const rec of records) {
      if (this.removed.has(rec.tag)) continue;
      this.sets[key] ??= {};
      this.sets[key][rec.tag] = rec;
    }
  }

  recordTree() {
    return tree(Object.fromEntries(Object.entries(this.records).map(([k, r]) => [k, hash(`${k}:${stampText(r.timestamp)}`)])));
  }

  setTree() {
    const items = {};
    for (const [key, set] of Object.entries(this.sets)) {
      const list = Object.values(set).sort((a, b) => (a.tag < b.tag ? -1 : 1));
      if (list.length > 0) {
        items[key] = hash(`key:${key}` + list.map((r) => `|${r.tag}:${valueText(r.value)}:${stampText(r.timestamp)}`).join(''));
      }
    }
    return tree(items);
  }

  // meet connects, sends what is pending and walks both trees. It reports whether the
  // roots were equal from the start.
  async meet(url) {
    const c = await new Client(this.name, url).connect();
    if (this.pending.length > 0) {
      c.pending = this.pending;
      c.flush();
      await c.drained();
      this.pending = [];
    }
    const records = await this.walk(c, this.recordTree(), { type: 'SYNC_INIT', mapName: 'notes', lastSyncTimestamp: 0 },
      'SYNC_RESP', 'MERKLE_REQ_BUCKET', 'notes', (leaf) => leaf.records.forEach((r) => this.mergeRecord(r.key, r.record)));
    const own = this.setTree();
    const buckets = Object.fromEntries(Object.entries(own).filter(([p]) => p.length === 1));
    const init = { type: 'ORMAP_SYNC_INIT', mapName: 'labels', rootHash: own[''], bucketHashes: buckets, lastSyncTimestamp: 0, claimedEpoch: 0 };
    const sets = await this.walk(c, own, init, 'ORMAP_SYNC_RESP', 'ORMAP_MERKLE_REQ_BUCKET', 'labels', (leaf) => {
      leaf.entries.forEach((e) => this.mergeSet(e));
      this.push(c, leaf.entries.map((e) => e.key));
    });
    assert.deepEqual(c.all('ERROR'), []);
    c.socket.close();
    return records && sets;
  }

  push(c, keys) {
    const entries = keys.map((key) => ({ key, records: Object.values(this.sets[key] ?? {}), tombstones: [...this.removed] }))
      .filter((e) => e.records.length > 0);
    if (entries.length > 0) c.send({ type: 'ORMAP_PUSH_DIFF', payload: { mapName: 'labels', entries } });
  }

  async walk(c, own, init, answers, request, mapName, takeLeaf) {
    c.send(init);
    const { payload: root } = await c.next(`${answers}_ROOT`);
    assert.equal(typeof root.timestamp.nodeId, 'string');
    if (root.rootHash === own['']) return true;
    const open = [''];
    while (open.length > 0) {
      const path = open.pop();
      this.requests++;
      c.send({ type: request, payload: { mapName, path } });
      if (path.length === 3) {
        takeLeaf((await c.next(`${answers}_LEAF`, (m) => m.payload.path === path)).payload);
        continue;
      }
      const { payload } = await c.next(`${answers}_BUCKETS`, (m) => m.payload.path === path);
      for (const [digit, h] of Object.entries(payload.buckets)) {
        assert.match(digit, /^[0-9a-f]$/);
        if (h !== (own[path + digit] ?? 0)) open.push(path + digit);
      }
    }
    return false;
  }

  // visible is what an application sees.
  visible() {
    return {
      notes: Object.fromEntries(Object.entries(this.records).filter(([, r]) => r.value !== null).map(([k, r]) => [k, r.value])),
      labels: Object.fromEntries(Object.entries(this.sets).map(([k, s]) => [k, Object.values(s).map((r) => JSON.stringify(r.value)).sort()])
        .filter(([, list]) => list.length > 0)),
    };
  }
}

// settles has a device meet a node until done holds: a node may be a little behind what
// another one has acknowledged to somebody else.
async function settles(device, url, done) {
  const deadline = Date.now() + 20_000;
  for (;;) {
    device.requests = 0;
    const equal = await device.meet(url);
    if (done(equal)) return;
    assert.ok(Date.now() < deadline, `${device.name} and ${url} do not come to an agreement`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

async function main() {
  assert.equal(hash('key1'), 927623783);
  const [a, b] = [new Device('device-a'), new Device('device-b')];
  b.counter = 1000; // in one millisecond, b's stamps are the later ones
  // At first both are away.
  for (let i = 0; i < 40; i++) a.put(`a-${i}`, { n: i, at: [1, { deep: true }] });
  a.put('shared', 'from a');
  a.add('tags', 'red');
  a.add('tags', { b: 1, a: { z: 1, a: 2 } });
  a.add('größe 😀', 0.1 + 0.2);
  b.put('shared', 'from b');
  b.put('b-only', [null, 1e21, -0.5]);
  b.add('tags', 'red');
  const agree = () => isDeepStrictEqual(a.visible(), b.visible());
  await a.meet(urls[0]);
  await settles(b, urls[1], () => 'a-39' in b.visible().notes);
  await settles(a, urls[2], agree);
  assert.equal(a.visible().notes.shared, 'from b', 'the later write stands');
  assert.equal(a.visible().labels.tags.length, 3, 'equal values that two devices added are two');

  // Away again: b deletes and removes, a edits what b deletes and adds what b removes.
  b.put('a-1', null);
  b.drop('tags', 'red');
  a.put('a-2', 'edited');
  a.add('tags', 'red');
  await b.meet(urls[0]);
  await settles(a, urls[1], () => !('a-1' in a.visible().notes));
  await settles(b, urls[2], agree);
  assert.equal('a-1' in a.visible().notes, false, 'the deletion has reached the other device');
  assert.deepEqual(a.visible().labels.tags.filter((v) => v === '"red"'), ['"red"'], 'what was added meanwhile stays');

  // Equal maps cost one round trip each, on every node.
  for (const url of urls) {
    await settles(a, url, (equal) => equal);
    await settles(b, url, (equal) => equal);
    assert.equal(a.requests + b.requests, 0);
  }

  // A change of one record moves its leaf and nothing else.
  b.put('a-3', 'new');
  await b.meet(urls[0]);
  await settles(a, urls[1], () => a.visible().notes['a-3'] === 'new');
  assert.equal(a.requests, 4);
}

main().then(
  () => console.log('ok'),
  (err) => {
    console.error(err);
    process.exit(1);
  },
);
