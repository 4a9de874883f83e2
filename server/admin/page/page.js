// The page of gpunbd: what /api/v1/ tells, drawn. Names of others come into it as text only, never as markup; nothing is
// kept but the theme and, for this tab, the token.
'use strict';

// --- units -----------------------------------------------------------------------------------------

const byId = (id) => document.getElementById(id);
const minus = '\u2212', dash = '\u2013', thin = '\u202f';

function digits(number) {
  return number.toFixed(number >= 100 ? 0 : number >= 10 ? 1 : 2);
}

function scaled(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0, number = bytes;
  for (; number >= 1023.5 && unit < units.length - 1; unit++) number /= 1024;
  return [number, units[unit]];
}

function size(bytes) {
  const [number, unit] = scaled(bytes);
  return `${Number.isInteger(number) ? number : digits(number)} ${unit}`;
}

function rate(bytes) {
  if (bytes === undefined) return dash;
  if (bytes < 0.5) return '0';
  const [number, unit] = scaled(bytes);
  return `${unit === 'B' ? Math.round(number) : digits(number)} ${unit}/s`;
}

function grouped(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, thin);
}

function count(number) {
  if (number === undefined) return dash;
  return number < 9.95 && !Number.isInteger(number) ? number.toFixed(1) : grouped(number);
}

function duration(seconds) {
  if (!seconds) return dash;
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  return seconds < 1 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
}

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds)), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString('en-GB');
}

function plural(number, one, many) {
  return `${grouped(number)} ${number === 1 ? one : many}`;
}

const shown = (name) => name === '' ? '(no name)' : name;

// --- elements --------------------------------------------------------------------------------------

