// The devices: use of their memory, and statistics of copies.
'use strict';

// The segments of a device's memory bar, from left to right.
function partsOf(device, status) {
  const mine = status.exports.flatMap((exported) => {
    const bytes = exported.memory.filter((memory) => memory.device === device.id).reduce((sum, memory) => sum + memory.allocated, 0);
    return bytes ? [{kind: 'in-use', name: shown(exported.name), bytes}] : [];
  }).sort((one, other) => other.bytes - one.bytes);
  const parts = mine.slice(0, 24), rest = mine.slice(24);
  const bytesOf = (some) => some.reduce((sum, part) => sum + part.bytes, 0);
  if (rest.length) parts.push({kind: 'in-use', name: `${rest.length} more exports`, bytes: bytesOf(rest)});
  const unexported = status.contents.reduce((sum, contents) => sum + contents.memory.filter((memory) => memory.device === device.id).reduce((part, memory) => part + memory.allocated, 0), 0);
  if (unexported) parts.push({kind: 'in-use', name: 'contents without an export', bytes: unexported});
  const ready = device.allocated - bytesOf(mine) - unexported;
  if (ready > 0) parts.push({kind: 'in-use', name: 'allocated ahead', bytes: ready});
  if (device.withheld) parts.push({kind: 'reserve', name: 'given back', bytes: device.withheld});
  const taken = Math.max(0, device.total - device.allocated - device.available - device.withheld);
  const reserve = Math.min(device.reserve, taken);
  return [...parts, {kind: 'reserve', name: 'reserve', bytes: reserve}, {kind: 'others', name: 'others', bytes: taken - reserve},
          {kind: 'free', name: 'free', bytes: device.available}];
}

function drawDevices(status) {
  const many = status.devices.length > 3;
  byId('devices').classList.toggle('many', many);
  keyed(byId('devices'), status.devices, (device) => device.id, (first) => {
    const bar = make('div', {className: 'bar'});
    bar.setAttribute('role', 'img');
    return make('li', {className: 'device'}, make('div', {className: 'device-head'}, make('span', {}, make('b'), ' ', make('span', {className: 'quiet'})), make('span', {className: 'quiet'})),
                bar, make('p', {className: 'parts'}), makeReclaim(first), make('ul', {className: 'claims plain'}), makeCopies());
  }, (item, device) => {
    const [head, bar, list, reclaim, claims, copies] = item.children, parts = partsOf(device, status);
    item.dataset.device = device.id;
    put(head.querySelector('b'), device.id);
    put(head.querySelector('.quiet'), device.name === device.id ? '' : device.name);
    put(head.lastChild, device.failed ? 'failed: what only it has is EIO' : `${size(device.allocated)} of ${size(device.total)}${device.spilled ? `; ${size(device.spilled)} moved elsewhere` : ''}${device.others_compute ? '; other programs compute there' : ''}`);
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
    show(reclaim, state.allowsChanges && device.reclaimable);
    show(reclaim.lastChild, device.limit !== null);
    drawClaims(claims, device);
    drawCopies(copies, device);
  });
}

// The requests for memory of the device that are in effect.
function drawClaims(list, device) {
  show(list, device.claims.length > 0);
  keyed(list, device.claims, (claim) => claim.id, ({id, owner}) => {
    const end = make('button', {textContent: 'End…'});
    end.addEventListener('click', () => confirmChange({
      title: `End claim ${id}?`, text: `Lets the exports use the memory of ${device.id} that ${owner} asked for, and moves pages back. Other claims stay.`, yes: 'End claim',
      act: () => reclaim('reclaim/end', {device: device.id, claim: id}),
    }));
    return make('li', {}, make('span'), ' ', end);
  }, (item, claim) => {
    const asked = claim.asked === null ? 'all' : size(claim.asked), until = claim.ends_in === null ? '' : `, for ${age(claim.ends_in)} more`;
    put(item.firstChild, `Claim ${claim.id}: ${size(claim.bytes)} given back, ${asked} asked, by ${claim.owner} ${age(claim.age)} ago${until}`);
    show(item.lastChild, state.allowsChanges);
  });
}

