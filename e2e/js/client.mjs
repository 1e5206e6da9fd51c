// Speaks to a three-node cluster as the TypeScript clients in the field do: the
// same codec with the same settings, a token, every unacknowledged operation sent
// again with each new one. Usage:
//
//   QUORATE_URLS=ws://…/ws,ws://…/ws,ws://…/ws JWT_SECRET=… node client.mjs
//
// It exits 0 when everything was as it should be.
import assert from 'node:assert/strict';
import { Client, urls } from './lib.mjs';

const values = {
  whole: 42, negative: -7, large: 1760000000123, fraction: 0.5, text: 'naïve 日本語 😀', yes: true,
  list: [1, 'two', [3], { four: 4 }], nested: { deep: { er: null } }, '7': 'numeric key', empty: {},
};

async function main() {
  const [writer, reader, other] = await Promise.all(urls.map((url, i) => new Client(`device-${i + 1}`, url).connect()));

  assert.deepEqual(await reader.query('q-reader', 'todos'), {});
  assert.deepEqual(await writer.query('q-writer', 'todos'), {});

  const keys = ['a', 'b', 'c', 'order/7', '😀'];
  for (const key of keys) writer.write('todos', 'PUT', key, { key, ...values });
  await writer.drained();
  writer.write('todos', 'REMOVE', 'b', null);
  await writer.drained();

  for (const key of keys) {
    const { payload } = await reader.next('SERVER_EVENT', (m) => m.payload.key === key && m.payload.eventType === 'PUT');
    assert.equal(payload.mapName, 'todos');
    assert.deepEqual(payload.record.value, { key, ...values });
    assert.equal(payload.record.timestamp.nodeId, 'device-1', 'the client\'s own timestamp is kept');
    const update = await reader.next('QUERY_UPDATE', (m) => m.payload.key === key && m.payload.changeType === 'ENTER');
    assert.equal(update.payload.queryId, 'q-reader');
    assert.deepEqual(update.payload.value, { key, ...values });
  }
  const removal = await reader.next('SERVER_EVENT', (m) => m.payload.eventType === 'REMOVE');
  assert.equal(removal.payload.key, 'b');
  assert.equal(removal.payload.record.value, null);
  assert.equal(removal.payload.record.timestamp.nodeId, 'device-1');
  await reader.next('QUERY_UPDATE', (m) => m.payload.key === 'b' && m.payload.changeType === 'LEAVE');
  assert.equal(reader.all('SERVER_EVENT').length, keys.length + 1, 'operations sent again make no events');

  const expected = Object.fromEntries(keys.filter((k) => k !== 'b').map((key) => [key, { key, ...values }]));
  assert.deepEqual(await reader.query('q-again', 'todos'), expected);
  assert.deepEqual(await writer.query('q-own', 'todos'), expected);

  // What another client writes reaches the writer, and would come after an echo.
  other.write('todos', 'PUT', 'd', { by: 'other' });
  await other.drained();
  await writer.next('SERVER_EVENT', (m) => m.payload.key === 'd');
  assert.equal(writer.all('SERVER_EVENT').length, 1, 'the writer gets no echo');
  assert.deepEqual(await other.query('q-other', 'todos'), { ...expected, d: { by: 'other' } });

  const sent = Date.now();
  other.send({ type: 'PING', timestamp: sent });
  assert.equal((await other.next('PONG')).timestamp, sent);
  other.send({ type: 'PARTITION_MAP_REQUEST', payload: { currentVersion: 0 } });
  const { payload: table } = await other.next('PARTITION_MAP');
  assert.equal(table.partitions.length, 271);
  assert.deepEqual(table.nodes.map((n) => n.endpoints.websocket).sort(), [...urls].sort());

  for (const c of [writer, reader, other]) {
    assert.equal(c.all('AUTH_ACK').length, 1, 'a second AUTH is silent');
    c.socket.close();
  }
}

main().then(
  () => console.log('ok'),
  (err) => {
    console.error(err);
    process.exit(1);
  },
);
