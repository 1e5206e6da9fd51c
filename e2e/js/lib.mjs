// What all scripts share: the codec with the settings of the TypeScript clients in the
// field, their tokens, and one connection.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { Packr } from 'msgpackr';
import WebSocket from 'ws';

export const urls = (process.env.QUORATE_URLS ?? '').split(',');
const secret = process.env.JWT_SECRET;
assert.equal(urls.length, 3, 'QUORATE_URLS names three nodes');
assert.ok(secret, 'JWT_SECRET is set');

// Every map gets a 16-bit header and every integer beyond 32 bits is a float64.
const packr = new Packr({ useRecords: false, variableMapSize: false, mapsAsObjects: true });

const patience = 60_000;

function token(subject) {
  const part = (o) => Buffer.from(JSON.stringify(o)).toString('base64url');
  const body = `${part({ alg: 'HS256', typ: 'JWT' })}.${part({
    sub: subject, exp: Math.floor(Date.now() / 1000) + 3600, roles: ['editor'],
  })}`;
  return `${body}.${createHmac('sha256', secret).update(body).digest('base64url')}`;
}

// The decoder gives BigInt for 64-bit integers; clients turn them into numbers.
function plain(v) {
  if (typeof v === 'bigint') return Number(v);
  if (Array.isArray(v)) return v.map(plain);
  if (v && typeof v === 'object' && !(v instanceof Uint8Array)) {
    return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, plain(x)]));
  }
  return v;
}

export class Client {
  constructor(name, url) {
    this.name = name;
    this.messages = [];
    this.nextId = 1;
    this.pending = [];
    this.counter = 0;
    this.socket = new WebSocket(url);
    this.socket.binaryType = 'arraybuffer';
    this.socket.on('message', (data, binary) => {
      assert.ok(binary, 'the server sends binary frames only');
      this.messages.push(plain(packr.unpack(Buffer.from(data))));
      this.wake?.();
    });
    this.socket.on('close', () => this.wake?.());
  }

  // connect sends AUTH when the socket opens and again when the server asks for it.
  async connect() {
    await new Promise((resolve, reject) => {
      this.socket.once('open', resolve);
      this.socket.once('error', reject);
    });
    const auth = { type: 'AUTH', token: token(this.name) };
    this.send(auth);
    await this.next('AUTH_REQUIRED');
    this.send(auth);
    const ack = await this.next('AUTH_ACK');
    assert.equal(typeof ack.connectionId, 'string');
    assert.equal(typeof ack.serverNodeId, 'string');
    assert.deepEqual(ack.roles, ['editor']);
    return this;
  }

  send(message) {
    this.socket.send(packr.pack(message));
  }

  all(type) {
    return this.messages.filter((m) => m.type === type);
  }

  // next waits for a message of a type that fits and was not taken yet.
  async next(type, fits = () => true) {
    const deadline = Date.now() + patience;
    for (;;) {
      const found = this.messages.find((m) => m.type === type && !m.taken && fits(m));
      if (found) {
        found.taken = true;
        return found;
      }
      assert.ok(this.socket.readyState === WebSocket.OPEN, `${this.name}: closed while waiting for ${type}`);
      assert.ok(Date.now() < deadline, `${this.name}: no ${type}; got ${JSON.stringify(this.messages.slice(-5))}`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, 1000);
        this.wake = () => { clearTimeout(timer); resolve(); };
      });
    }
  }

  // write queues an operation and sends all that are not acknowledged.
  write(mapName, opType, key, value) {
    const timestamp = { millis: Date.now(), counter: this.counter++, nodeId: this.name };
    this.pending.push({
      mapName, opType, key, record: { value, timestamp }, timestamp, synced: false, id: String(this.nextId++),
    });
    this.flush();
  }

  flush() {
    this.send({ type: 'OP_BATCH', payload: { ops: this.pending } });
  }

  // drained waits until the acknowledgements cover everything, by their watermark.
  async drained() {
    while (this.pending.length > 0) {
      const { payload } = await this.next('OP_ACK');
      assert.match(payload.lastId, /^\d+$/);
      this.pending = this.pending.filter((op) => Number(op.id) > Number(payload.lastId));
    }
    assert.deepEqual(this.all('OP_REJECTED'), []);
    assert.deepEqual(this.all('ERROR'), []);
  }

  async query(queryId, mapName) {
    this.send({ type: 'QUERY_SUB', payload: { queryId, mapName, query: {} } });
    const { payload } = await this.next('QUERY_RESP', (m) => m.payload.queryId === queryId);
    return Object.fromEntries(payload.results.map((r) => [r.key, r.value]));
  }
}