function makeReclaim({id}) {
  const begin = make('button', {textContent: 'Give memory back…'}), end = make('button', {textContent: 'Use it again…'});
  begin.addEventListener('click', () => confirmChange({
    title: `Give memory of ${id} back?`, yes: 'Give back',
    text: 'Moves the pages that were used least to spill memory while clients use them, so that other programs can have the memory. Exports do not use it again before the end.',
    fields: [{label: 'How much, for example 4G; empty for all', name: 'bytes'}, {label: 'For how many seconds; empty until you end it', name: 'seconds', inputMode: 'numeric'}],
    act: (values) => reclaim('reclaim', {device: id, bytes: values.bytes || null, seconds: values.seconds || null}),
  }));
  end.addEventListener('click', () => confirmChange({
    title: `Use the memory of ${id} again?`, text: 'Ends all claims, and moves pages back as far as there is memory.', yes: 'Use again', act: () => reclaim('reclaim/end', {device: id, claim: null}),
  }));
  return make('p', {className: 'tools'}, begin, end);
}

async function reclaim(path, body) {
  const [{device, wanted, released, moved, why_not: whyNot}] = (await post(path, body, 3600000)).reclaimed;
  const given = wanted ? `gave back ${size(released)} of ${size(wanted)}` : `moved ${size(moved.reduce((sum, {bytes}) => sum + bytes, 0))} back`;
  if (whyNot) throw new Error(`${device} ${given}; the rest stays: ${whyNot}`);
  return `${device} ${given}`;
}

function makeCopies() {
  const heading = (textContent, className = '') => make('th', {scope: 'col', textContent, className});
  const head = make('thead', {}, make('tr', {}, heading('Path'), heading('Direction'), heading('Copies', 'number'), heading('Bytes', 'number')));
  return make('details', {className: 'copies'}, make('summary', {textContent: 'Copies'}), make('table', {}, head, make('tbody')), make('p', {className: 'staging quiet'}));
}

function drawCopies(details, device) {
  const [, table, staging] = details.children;
  keyed(table.tBodies[0], device.copies, (way) => `${way.path} ${way.direction}`, (way) => {
    const cell = () => make('td', {className: 'number'}, make('data'));
    return make('tr', {}, make('th', {scope: 'row', textContent: way.path}), make('td', {textContent: way.direction}), cell(), cell());
  }, (row, way) => {
    const [copies, bytes] = row.querySelectorAll('data');
    putNumber(copies, way.copies, grouped(way.copies));
    putNumber(bytes, way.bytes, size(way.bytes));
  });
  const waits = device.staging_waits ? `${plural(device.staging_waits, 'wait', 'waits')}` : 'no waits';
  put(staging, [device.staging && `Staging memory: ${size(device.staging_used)} of ${size(device.staging)} in use, ${waits}`,
             device.mapped && `${size(device.mapped)} mapped for the CPU`, device.failures && `${plural(device.failures, 'copy', 'copies')} failed`,
             device.competition_noticed && `other programs detected ${plural(device.competition_noticed, 'time', 'times')}`,
             device.revocable && `${size(device.yielded)} of ${size(device.revocable)} revocable memory are accessed by the CPU, since another program takes memory`,
             device.moved_out && `${size(device.moved_out)} moved to spill memory, ${size(device.moved_back)} moved back`,
             device.not_reclaimed && `${size(device.not_reclaimed)} could not be given back`].filter(Boolean).join(' \u00b7 '));
}

// Lists the largest exports by name, and the others in one item.
function drawParts(list, parts, most) {
  const mine = parts.filter((part) => part.kind === 'in-use'), named = mine.slice(0, most), rest = mine.slice(most);
  if (rest.length) named.push({kind: 'in-use', name: 'smaller ones', bytes: rest.reduce((sum, part) => sum + part.bytes, 0)});
  keyed(list, [...named, ...parts.filter((part) => part.kind !== 'in-use')], (part) => `${part.kind} ${part.name}`,
        (part) => make('span', {}, make('i', {className: `swatch ${part.kind}`}), `${part.name} `, make('b', {}, make('data'))), (item, part) => {
          item.dataset.part = part.kind;
          item.firstChild.classList.toggle('next', named.indexOf(part) % 2 === 1); // as its segment
          putNumber(item.querySelector('data'), part.bytes, size(part.bytes));
        });
}