function make(kind, properties = {}, ...children) {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  return element;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

// A number for people, whose `value` is exact.
function putNumber(element, value, text) {
  put(element, text);
  const exact = value === undefined ? '' : String(value);
  if (element.value !== exact) element.value = exact;
}

// A live region would read each second aloud: it is one only while its reader moves in it.
function say(element, text, asked) {
  element.setAttribute('aria-live', asked ? 'polite' : 'off');
  put(element, text);
}

// The children of `parent` become those of `items`: made once, by key, then filled again and again.
function keyed(parent, items, key, create, fill) {
  parent.known ??= new Map();
  const left = new Map(parent.known);
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = left.get(name);
    left.delete(name);
    if (!element) parent.known.set(name, element = create(item));
    fill(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const [name, element] of left) {
    parent.known.delete(name);
    element.remove();
  }
}

function figures(list, entries) {
  keyed(list, entries, (entry) => entry.label, (entry) => {
    const row = make('div', {}, make('dt', {textContent: entry.label}), make('dd', {}, make('data'), ' ', make('small')));
    row.dataset.figure = entry.label;
    return row;
  }, (row, entry) => {
    putNumber(row.querySelector('data'), entry.value, entry.text);
    put(row.querySelector('small'), entry.small ?? '');
  });
}

// --- colours and canvases --------------------------------------------------------------------------

let inks = {};

// The style sheet has all colours; a canvas needs them resolved.
function ink(name) {
  if (!inks[name]) {
    const probe = make('i', {hidden: true});
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    inks[name] = getComputedStyle(probe).color;
    probe.remove();
  }
  return inks[name];
}

function mixed(from, to, share) {
  const [a, b] = [from, to].map((colour) => colour.match(/[\d.]+/g).map(Number));
  return `rgb(${a.slice(0, 3).map((part, index) => Math.round(part + (b[index] - part) * share)).join(' ')})`;
}

// Sized to its place and the screen's pixels, cleared. Nothing: it is not in view.
function drawing(canvas, height) {
  const width = canvas.clientWidth;
  if (!width) return null;
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${getComputedStyle(document.documentElement).fontFamily}`;
  return {context, width, height};
}

function useTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  inks = {};
}

function keepTheme() {
  const choice = byId('theme');
  try {
    choice.value = localStorage.getItem('theme') ?? 'auto';
  } catch { /* a browser that keeps nothing */ }
  if (!choice.value) choice.value = 'auto';
  useTheme(choice.value);
  choice.addEventListener('change', () => {
    useTheme(choice.value);
    try {
      localStorage.setItem('theme', choice.value);
    } catch { /* likewise */ }
    draw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { inks = {}; draw(); });
}

// --- asking the server -----------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem('token');
  return token ? {...more, Authorization: `Bearer ${token}`} : more;
}

async function accepted(answer) {
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.error ?? `the server answers ${answer.status}`);
}

async function ask(path, query) {
  const url = `/api/v1/${path}${query ? `?${new URLSearchParams(query)}` : ''}`;
  return (await accepted(await fetch(url, {headers: headers(), cache: 'no-store', signal: AbortSignal.timeout(10000)}))).json();
}

async function steer(path, body) {
  const options = {method: 'POST', headers: headers({'Content-Type': 'application/json'}), body: JSON.stringify(body),
                   signal: AbortSignal.timeout(10000)};
  try {
    return (await (await accepted(await fetch(`/api/v1/${path}`, options))).json()).done;
  } catch (error) {
    if (error.status === 403 || error.status === 405) {
      state.steering = false; // here one may only look, and is told why
      state.whyNot = error.message;
      draw();
    }
    throw error;
  }
}

// --- a question to whoever looks -------------------------------------------------------------------

// Keeps open, and tells why, as long as `act` fails. Resolves to whether it was done.
function question({title, text, yes, fields = [], act}) {
  const dialog = byId('ask'), form = dialog.querySelector('form');
  put(byId('ask-title'), title);
  put(byId('ask-text'), text);
  put(byId('ask-yes'), yes);
  put(byId('ask-error'), '');
  byId('ask-fields').replaceChildren(...fields.map(({label, ...input}) => make('label', {}, label, make('input', input))));
  return new Promise((resolve) => {
    let done = false;
    form.onsubmit = async (event) => {
      event.preventDefault();
      byId('ask-yes').disabled = true;
      try {
        await act(Object.fromEntries([...form.querySelectorAll('input')].map((input) => [input.name, input.value.trim()])));
        done = true;
        dialog.close();
      } catch (error) {
        put(byId('ask-error'), error.message);
      }
      byId('ask-yes').disabled = false;
    };
    byId('ask-no').onclick = () => dialog.close();
    dialog.onclose = () => resolve(done);
    dialog.showModal();
  });
}

async function told(options) {
  let text = '';
  if (await question({...options, act: async (values) => { text = await options.act(values); }})) notice('done', `Done: ${text}.`);
}

// One of each kind; the next of its kind takes its place.
function notice(kind, text, button) {
  const box = byId('notices');
  let element = [...box.children].find((child) => child.dataset.kind === kind);
  if (text === null) return element?.remove();
  if (!element) {
    element = make('p', {className: `notice ${kind}`}, make('span'), make('button'));
    element.dataset.kind = kind;
    box.append(element);
  }
  put(element.querySelector('span'), text);
  const {label, act} = button ?? {label: 'Close', act: () => element.remove()};
  put(element.querySelector('button'), label);
  element.querySelector('button').onclick = act;
  show(element.querySelector('button'), button !== false);
}

// --- what is known ---------------------------------------------------------------------------------

const state = {
  status: null,            // the last that was told
  rates: new Map(),        // of exports, by name: bytes and requests a second
  trends: new Map(),       // of exports, by name: bytes a second, the last minute
  connections: [],
  connectionsLeftOut: 0,
  connectionRates: new Map(),
  cpu: undefined,
  events: [],
  goneSince: null,
  steering: true,
  whyNot: '',
};

function totalsOf(exported) {
  const total = {read: 0, written: 0, reads: 0, requests: 0, inFlight: 0};
  for (const of of exported.requests) {
    total.requests += of.requests;
    total.inFlight += of.in_flight;
    if (of.type === 'read') total.read += of.bytes;
    if (of.type === 'write') total.written += of.bytes;
  }
  return total;
}

function perSecond(now, before, seconds) {
  return {read: (now.read - before.read) / seconds, written: (now.written - before.written) / seconds,
          requests: (now.requests - before.requests) / seconds};
}

function isRestart(status) {
  const before = state.status?.process;
  return Boolean(before) && (before.pid !== status.process.pid || before.started !== status.process.started);
}

function forget() {
  state.rates.clear();
  state.trends.clear();
  state.connectionRates.clear();
  state.connections = [];
  state.cpu = undefined;
  state.status = null;
  opened.history = null;
}

function take(tick) {
  if (isRestart(tick.status)) {
    notice('restarted', `The server was restarted at ${clock(tick.status.process.started)}: its counters begin anew.`);
    addEvents([{id: `restart ${tick.status.process.started}`, time: tick.status.process.started, level: 'info',
                text: 'the server was restarted', fields: {}}]);
    forget();
  }
  const before = state.status, seconds = before ? tick.status.time - before.time : 0;
  if (seconds > 0) {
    takeRates(tick, before, seconds);
    state.cpu = (tick.status.process.cpu_seconds - before.process.cpu_seconds) / seconds;
  }
  state.status = tick.status;
  state.connections = tick.connections;
  state.connectionsLeftOut = tick.connections_left_out;
  addEvents(tick.events);
  opened.takeTick();
}

function takeRates(tick, before, seconds) {
  const known = new Map(before.exports.map((exported) => [exported.name, exported]));
  state.rates.clear();
  for (const exported of tick.status.exports) {
    if (!known.has(exported.name)) continue;
    const rates = perSecond(totalsOf(exported), totalsOf(known.get(exported.name)), seconds);
    state.rates.set(exported.name, rates);
    const trend = state.trends.get(exported.name) ?? [];
    trend.push(rates.read + rates.written);
    if (trend.length > 60) trend.shift();
    state.trends.set(exported.name, trend);
  }
  const were = new Map(state.connections.map((connection) => [connection.id, connection]));
  state.connectionRates = new Map(tick.connections.filter(({id}) => were.has(id))
    .map((connection) => [connection.id, perSecond(connection, were.get(connection.id), seconds)]));
}

// --- the stream ------------------------------------------------------------------------------------

// Not EventSource: that sends no token.
async function* ticks() {
  const abort = new AbortController();
  let timer;
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(), 6000); };
  alive();
  try {
    const answer = await accepted(await fetch('/api/v1/stream', {headers: headers({Accept: 'text/event-stream'}), cache: 'no-store', signal: abort.signal}));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ''; ;) {
      const {value, done} = await reader.read();
      if (done) return;
      alive();
      const parts = (text + value.replaceAll('\r', '')).split('\n\n');
      text = parts.pop();
      for (const part of parts) {
        const data = part.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n');
        if (data) yield JSON.parse(data);
      }
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

async function follow() {
  for (let tries = 0; ; tries++) {
    try {
      for await (const tick of ticks()) {
        const first = tries >= 0 || state.goneSince;
        tries = -1;
        take(tick);
        answers();
        if (first) await fetchEvents().catch(() => {});
      }
      gone();
    } catch (error) {
      if (error.status === 401) {
        await needToken(error);
        continue;
      }
      gone(error.status ? error.message : null);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(4000, 500 * (tries + 2))));
  }
}

function answers() {
  state.goneSince = null;
  notice('gone', null);
  draw();
}

function gone(why) {
  state.goneSince ??= Date.now() / 1000;
  notice('gone', `The server does not answer since ${clock(state.goneSince)}${why ? ` (${why})` : ''}; trying again.`, false);
  draw();
}

async function needToken(error) {
  const had = sessionStorage.getItem('token');
  sessionStorage.removeItem('token');
  put(byId('state'), 'needs a token');
  const asked = {
    title: 'A token is needed',
    text: had ? 'The server refuses that token.' : `The server says: ${error.message}.`,
    yes: 'Go on',
    fields: [{label: 'Token', name: 'token', type: 'password', autocomplete: 'off', required: true}],
    act: async ({token}) => sessionStorage.setItem('token', token),
  };
  while (!await question(asked)) {
    await new Promise((resolve) => notice('token', 'Without its token the server tells nothing.', {label: 'Give the token', act: resolve}));
  }
  notice('token', null);
}

// --- header, totals, progress ----------------------------------------------------------------------

function drawHeader(status) {
  const {process} = status, gone = state.goneSince !== null;
  byId('state').dataset.state = gone ? 'gone' : process.state;
  put(byId('state'), gone ? 'does not answer' : process.state);
  put(byId('process'), `${process.version} (${process.commit}), ${process.build} · pid ${process.pid} · up ${age(status.time - process.started)}`);
  document.documentElement.classList.toggle('old', gone);
}

function drawTotals(status) {
  const sum = (of) => state.rates.size ? [...state.rates.values()].reduce((total, rates) => total + rates[of], 0) : undefined;
  const used = status.exports.reduce((total, exported) => total + exported.used, 0);
  const offered = status.exports.reduce((total, exported) => total + exported.size, 0);
  const {process} = status;
  figures(byId('totals'), [
    {label: 'Reading', value: sum('read'), text: rate(sum('read'))},
    {label: 'Writing', value: sum('written'), text: rate(sum('written'))},
    {label: 'Requests/s', value: sum('requests'), text: count(sum('requests'))},
    {label: 'Connections', value: status.connections, text: count(status.connections)},
    {label: 'Memory used', value: used, text: size(used), small: `of ${size(offered)} offered`},
    {label: 'Processor', value: state.cpu, text: state.cpu === undefined ? dash : `${digits(state.cpu * 100)} %`, small: `${process.workers} workers`},
    {label: 'Resident', value: process.resident, text: size(process.resident)},
  ]);
}

function drawProgress(status) {
  show(byId('progress'), status.progress.length > 0);
  const amount = (work, number) => work.unit === 'bytes' ? size(number) : plural(number, 'connection', 'connections');
  keyed(byId('works'), status.progress, (work) => JSON.stringify([work.what, work.of]), (work) => {
    const bar = make('progress');
    bar.setAttribute('aria-label', `${work.what} ${work.of}`);
    return make('li', {className: 'work'}, make('span', {textContent: `${work.what} ${work.of}`}), bar, make('span', {className: 'quiet'}));
  }, (item, work) => {
    const bar = item.querySelector('progress');
    if (work.total) {
      bar.max = work.total;
      bar.value = work.done;
    }
    bar.style.visibility = work.total ? '' : 'hidden';
    put(item.lastChild, work.total ? `${amount(work, work.done)} of ${amount(work, work.total)}` : amount(work, work.done));
  });
}

// --- devices ---------------------------------------------------------------------------------------

// What its memory is to whom, from the start of the bar to its end.
function partsOf(device, status) {
  const mine = status.exports.flatMap((exported) => {
    const bytes = exported.memory.filter((memory) => memory.device === device.id).reduce((sum, memory) => sum + memory.allocated, 0);
    return bytes ? [{kind: 'in-use', name: shown(exported.name), bytes}] : [];
  }).sort((one, other) => other.bytes - one.bytes);
  const parts = mine.slice(0, 24), rest = mine.slice(24);
  const bytesOf = (some) => some.reduce((sum, part) => sum + part.bytes, 0);
  if (rest.length) parts.push({kind: 'in-use', name: `${rest.length} more exports`, bytes: bytesOf(rest)});
  const ready = device.allocated - bytesOf(mine);
  if (ready > 0) parts.push({kind: 'in-use', name: 'made ready', bytes: ready});
  const taken = Math.max(0, device.total - device.allocated - device.available);
  const reserve = Math.min(device.reserve, taken);
  return [...parts, {kind: 'reserve', name: 'reserve', bytes: reserve}, {kind: 'others', name: 'others', bytes: taken - reserve},
          {kind: 'free', name: 'free', bytes: device.available}];
}

function drawDevices(status) {
  const many = status.devices.length > 3;
  byId('devices').classList.toggle('many', many);
  keyed(byId('devices'), status.devices, (device) => device.id, () => {
    const bar = make('div', {className: 'bar'});
    bar.setAttribute('role', 'img');
    return make('li', {className: 'device'}, make('div', {className: 'device-head'}, make('span', {}, make('b'), ' ', make('span', {className: 'quiet'})), make('span', {className: 'quiet'})),
                bar, make('p', {className: 'parts'}));
  }, (item, device) => {
    const [head, bar, list] = item.children, parts = partsOf(device, status);
    item.dataset.device = device.id;
    put(head.querySelector('b'), device.id);
    put(head.querySelector('.quiet'), device.name === device.id ? '' : device.name);
    put(head.lastChild, device.failed ? 'failed: its exports answer EIO' : `${size(device.allocated)} of ${size(device.total)}${device.others_compute ? '; others compute there' : ''}`);
    head.lastChild.classList.toggle('error', device.failed);
    bar.setAttribute('aria-label', parts.map((part) => `${part.name} ${size(part.bytes)}`).join(', '));
    let order = 0;
    keyed(bar, parts.filter((part) => part.kind !== 'free' && part.bytes), (part) => `${part.kind} ${part.name}`,
          (part) => make('i', {className: part.kind}), (segment, part) => {
            segment.title = `${part.name}: ${size(part.bytes)}`;
            segment.style.width = `${100 * part.bytes / device.total}%`;
            if (part.kind === 'in-use') segment.classList.toggle('next', order++ % 2 === 1);
          });
    drawParts(list, parts, many ? 2 : 4);
  });
}

// The largest by name, then the rest.
function drawParts(list, parts, most) {
  const mine = parts.filter((part) => part.kind === 'in-use'), named = mine.slice(0, most), rest = mine.slice(most);
  if (rest.length) named.push({kind: 'in-use', name: 'smaller ones', bytes: rest.reduce((sum, part) => sum + part.bytes, 0)});
  keyed(list, [...named, ...parts.filter((part) => part.kind !== 'in-use')], (part) => `${part.kind} ${part.name}`,
        (part) => make('span', {}, `${part.name} `, make('b', {}, make('data'))), (item, part) => {
          item.dataset.part = part.kind;
          putNumber(item.querySelector('data'), part.bytes, size(part.bytes));
        });
}

// --- the list of exports ---------------------------------------------------------------------------

const list = {key: 'name', down: false, shown: [], rowHeight: 44};

const sortValue = {
  name: (exported) => exported.name,
  size: (exported) => exported.size,
  used: (exported) => exported.used,
  read: (exported) => state.rates.get(exported.name)?.read ?? 0,
  written: (exported) => state.rates.get(exported.name)?.written ?? 0,
  connections: (exported) => exported.connections,
};

function chosenExports(status) {
  const words = byId('search').value.trim().toLowerCase();
  const value = sortValue[list.key], sign = list.down ? -1 : 1;
  const byName = (one, other) => one.name.localeCompare(other.name, 'en', {numeric: true});
  return status.exports.filter((exported) => exported.name.toLowerCase().includes(words) || exported.description.toLowerCase().includes(words))
    .sort((one, other) => sign * (list.key === 'name' ? byName(one, other) : value(one) - value(other)) || byName(one, other));
}

const linkTo = (name) => `#/export/${encodeURIComponent(name)}`;

function makeRow(exported) {
  const cell = (name, ...children) => make('td', {className: name}, ...children);
  const link = make('a', {href: linkTo(exported.name)}), row = make('tr', {className: 'row'});
  row.append(cell('name', link, make('span', {className: 'tag', hidden: true})), cell('wide', make('div', {className: 'gauge'}, make('span', {}, make('i')), make('data'))),
             cell('number', make('data')), cell('number', make('data')), cell('number', make('data')), cell('trend', make('canvas')), cell('number', make('data')));
  row.querySelector('canvas').setAttribute('aria-hidden', 'true');
  row.addEventListener('click', (event) => { if (event.target !== link) link.click(); });
  return row;
}

function fillRow(row, {exported, index}) {
  const [name, used, whole, read, written, trend, clients] = row.children, rates = state.rates.get(exported.name);
  row.dataset.export = exported.name;
  row.setAttribute('aria-rowindex', index + 2);
  put(name.firstChild, shown(exported.name));
  name.title = exported.description ? `${exported.name}: ${exported.description}` : exported.name;
  const tag = [exported.read_only && 'read-only', exported.keep && 'kept', exported.swap && 'swap'].filter(Boolean).join(', ');
  show(name.lastChild, tag !== '');
  put(name.lastChild, tag);
  used.querySelector('i').style.width = `${Math.min(100, 100 * exported.used / (exported.size || 1))}%`;
  putNumber(used.querySelector('data'), exported.used, size(exported.used));
  putNumber(whole.firstChild, exported.size, size(exported.size));
  for (const [cell, value] of [[read, rates?.read], [written, rates?.written]]) {
    putNumber(cell.firstChild, value, rate(value));
    cell.firstChild.className = value ? '' : 'zero';
  }
  putNumber(clients.firstChild, exported.connections, count(exported.connections));
  drawTrend(trend.firstChild, state.trends.get(exported.name) ?? []);
}

function drawTrend(canvas, values) {
  const place = drawing(canvas, 26);
  if (!place) return;
  const {context, width} = place, highest = Math.max(...values, 1), step = width / 60, start = width - values.length * step;
  context.fillStyle = ink('rule');
  context.fillRect(0, 24, width, 1);
  context.fillStyle = ink('bar');
  values.forEach((value, index) => {
    const height = value > 0 ? Math.max(1, 23 * value / highest) : 0;
    context.fillRect(start + index * step, 24 - height, Math.max(1, step - 0.4), height);
  });
}

// Only the rows that can be seen are there.
function drawExports(status) {
  const scroll = byId('exports-scroll'), body = byId('exports').tBodies[0];
  list.shown = chosenExports(status);
  const all = list.shown.length, first = Math.max(0, Math.floor(scroll.scrollTop / list.rowHeight) - 3);
  const last = Math.min(all, Math.ceil((scroll.scrollTop + scroll.clientHeight) / list.rowHeight) + 3);
  const space = (place, rows) => ({place, rows});
  const items = [space('above', Math.min(first, all)), ...list.shown.slice(first, Math.max(last, first + 12)).map((exported, index) => ({exported, index: first + index}))];
  items.push(space('below', all - Math.min(all, Math.max(last, first + 12))));
  const held = document.activeElement;
  keyed(body, items, (item) => item.place ?? `export ${item.exported.name}`, (item) => item.place ? makeSpace() : makeRow(item.exported),
        (row, item) => item.place ? fillSpace(row, item.rows) : fillRow(row, item));
  if (held !== document.activeElement && body.contains(held)) held.focus({preventScroll: true});
  byId('exports').setAttribute('aria-rowcount', all + 1);
  put(byId('exports-count'), all === status.exports.length ? grouped(all) : `${grouped(all)} of ${grouped(status.exports.length)}`);
  show(byId('exports-none'), all === 0);
  put(byId('exports-none'), status.exports.length ? 'No export has that in its name or description.' : 'There are no exports yet.');
  for (const head of byId('exports').tHead.querySelectorAll('[data-key]')) {
    if (head.dataset.key === list.key) head.setAttribute('aria-sort', list.down ? 'descending' : 'ascending');
    else head.removeAttribute('aria-sort');
  }
}

function makeSpace() {
  const row = make('tr', {className: 'space'}, make('td', {colSpan: 7}));
  row.setAttribute('aria-hidden', 'true');
  return row;
}

function fillSpace(row, rows) {
  row.firstChild.style.height = `${rows * list.rowHeight}px`;
  show(row, rows > 0);
}

function focusExport(index) {
  const scroll = byId('exports-scroll'), head = byId('exports').tHead.offsetHeight;
  const wanted = list.shown[Math.max(0, Math.min(list.shown.length - 1, index))];
  if (!wanted) return;
  const top = list.shown.indexOf(wanted) * list.rowHeight;
  if (top < scroll.scrollTop) scroll.scrollTop = top;
  if (top + list.rowHeight + head > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + list.rowHeight + head - scroll.clientHeight;
  drawExports(state.status);
  byId('exports').tBodies[0].known.get(`export ${wanted.name}`)?.querySelector('a').focus({preventScroll: true});
}

function listenToList() {
  byId('search').addEventListener('input', () => { byId('exports-scroll').scrollTop = 0; draw(); });
  byId('search').addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'Enter') { event.preventDefault(); focusExport(0); }
  });
  byId('exports-scroll').addEventListener('scroll', draw, {passive: true});
  byId('exports').tHead.addEventListener('click', (event) => {
    const key = event.target.closest('[data-key]')?.dataset.key;
    if (!key) return;
    list.down = key === list.key ? !list.down : key !== 'name';
    list.key = key;
    draw();
  });
  byId('exports').tBodies[0].addEventListener('keydown', (event) => {
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity};
    const row = event.target.closest('[data-export]');
    if (!row || !(event.key in steps)) return;
    event.preventDefault();
    focusExport(list.shown.findIndex((exported) => exported.name === row.dataset.export) + steps[event.key]);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.target.matches('input, select') || byId('ask').open || byId('overview').hidden) return;
    event.preventDefault();
    byId('search').focus();
  });
}

