// The table of exports. There may be thousands, so only the visible rows exist.
'use strict';

const list = {key: 'name', down: false, shown: [], rowHeight: 0};

const sortValue = {
  name: (exported) => exported.name,
  size: (exported) => exported.size,
  used: (exported) => exported.used,
  read: (exported) => state.rates.get(exported.name)?.read ?? 0,
  written: (exported) => state.rates.get(exported.name)?.written ?? 0,
  errors: (exported) => totalsOf(exported).errors,
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
  const labelled = (label, name = 'number') => { const made = cell(name, make('data')); made.dataset.label = label; return made; };
  const link = make('a', {href: linkTo(exported.name)}), row = make('tr', {className: 'row'});
  row.append(cell('name', link, make('span', {className: 'tag', hidden: true})), cell('wide', make('div', {className: 'gauge'}, make('span', {}, make('i')), make('data'))),
             labelled('of'), labelled('Read'), labelled('Written'), cell('trend', make('canvas')), labelled('Errors', 'number errors'), labelled('Clients'));
  row.querySelector('canvas').setAttribute('aria-hidden', 'true');
  row.addEventListener('click', (event) => { if (event.target !== link) link.click(); });
  return row;
}

// Scrolling redraws rows whose values have not changed.
function fillRow(row, {exported, index}) {
  if (row.data === exported && row.index === index) return;
  Object.assign(row, {data: exported, index});
  const [name, used, whole, read, written, trend, errors, clients] = row.children, rates = state.rates.get(exported.name);
  row.dataset.export = exported.name;
  row.setAttribute('aria-rowindex', index + 2);
  put(name.firstChild, shown(exported.name));
  name.title = exported.description ? `${exported.name}: ${exported.description}` : exported.name;
  const tag = [exported.clone_of && `${exported.snapshot ? 'snapshot' : 'clone'} of ${shown(exported.clone_of)}`, ...exported.templates.map((each) => `base of ${shown(each.name)}: ${count(each.clones)} of ${count(each.max)} clones`), ...exported.origins.map((each) => `cache of ${shown(each.path)}`), exported.read_only && 'read-only', exported.keep && 'kept', exported.swap && 'swap'].filter(Boolean).join(', ');
  show(name.lastChild, tag !== '');
  put(name.lastChild, tag);
  name.lastChild.title = tag;
  used.querySelector('i').style.width = `${Math.min(100, 100 * exported.used / (exported.size || 1))}%`;
  putNumber(used.querySelector('data'), exported.used, size(exported.used));
  putNumber(whole.firstChild, exported.size, size(exported.size));
  for (const [cell, value] of [[read, rates?.read], [written, rates?.written]]) {
    putNumber(cell.firstChild, value, rate(value));
    cell.firstChild.className = value ? '' : 'zero';
  }
  const failed = totalsOf(exported).errors;
  putNumber(errors.firstChild, failed, count(failed));
  errors.firstChild.className = failed === 0 ? 'zero' : failsRequests(exported) ? 'error' : '';
  putNumber(clients.firstChild, exported.connections, exported.stalled ? `${count(exported.connections)}, ${count(exported.stalled)} stalled` : count(exported.connections));
  clients.firstChild.className = exported.stalled ? 'error' : '';
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

function drawExports(status) {
  const scroll = byId('exports-scroll'), body = byId('exports').tBodies[0];
  list.shown = chosenExports(status);
  list.rowHeight = parseFloat(getComputedStyle(byId('exports')).getPropertyValue('--row'));
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
  show(byId('create-export'), state.allowsChanges);
  put(byId('exports-count'), all === status.exports.length ? grouped(all) : `${grouped(all)} of ${grouped(status.exports.length)}`);
  show(byId('exports-none'), all === 0);
  put(byId('exports-none'), status.exports.length ? 'No name or description contains this text.' : 'There are no exports yet.');
  for (const head of byId('exports').tHead.querySelectorAll('[data-key]')) {
    if (head.dataset.key === list.key) head.setAttribute('aria-sort', list.down ? 'descending' : 'ascending');
    else head.removeAttribute('aria-sort');
  }
}

function makeSpace() {
  const row = make('tr', {className: 'space'}, make('td', {colSpan: 8}));
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

function createExport() {
  const {exports} = state.status;
  const devices = [...new Set(exports.flatMap(({memory}) => memory.filter(({home}) => !home).map(({device}) => device)))].sort(); // without spill memory
  confirmChange({
    title: 'Create an export', text: 'It lasts until the server ends, or, if it is created at each start, until it is removed.', yes: 'Create export',
    fields: [{label: 'Name', name: 'name', required: true},
             {label: 'Contents', name: 'source', options: [['', 'empty'], ...exports.filter(({name}) => name).map(({name}) => [name, `a clone of ${name}`])]},
             {label: 'Size, for example 8G', name: 'size', required: true, unless: 'source'},
             {label: 'Devices; none: chosen by the server', name: 'devices', choices: devices, unless: 'source'},
             {label: 'Other devices, which no export uses yet, separated by spaces', name: 'others', unless: 'source'},
             {label: 'Layout', name: 'layout', options: [['linear', 'linear: one device after the other'], ['stripe', 'stripe: across all devices']], unless: 'source'},
             {label: 'Memory', name: 'provision', options: [['thin', 'thin: allocated when it is written'], ['full', 'full: allocated now']], unless: 'source'},
             {label: 'Create it again at each start of the server', name: 'persist', type: 'checkbox'}],
    act: ({name, source, size: bytes, devices: known, others, layout, provision, persist}) => {
      const all = [...known, ...others.split(/[\s,]+/).filter(Boolean)];
      const empty = {size: bytes, layout, provision, ...(all.length && {devices: all})};
      return change('exports/create', {export: {name, ...(source ? {clone_of: source} : empty)}, persist});
    },
  });
}

function listenToList() {
  byId('create-export').addEventListener('click', createExport);
  byId('search').addEventListener('input', () => { byId('exports-scroll').scrollTop = 0; draw(); });
  byId('search').addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'Enter') { event.preventDefault(); focusExport(0); }
  });
  let soon = false;
  byId('exports-scroll').addEventListener('scroll', () => {
    if (soon || !state.status) return;
    soon = true;
    requestAnimationFrame(() => { soon = false; drawExports(state.status); });
  }, {passive: true});
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
    if (event.key !== '/' || event.target.matches('input, select') || byId('dialog').open || byId('overview').hidden) return;
    event.preventDefault();
    byId('search').focus();
  });
}
