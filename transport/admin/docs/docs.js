'use strict';

const element = (name, text, parent) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
};

// resolve shows a schema with the types that it refers to, each once on a path.
const resolve = (schema, all, seen = []) => {
  if (!schema) return schema;
  if (schema.$ref) {
    const name = schema.$ref.split('/').pop();
    return seen.includes(name) ? name : resolve(all[name], all, [...seen, name]);
  }
  if (schema.type === 'array') return [resolve(schema.items, all, seen)];
  if (schema.properties) {
    const entries = Object.entries(schema.properties).map(([name, s]) => {
      const optional = (schema.required || []).includes(name) ? '' : '?';
      return [name + optional, resolve(s, all, seen)];
    });
    return Object.fromEntries(entries);
  }
  return schema.type || 'any';
};

const bodyOf = (content) => content && content['application/json'] && content['application/json'].schema;

const show = (path, method, op, all) => {
  const box = element('details', undefined, document.getElementById('operations'));
  const summary = element('summary', undefined, box);
  element('span', method.toUpperCase(), summary).className = 'method';
  element('code', path, summary);
  element('span', ' ' + op.summary, summary);
  const inputs = (op.parameters || []).map((p) => {
    const label = element('label', `${p.name} (${p.in}) `, box);
    return { ...p, input: element('input', undefined, label) };
  });
  let body = null;
  const request = op.requestBody && bodyOf(op.requestBody.content);
  if (request) {
    element('pre', JSON.stringify(resolve(request, all), null, 2), box);
    body = element('textarea', undefined, box);
    body.value = '{}';
  }
  for (const [status, response] of Object.entries(op.responses)) {
    element('div', `${status} ${response.description}`, box);
    const schema = bodyOf(response.content);
    if (schema && status < 300) element('pre', JSON.stringify(resolve(schema, all), null, 2), box);
  }
  const send = element('button', 'Send', box);
  const answer = element('pre', '', box);
  send.addEventListener('click', async () => {
    let url = path;
    const query = new URLSearchParams();
    for (const p of inputs) {
      if (p.in === 'path') url = url.replace(`{${p.name}}`, encodeURIComponent(p.input.value));
      else if (p.input.value) query.set(p.name, p.input.value);
    }
    const headers = {};
    const token = document.getElementById('token').value;
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body) headers['Content-Type'] = 'application/json';
    try {
      const suffix = query.size ? `?${query}` : '';
      const r = await fetch(url + suffix, { method: method.toUpperCase(), headers, body: body ? body.value : undefined });
      answer.textContent = `${r.status}\n${await r.text()}`;
    } catch (e) {
      answer.textContent = String(e);
    }
  });
};

fetch('/api/openapi.json').then((r) => r.json()).then((doc) => {
  for (const path of Object.keys(doc.paths).sort()) {
    for (const [method, op] of Object.entries(doc.paths[path])) show(path, method, op, doc.components.schemas);
  }
});