// --- charts ----------------------------------------------------------------------------------------

function roundSteps(highest, base) {
  const unit = base ** Math.max(0, Math.floor(Math.log(highest) / Math.log(base) + 1e-9)), top = highest / unit;
  const step = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => top / one <= 4) ?? 500;
  return Array.from({length: Math.ceil(top / step) + 1}, (_, index) => index * step * unit);
}

function linear(values) {
  const marks = roundSteps(Math.max(1024, ...values), 1024), highest = marks.at(-1);
  return {marks, place: (value) => value / highest};
}

function logarithmic(values) {
  const positive = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...positive, 1e-4))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive, 1e-3))));
  const within = high - low > 2 ? [1] : [1, 2, 5];
  const marks = Array.from({length: high - low}, (_, decade) => within.map((one) => one * 10 ** (low + decade))).flat().concat(10 ** high);
  return {marks, place: (value) => value > 0 ? (Math.log10(value) - low) / (high - low) : null};
}

// A canvas of lines over the last ten minutes. `lines`: {name, colour, dashed, filled, values}, one value a second.
class Chart {
  constructor(id, scale, format) {
    this.canvas = byId(id);
    this.text = byId(`${id}-text`);
    this.scale = scale;
    this.format = format;
    this.back = null; // seconds back from the end that are pointed at
    this.canvas.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerdown', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerleave', () => { this.back = null; this.draw(this.lines, this.end); });
    this.canvas.addEventListener('blur', () => { this.back = null; this.draw(this.lines, this.end); });
    this.canvas.addEventListener('keydown', (event) => this.press(event));
  }

  press(event) {
    const back = this.back ?? 0;
    const to = {ArrowLeft: back + (event.shiftKey ? 30 : 1), ArrowRight: back - (event.shiftKey ? 30 : 1), Home: 599, End: 0, Escape: null}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.back = to === null ? null : Math.max(0, Math.min(599, to));
    this.draw(this.lines, this.end, true);
  }

  point(x) {
    if (!this.area) return;
    this.back = Math.max(0, Math.min(599, Math.round((1 - (x - this.area.left) / this.area.wide) * 599)));
    this.draw(this.lines, this.end);
  }

  draw(lines, end, asked = false) {
    Object.assign(this, {lines, end});
    if (!lines) return;
    this.tell(asked);
    const place = drawing(this.canvas, 210);
    if (!place) return;
    const {context, width} = place, scale = this.scale(lines.flatMap((line) => line.values));
    const left = 70, high = 176, top = 8, wide = width - left - 8;
    this.area = {left, wide};
    const x = (back) => left + wide * (1 - back / 599), y = (value) => { const share = scale.place(value); return share === null ? null : top + high * (1 - share); };
    this.drawAxes(context, scale.marks, x, y, {left, wide, top, high});
    for (const line of lines) this.drawLine(context, line, x, y, top + high);
    if (this.back !== null) {
      context.fillStyle = ink('ink');
      context.fillRect(Math.round(x(this.back)), top, 1, high);
    }
  }

  drawAxes(context, marks, x, y, {left, wide, top, high}) {
    context.textBaseline = 'middle';
    for (const mark of marks) {
      context.fillStyle = ink('rule');
      context.fillRect(left, Math.round(y(mark) ?? top + high), wide, 1);
      context.fillStyle = ink('quiet');
      context.textAlign = 'right';
      context.fillText(this.format(mark).replace(/\.0+(?= )/, ''), left - 8, y(mark) ?? top + high);
    }
    context.textBaseline = 'top';
    for (const minutes of wide > 420 ? [10, 8, 6, 4, 2, 0] : [10, 5, 0]) {
      context.textAlign = minutes === 10 ? 'left' : minutes === 0 ? 'right' : 'center';
      context.fillText(minutes ? `${minus}${minutes} min` : 'now', x(Math.min(599, minutes * 60)), top + high + 8);
    }
  }

  drawLine(context, {colour, dashed, filled, values}, x, y, floor) {
    const path = new Path2D();
    let drawing = false, from = 0;
    const fill = new Path2D();
    values.forEach((value, index) => {
      const at = value === null ? null : y(value), across = x(values.length - 1 - index);
      if (at === null) { drawing = false; return; }
      if (drawing) path.lineTo(across, at);
      else { path.moveTo(across, at); from = across; fill.moveTo(from, floor); }
      fill.lineTo(across, at);
      if (index + 1 === values.length || values[index + 1] === null) { fill.lineTo(across, floor); fill.closePath(); }
      drawing = true;
    });
    context.strokeStyle = context.fillStyle = ink(colour);
    if (filled) {
      context.globalAlpha = 0.12;
      context.fill(fill);
      context.globalAlpha = 1;
    }
    context.lineWidth = dashed ? 1.2 : 1.6;
    context.lineJoin = 'round';
    context.setLineDash(dashed ? [3, 3] : []);
    context.stroke(path);
    context.setLineDash([]);
  }

  tell(asked) {
    const at = (line, back) => line.values.at(-1 - back) ?? undefined;
    const highest = (line) => Math.max(0, ...line.values);
    const list = (value) => this.lines.map((line) => `${line.name} ${this.format(value(line) ?? 0)}`).join(', ');
    const summary = `Highest in ten minutes: ${list(highest)}.`;
    this.canvas.setAttribute('aria-label', `${byId(`${this.canvas.id}-title`).textContent}, a chart of the last ten minutes. ${summary} Left and right tell the values of a second.`);
    say(this.text, this.back === null ? summary : `${clock(this.end - this.back)}: ${list((line) => at(line, this.back))}`, asked);
  }
}

