'use strict';

// The token lives as long as the page.
let token = '';

const get = async (path) => {
  const r = await fetch(path, { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (!r.ok) throw Object.assign(new Error((await r.json()).message), { status: r.status });
  return r.json();
};

// Everything from the server is shown as text, never as markup.
const table = (id, head, rows) => {
  const t = document.getElementById(id);
  t.replaceChildren();
  const line = (cells, kind) => {
    const tr = t.insertRow();
    for (const c of cells) {
      const cell = document.createElement(kind);
      cell.textContent = c === undefined || c === '' ? '-' : c;
      tr.append(cell);
    }
  };
  line(head, 'th');
  rows.forEach((r) => line(r, 'td'));
};

const mib = (bytes) => bytes === undefined ? undefined : `${(bytes / 1048576).toFixed(1)} MiB`;

const refresh = async () => {
  const status = await get('/api/status');
  document.getElementById('banner').hidden = !status.noAuth;
  document.getElementById('node').textContent =
    `${status.nodeId}, version ${status.version}, ${status.ready ? 'ready' : 'not ready'}, ${status.connections} connections, ` +
    `${status.totalOperations} operations, up ${status.uptimeSeconds} s`;
  try {
    const cluster = await get('/api/admin/cluster/status');
    const maps = await get('/api/admin/maps');
    table('nodes', ['Node', 'Address', 'State', 'Partitions', 'Connections', 'Memory', 'Lag'],
      cluster.nodes.map((n) => [n.nodeId, n.address, n.state, n.partitionCount, n.connections, mib(n.memory), n.lagEntries]));
    const local = cluster.nodes.find((n) => n.local) || { groups: [] };
    table('groups', ['Group', 'Role', 'Term', 'Leader', 'Commit', 'Applied', 'Flushed', 'Lag'],
      local.groups.map((g) => [g.id, g.role, g.term, g.leader, g.commitIndex, g.appliedIndex, g.flushedIndex, g.lagEntries]));
    table('maps', ['Map', 'Type', 'Entries', 'Tombstones', 'Size'],
      maps.maps.map((m) => [m.name, m.type, m.entryCount, m.tombstoneCount, mib(m.bytes)]));
    document.querySelector('main').hidden = false;
    document.getElementById('login').hidden = true;
  } catch (e) {
    if (e.status !== 401) throw e;
    token = '';
    document.querySelector('main').hidden = true;
    document.getElementById('login').hidden = false;
  }
};

const loop = async () => {
  try {
    await refresh();
  } catch (e) {
    document.getElementById('node').textContent = `The server does not answer: ${e.message}`;
  }
};

document.getElementById('login').addEventListener('submit', async (event) => {
  event.preventDefault();
  const form = new FormData(event.target);
  const r = await fetch('/api/auth/login', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ username: form.get('username'), password: form.get('password') }),
  });
  const body = await r.json();
  document.getElementById('problem').textContent = r.ok ? '' : body.message;
  if (r.ok) {
    token = body.token;
    loop();
  }
});

loop();
setInterval(loop, 5000);