// --- the map ---------------------------------------------------------------------------------------

function decoded(coded, cells) {
  const values = new Uint8Array(cells);
  for (let place = 0, index = 0; index + 1 < coded.length; index += 2) {
    values.fill(coded[index], place, place += coded[index + 1]);
  }
  return values;
}

// Rows of cells that fill the width: as large as all of them can be.
function gridFor(cells, width, height) {
  let best = null;
  for (let columns = 1; columns <= 256; columns *= 2) {
    const rows = Math.ceil(cells / columns);
    const wide = Math.min(36, width / columns), high = Math.min(30, Math.floor(height / rows));
    const cell = {wide: Math.min(wide, 2 * high), high: Math.min(high, Math.ceil(1.5 * wide))};
    if (cell.wide < 3 || cell.high < 3) continue;
    if (!best || cell.wide * cell.high >= best.wide * best.high) best = {columns, rows, ...cell};
  }
  return best ?? {columns: 256, rows: Math.ceil(cells / 256), wide: width / 256, high: 3};
}

class MemoryMap {
  constructor() {
    this.canvas = byId('map');
    this.pointers = new Map();
    this.listen();
  }

  open(exported) {
    Object.assign(this, {name: exported.name, size: exported.size, page: exported.page_size, offset: 0, length: exported.size,
                         told: null, at: null, device: null, fetching: false, again: false});
    put(byId('map-cell'), '');
  }

  get labels() { return this.canvas.clientWidth > 600 ? 76 : 60; }

  get mostCells() {
    const across = Math.max(8, 2 ** Math.floor(Math.log2((this.canvas.clientWidth - this.labels) / 7)));
    return across * 32;
  }

  // One question at a time; what has changed meanwhile is asked next.
  async fetch() {
    if (this.fetching) { this.again = true; return; }
    if (!this.size || !this.canvas.clientWidth) return;
    this.fetching = true;
    const {name, offset, length} = this;
    try {
      const told = await ask('map', {export: name, offset, length, cells: this.mostCells});
      if (this.name === name) {
        const cells = Math.ceil(told.length / told.cell);
        this.told = {...told, cells, used: decoded(told.used, cells), read: decoded(told.read, cells), written: decoded(told.written, cells)};
        this.draw();
      }
    } catch { /* the stream tells that the server is gone */ }
    this.fetching = false;
    if (this.again) { this.again = false; this.fetch(); }
  }

  look(offset, length) {
    const page = this.page, pages = Math.max(1, Math.min(Math.ceil(this.size / page), Math.round(length / page)));
    const grain = Math.ceil(pages / this.mostCells) * page; // cells keep their borders while one moves
    this.length = Math.min(pages * page, this.size);
    const last = Math.max(0, Math.ceil((this.size - this.length) / page) * page);
    this.offset = Math.max(0, Math.min(last, Math.round(offset / grain) * grain));
    this.length = Math.min(this.length, this.size - this.offset);
    this.drawRange();
    this.fetch();
  }

  zoom(factor, around = this.at ?? this.offset + this.length / 2) {
    const length = Math.max(this.page, Math.min(this.size, this.length / factor));
    this.look(around - (around - this.offset) * length / this.length, length);
  }

  turn(share) { this.look(this.offset + share * this.length, this.length); }

  whole() { this.look(0, this.size); }

  cellAt(x, y) {
    if (!this.told || !this.grid) return null;
    const column = Math.floor((x - this.labels) / this.grid.wide), row = Math.floor(y / this.grid.high), cell = row * this.grid.columns + column;
    return column < 0 || column >= this.grid.columns || cell < 0 || cell >= this.told.cells ? null : cell;
  }

  byteAt(x, y) {
    const cell = this.cellAt(x, y);
    return cell === null ? null : this.told.offset + cell * this.told.cell;
  }

  select(at, asked = true) {
    this.at = at === null ? null : Math.max(0, Math.min(Math.floor((this.size - 1) / this.page) * this.page, at));
    this.device = null;
    this.draw(asked);
    clearTimeout(this.resting);
    if (this.at !== null) this.resting = setTimeout(() => this.askDevices(asked), 250);
  }

  async askDevices(asked) {
    const {at, told} = this;
    if (at === null || !told) return;
    try {
      const {runs, next} = await ask('pages', {export: this.name, offset: at, length: Math.min(told.cell, this.size - at)});
      if (this.at !== at) return;
      const devices = [...new Set(runs.map((run) => run.device).filter(Boolean))];
      this.device = devices.length ? `on ${devices.join(', ')}${next === null ? '' : ' and further'}` : null;
      this.tell(asked);
    } catch { /* then without */ }
  }

  step(cells) {
    const {offset, cell, length} = this.told, {columns} = this.grid;
    const to = this.at === null ? offset : Math.max(0, Math.min(Math.floor((this.size - 1) / cell) * cell, this.at + cells * cell));
    if (to < offset || to >= offset + length) this.look(this.offset + Math.sign(cells) * columns * cell * Math.ceil(Math.abs(cells) / columns), this.length);
    this.select(to);
  }

  press(event) {
    if (!this.told || event.ctrlKey || event.metaKey || event.altKey) return;
    const {columns} = this.grid ?? {columns: 1};
    const act = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowUp: () => this.step(-columns), ArrowDown: () => this.step(columns),
      Home: () => this.select(this.told.offset), End: () => this.select(this.told.offset + (this.told.cells - 1) * this.told.cell),
      '+': () => this.zoom(2), '=': () => this.zoom(2), '-': () => this.zoom(0.5), Enter: () => this.zoom(4),
      PageUp: () => this.turn(-1), PageDown: () => this.turn(1), 0: () => this.whole(), Escape: () => this.select(null),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  listen() {
    const {canvas, pointers} = this;
    canvas.addEventListener('keydown', (event) => this.press(event));
    canvas.addEventListener('wheel', (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5, this.byteAt(event.offsetX, event.offsetY) ?? undefined);
    }, {passive: false});
    canvas.addEventListener('dblclick', (event) => this.zoom(4, this.byteAt(event.offsetX, event.offsetY) ?? undefined));
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
      this.pinch = null;
      this.dragged = {x: event.offsetX, y: event.offsetY, offset: this.offset};
      this.select(this.byteAt(event.offsetX, event.offsetY));
    });
    canvas.addEventListener('pointermove', (event) => {
      if (pointers.has(event.pointerId)) pointers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
      if (pointers.size === 2) this.spread([...pointers.values()]);
      else if (pointers.size === 1) this.drag(event.offsetX, event.offsetY);
      else if (this.told) this.select(this.byteAt(event.offsetX, event.offsetY), false);
    });
    for (const end of ['pointerup', 'pointercancel']) {
      canvas.addEventListener(end, (event) => { pointers.delete(event.pointerId); this.dragged = null; });
    }
    const tools = {'map-left': () => this.turn(-0.5), 'map-right': () => this.turn(0.5), 'map-in': () => this.zoom(2), 'map-out': () => this.zoom(0.5), 'map-all': () => this.whole()};
    for (const [id, act] of Object.entries(tools)) byId(id).addEventListener('click', () => { if (this.told) act(); });
  }

  drag(x, y) {
    if (!this.dragged || !this.told || !this.grid) return;
    const across = (this.dragged.x - x) / this.grid.wide, down = Math.round((this.dragged.y - y) / this.grid.high);
    const offset = this.dragged.offset + Math.round(across + down * this.grid.columns) * this.told.cell;
    if (offset !== this.offset) this.look(offset, this.length);
  }

  spread([one, other]) {
    const distance = Math.hypot(one.x - other.x, one.y - other.y);
    this.pinch ??= distance;
    const factor = distance / this.pinch;
    if (factor > 0.75 && factor < 1.33) return;
    this.pinch = distance;
    this.zoom(factor > 1 ? 1.5 : 1 / 1.5, this.byteAt((one.x + other.x) / 2, (one.y + other.y) / 2) ?? undefined);
  }

  drawRange() {
    const strip = byId('map-strip'), window = strip.firstElementChild;
    window.style.left = `${100 * this.offset / this.size}%`;
    window.style.width = `${100 * this.length / this.size}%`;
    const all = this.length >= this.size;
    const cell = this.told ? `, a cell is ${this.told.cell === this.page ? 'one page of ' : ''}${size(this.told.cell)}` : '';
    put(byId('map-range'), `${all ? `All of ${size(this.size)}` : `${size(this.length)} from ${size(this.offset)} on, of ${size(this.size)}`}${cell}`);
    byId('map-all').disabled = byId('map-out').disabled = all;
    byId('map-in').disabled = this.length <= this.page;
    byId('map-left').disabled = this.offset === 0;
    byId('map-right').disabled = this.offset + this.length >= this.size;
  }

  tell(asked) {
    const {told, at} = this, line = byId('map-cell');
    if (at === null || !told || at < told.offset || at >= told.offset + told.length) {
      return say(line, asked ? '' : this.summary(), false);
    }
    const index = Math.floor((at - told.offset) / told.cell), start = told.offset + index * told.cell;
    const length = Math.min(told.cell, told.offset + told.length - start), share = told.used[index];
    const what = share === 0 ? 'a hole' : share === 100 ? 'used' : `${share} % used`;
    const lately = [told.written[index] && 'written', told.read[index] && 'read'].filter(Boolean).join(' and ');
    say(line, `${told.cell === this.page ? `Page ${grouped(start / this.page)}, ` : ''}${size(length)} at ${size(start)} (offset ${grouped(start)}): ${what}` +
        `${lately ? `, ${lately} in the last second` : ''}${this.device ? `, ${this.device}` : ''}`, asked);
  }

  summary() {
    if (!this.told) return '';
    const holes = this.told.used.reduce((sum, share) => sum + (share === 0), 0);
    return `${grouped(this.told.cells - holes)} of ${plural(this.told.cells, 'cell', 'cells')} have something in them.`;
  }

  draw(asked = false) {
    const {told} = this;
    if (!told) return;
    this.drawRange();
    const grid = this.grid = gridFor(told.cells, this.canvas.clientWidth - this.labels, 330), height = grid.rows * grid.high + 2;
    this.canvas.style.height = `${height}px`;
    const place = drawing(this.canvas, height);
    if (!place) return;
    this.drawCells(place.context, grid, told);
    this.drawOffsets(place.context, grid, told);
    if (this.at !== null && this.at >= told.offset && this.at < told.offset + told.length) {
      const [x, y, wide] = this.placeOf(Math.floor((this.at - told.offset) / told.cell));
      place.context.strokeStyle = ink('ink');
      place.context.lineWidth = 2;
      place.context.strokeRect(x - 1, y - 1, wide + 1, grid.high + 1);
    }
    this.tell(asked);
  }

  placeOf(cell) {
    const column = cell % this.grid.columns, x = Math.round(column * this.grid.wide);
    return [this.labels + x, 1 + Math.floor(cell / this.grid.columns) * this.grid.high, Math.round((column + 1) * this.grid.wide) - x];
  }

  drawCells(context, grid, told) {
    const {high} = grid, gap = Math.min(grid.wide, high) > 5 ? 1 : 0, fills = [ink('hole')];
    for (let share = 1; share <= 100; share++) fills.push(mixed(ink('part'), ink('used'), share / 100));
    const dot = Math.max(2, Math.round(Math.min(grid.wide, high) * 0.38));
    for (let cell = 0; cell < told.cells; cell++) {
      const [x, y, wide] = this.placeOf(cell);
      context.fillStyle = told.written[cell] ? ink('written') : fills[told.used[cell]];
      context.fillRect(x, y, wide - gap, high - gap);
      if (!told.read[cell]) continue;
      context.fillStyle = ink('read');
      context.fillRect(x + Math.round((wide - gap - dot) / 2), y + Math.round((high - gap - dot) / 2), dot, dot);
    }
  }

  drawOffsets(context, {rows, columns, high}, told) {
    const every = Math.ceil(18 / high);
    context.fillStyle = ink('quiet');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let row = 0; row < rows; row += every) {
      context.fillText(size(told.offset + row * columns * told.cell), this.labels - 8, 1 + row * high + high / 2);
    }
  }
}

// --- an opened export ------------------------------------------------------------------------------

const opened = {
  name: null, history: null, ticks: 0, map: null, throughput: null, latency: null,

  get exported() { return state.status?.exports.find((exported) => exported.name === this.name); },

  open(name) {
    Object.assign(this, {name, history: null, ticks: 0, mapped: false});
    put(byId('export-name'), shown(name));
    put(byId('throughput-text'), '');
    put(byId('latency-text'), '');
  },

  // Percentiles of a second cannot be had from counters: what the ticks tell is put right by the server every few seconds.
  takeTick() {
    if (this.name === null || !this.exported) return;
    if (this.map.name !== this.name || !this.mapped) {
      this.map.open(this.exported);
      this.mapped = true;
    }
    this.map.fetch();
    if (this.ticks++ % 5 === 0 || !this.history) this.fetchHistory();
    else this.goOn();
  },

  async fetchHistory() {
    const {name} = this;
    try {
      const history = await ask('history', {export: name});
      if (this.name === name) this.history = history;
      draw();
    } catch { /* the next tick asks again */ }
  },

  goOn() {
    const {history} = this, rates = state.rates.get(this.name), now = Math.floor(state.status.time);
    if (!rates || now <= history.end) return;
    for (; history.end < now; history.end++) {
      history.read_bytes.push(rates.read);
      history.written_bytes.push(rates.written);
      for (const of of ['read_p50', 'read_p99', 'write_p50', 'write_p99']) history[of].push(null);
    }
    for (const values of Object.values(history)) if (Array.isArray(values) && values.length > 600) values.splice(0, values.length - 600);
  },

  draw() {
    const {exported} = this;
    for (const part of byId('export').querySelectorAll('section, dl')) show(part, Boolean(exported));
    show(byId('steering').querySelector('.tools'), state.steering);
    put(byId('steering').querySelector('.quiet'), state.steering ? 'Until the configuration is read again.' : `Not from here: ${state.whyNot}.`);
    if (!exported) return put(byId('export-about'), 'There is no export of this name.');
    this.drawAbout(exported);
    this.drawRequests(exported);
    this.drawConnections(exported);
    if (this.map.name === this.name) this.map.draw();
    if (this.history) this.drawCharts();
    put(byId('set-read-only'), exported.read_only ? 'Let it be written…' : 'Make it read-only…');
  },

  drawAbout(exported) {
    const devices = exported.memory.map((memory) => memory.device).join(', ');
    const {bytes_per_second: bytes, iops} = exported.rates;
    put(byId('export-about'), [exported.description, `${exported.layout} on ${devices}`, `pages of ${size(exported.page_size)}`, exported.provision,
      exported.read_only && 'read-only', exported.keep && 'kept', exported.swap && 'for swap',
      bytes && `at most ${rate(bytes)} for each connection`, iops && `at most ${count(iops)} requests a second for each connection`].filter(Boolean).join(' · '));
    const rates = state.rates.get(exported.name), {inFlight} = totalsOf(exported);
    figures(byId('export-figures'), [
      {label: 'Used', value: exported.used, text: size(exported.used), small: `of ${size(exported.size)}`},
      {label: 'Allocated', value: exported.allocated, text: size(exported.allocated)},
      {label: 'Reading', value: rates?.read, text: rate(rates?.read)},
      {label: 'Writing', value: rates?.written, text: rate(rates?.written)},
      {label: 'Requests/s', value: rates?.requests, text: count(rates?.requests)},
      {label: 'In flight', value: inFlight, text: count(inFlight)},
      {label: 'Held back', value: exported.held_back, text: count(exported.held_back)},
    ]);
  },

  drawCharts() {
    const {history} = this;
    this.throughput.draw([{name: 'read', colour: 'accent', filled: true, values: history.read_bytes},
                          {name: 'written', colour: 'second', filled: true, values: history.written_bytes}], history.end);
    this.latency.draw([{name: 'read median', colour: 'accent', values: history.read_p50}, {name: 'read 99th', colour: 'accent', dashed: true, values: history.read_p99},
                       {name: 'write median', colour: 'second', values: history.write_p50}, {name: 'write 99th', colour: 'second', dashed: true, values: history.write_p99}], history.end);
  },

  drawRequests(exported) {
    keyed(byId('requests').tBodies[0], exported.requests, (of) => of.type, (of) => {
      const row = make('tr', {}, make('th', {scope: 'row', textContent: of.type.replace('_', ' ')}));
      for (let cell = 0; cell < 7; cell++) row.append(make('td', {className: 'number'}, make('data')));
      row.append(make('td'));
      row.dataset.type = of.type;
      return row;
    }, (row, of) => {
      const {latency} = of, cells = row.querySelectorAll('data');
      [[of.requests, grouped], [of.bytes, size], [of.in_flight, grouped], [latency.p50, duration], [latency.p90, duration], [latency.p99, duration], [latency.max, duration]]
        .forEach(([value, format], index) => putNumber(cells[index], value, format(value)));
      put(row.lastChild, Object.entries(of.errors).map(([error, times]) => `${error} ${grouped(times)}`).join(', ') || dash);
    });
  },

  drawConnections(exported) {
    const mine = state.connections.filter((connection) => connection.export === this.name);
    const unlisted = Math.max(0, exported.connections - mine.length);
    put(byId('connections-count'), grouped(exported.connections));
    show(byId('connections').parentElement, mine.length > 0);
    show(byId('connections-none'), mine.length === 0 || unlisted > 0);
    put(byId('connections-none'), mine.length || unlisted ? `${plural(unlisted, 'quieter one is', 'quieter ones are')} not listed.` : 'Nobody is connected.');
    keyed(byId('connections').tBodies[0], mine, (connection) => connection.id, (connection) => this.makeConnection(connection), (row, connection) => {
      const [peer, identity, read, written, flight, since, end] = row.children, rates = state.connectionRates.get(connection.id);
      put(peer, connection.read_only ? `${connection.peer}, reads only` : connection.peer);
      put(identity, connection.identity ?? (connection.tls ? connection.tls.split(',')[0] : dash));
      identity.title = connection.tls ?? 'no TLS';
      putNumber(read.firstChild, rates?.read, rate(rates?.read));
      putNumber(written.firstChild, rates?.written, rate(rates?.written));
      putNumber(flight.firstChild, connection.in_flight, count(connection.in_flight));
      put(since, age(state.status.time - connection.since));
      show(end.firstChild, state.steering);
    });
  },

  makeConnection(connection) {
    const number = () => make('td', {className: 'number'}, make('data'));
    const end = make('button', {textContent: 'End…'}), row = make('tr', {}, make('td'), make('td'), number(), number(), number(), make('td', {className: 'number'}), make('td', {className: 'number'}, end));
    row.dataset.connection = connection.id;
    end.setAttribute('aria-label', `End the connection of ${connection.peer}`);
    end.addEventListener('click', () => told({
      title: 'End this connection?', text: `${connection.peer} is cut off. Most clients then call again, or fail.`, yes: 'End it',
      act: () => steer('connections/end', {id: connection.id}),
    }));
    return row;
  },

  askRates() {
    const {name, exported} = this, {bytes_per_second: bytes, iops, burst} = exported.rates;
    const whole = (label, text) => {
      if (text === '') return null;
      if (!/^[1-9]\d*$/.test(text)) throw new Error(`${label} is a whole number from 1 on, or nothing`);
      return Number(text);
    };
    told({
      title: 'Rates', text: `Of export ${shown(name)}, until its configuration is read again. Nothing: no limit.`, yes: 'Set rates',
      fields: [{label: 'Bytes a second', name: 'bytes', inputMode: 'numeric', value: bytes ?? ''}, {label: 'Requests a second', name: 'iops', inputMode: 'numeric', value: iops ?? ''},
               {label: 'Burst, in seconds', name: 'burst', inputMode: 'decimal', value: burst}],
      act: (values) => steer('rates', {export: name, rates: {bytes_per_second: whole('Bytes a second', values.bytes), iops: whole('Requests a second', values.iops), burst: Number(values.burst)}}),
    });
  },

  askReadOnly() {
    const {name, exported} = this, readOnly = !exported.read_only;
    told({
      title: readOnly ? 'Make it read-only?' : 'Let it be written?', yes: readOnly ? 'Make it read-only' : 'Let it be written',
      text: readOnly ? `Clients that may write export ${shown(name)} are ended.` : `Clients that come from now on may write export ${shown(name)}, as its rules say.`,
      act: () => steer('read-only', {export: name, read_only: readOnly}),
    });
  },
};

// --- events ----------------------------------------------------------------------------------------

const levels = ['trace', 'debug', 'info', 'warning', 'error', 'critical'];

// The stream and /events tell some of them both.
function addEvents(events) {
  const process = state.status?.process.started ?? 0;
  state.eventKeys ??= new Set();
  for (const event of events) {
    const key = `${event.id} ${event.time}`;
    if (state.eventKeys.has(key)) continue;
    state.eventKeys.add(key);
    state.events.push({...event, key, process});
  }
  if (events.length) state.events.sort((one, other) => one.time - other.time);
  for (const old of state.events.splice(0, state.events.length - 1000)) state.eventKeys.delete(old.key);
}

async function fetchEvents() {
  addEvents(await ask('events'));
  draw();
}

function drawEvents() {
  const least = Number(byId('level').value);
  const chosen = state.events.filter((event) => levels.indexOf(event.level) >= least).slice(-200).reverse();
  keyed(byId('events'), chosen, (event) => event.key, (event) => {
    const time = make('time', {dateTime: new Date(event.time * 1000).toISOString(), textContent: clock(event.time), title: new Date(event.time * 1000).toLocaleString()});
    return make('li', {className: event.level}, time, make('span', {className: 'level', textContent: event.level}), make('span', {className: 'text', textContent: event.text}));
  }, () => {});
  show(byId('events'), chosen.length > 0);
  show(byId('events-none'), chosen.length === 0);
}

function listenToEvents() {
  byId('level').addEventListener('change', draw);
  byId('log-level').addEventListener('change', async () => {
    const level = byId('log-level').value;
    if (level) await told({title: 'Change the log?', text: `It tells from level ${level} on, until the server is told otherwise.`, yes: 'Change it', act: () => steer('log-level', {level})});
    byId('log-level').value = '';
  });
}

// --- all of it -------------------------------------------------------------------------------------

let drawingSoon = false;

function draw() {
  if (drawingSoon) return;
  drawingSoon = true;
  requestAnimationFrame(() => { drawingSoon = false; drawNow(); });
}

function drawNow() {
  const {status} = state;
  if (!status) return put(byId('state'), state.goneSince === null ? byId('state').textContent : 'does not answer');
  drawHeader(status);
  if (opened.name === null) drawTotals(status);
  drawProgress(status);
  drawEvents();
  show(byId('log-level-label'), state.steering);
  if (opened.name !== null) return opened.draw();
  drawDevices(status);
  drawExports(status);
}

function route(event) {
  if (location.hash && !location.hash.startsWith('#/')) return; // the link that skips
  const match = location.hash.match(/^#\/export\/(.*)$/);
  show(byId('overview'), !match);
  show(byId('totals'), !match);
  show(byId('export'), Boolean(match));
  opened.name = null;
  if (match) {
    let name = match[1];
    try { name = decodeURIComponent(name); } catch { /* as it is */ }
    opened.open(name);
    if (state.status) opened.takeTick();
  }
  document.title = match ? `${shown(opened.name)} ${dash} gpunbd` : 'gpunbd';
  if (event) {
    scrollTo(0, 0);
    (match ? byId('export-name') : byId('main')).focus({preventScroll: true});
  }
  draw();
}

keepTheme();
opened.map = new MemoryMap();
opened.throughput = new Chart('throughput', linear, rate);
opened.latency = new Chart('latency', logarithmic, duration);
listenToList();
listenToEvents();
byId('set-rates').addEventListener('click', () => opened.askRates());
byId('set-read-only').addEventListener('click', () => opened.askReadOnly());
addEventListener('hashchange', route);
addEventListener('resize', () => { draw(); if (opened.name !== null) opened.map.fetch(); });
route();
follow();
