// The view of one export: its map, charts, requests and connections, and the changes that a user may make.
'use strict';

const opened = {
  name: null, history: null, ticks: 0, map: null, throughput: null, latency: null, longest: null, minutes: 10,

  get exported() { return state.status?.exports.find((exported) => exported.name === this.name); },

  open(name) {
    Object.assign(this, {name, history: null, ticks: 0, mapped: false});
    put(byId('export-name'), shown(name));
    put(byId('throughput-text'), '');
    put(byId('latency-text'), '');
    put(byId('longest-text'), '');
  },

  setMinutes(minutes) {
    Object.assign(this, {minutes, history: null});
    if (this.name !== null) this.fetchHistory();
  },

  // Ticks extend the history. It is fetched again every few seconds, because a tick may be missed.
  takeTick() {
    if (this.name === null || !this.exported) return;
    if (this.map.name !== this.name || !this.mapped) {
      this.map.open(this.exported);
      this.mapped = true;
    }
    this.map.fetch();
    if (this.ticks++ % 5 === 0 || !this.history) this.fetchHistory();
    else this.continueHistory();
  },

  async fetchHistory() {
    const {name} = this;
    try {
      const {minutes} = this, history = await get('history', {export: name, seconds: 60 * minutes});
      if (this.name === name && this.minutes === minutes) this.history = history;
      draw();
    } catch { /* the next tick tries again */ }
  },

  continueHistory() {
    const {history} = this, rates = state.rates.get(this.name), now = Math.floor(state.status.time);
    if (history.step !== 1 || !rates || now <= history.end) return;
    if (now > history.end + 1) return void this.fetchHistory(); // the rates are those of the last second only
    history.end = now;
    history.read_bytes.push(rates.read);
    history.written_bytes.push(rates.written);
    const {longest, ...latencies} = this.exported.last_second, waits = history.longest_waits;
    for (const [of, latency] of Object.entries(latencies)) history[of].push(latency);
    history.longest.push(longest.seconds);
    for (const {stage, seconds} of longest.waits) waits[stage].push(seconds);
    const most = 60 * this.minutes;
    for (const values of [...Object.values(history), ...Object.values(waits)]) if (Array.isArray(values) && values.length > most) values.splice(0, values.length - most);
  },

  draw() {
    const {exported} = this;
    for (const part of byId('export').querySelectorAll('section, dl')) show(part, Boolean(exported));
    show(byId('changes').querySelector('.tools'), state.allowsChanges);
    put(byId('changes').querySelector('.quiet'), state.allowsChanges ? 'Rates and read-only last until the next reload of the configuration.' : `Changes are not allowed: ${state.whyNot}.`);
    if (!exported) return put(byId('export-about'), 'No export has this name.');
    this.drawAbout(exported);
    this.drawRequests(exported);
    this.drawConnections(exported);
    if (this.map.name === this.name) this.map.draw();
    if (this.history) this.drawCharts();
    for (const id of ['rename-export', 'remove-export']) show(byId(id), exported.run_time);
    for (const id of ['snapshot-export', 'clone-export']) show(byId(id), this.name !== '');
    show(byId('set-read-only'), !exported.snapshot && !exported.origins.length);
    put(byId('set-read-only'), exported.read_only ? 'Make writable…' : 'Make read-only…');
  },

  drawAbout(exported) {
    const devices = exported.memory.map((memory) => memory.device).join(', ');
    const limits = (rates, of) => [rates.bytes_per_second && `at most ${rate(rates.bytes_per_second)} ${of}`, rates.iops && `at most ${count(rates.iops)} requests per second ${of}`];
    put(byId('export-about'), [exported.description, `${exported.layout} on ${devices}`, `pages of ${size(exported.page_size)}`, exported.provision,
      exported.read_only && 'read-only', exported.keep && 'kept', exported.swap && 'for swap',
      ...limits(exported.rates, 'for all clients together'), ...limits(exported.rates_per_peer, 'for each client')].filter(Boolean).join(' · '));
    const rates = state.rates.get(exported.name), {inFlight, errors} = totalsOf(exported), kinds = {};
    for (const of of exported.requests) for (const [kind, times] of Object.entries(of.errors)) kinds[kind] = (kinds[kind] ?? 0) + times;
    figures(byId('export-figures'), [
      {label: 'Used', value: exported.used, text: size(exported.used), small: `of ${size(exported.size)}`},
      {label: 'Allocated', value: exported.allocated, text: size(exported.allocated)},
      {label: 'Reading', value: rates?.read, text: rate(rates?.read)},
      {label: 'Writing', value: rates?.written, text: rate(rates?.written)},
      {label: 'Requests/s', value: rates?.requests, text: count(rates?.requests)},
      {label: 'In flight', value: inFlight, text: count(inFlight)},
      {label: 'Delayed', value: exported.held_back, text: count(exported.held_back)},
      {label: 'Failed', value: errors, text: count(errors), small: inWords(kinds), bad: failsRequests(exported) && `${inWords(kinds)}, in the last minute`},
      ...exported.origins.flatMap((origin) => origin.requests).map((of) => ({
        label: `Origin: ${of.operation}`, value: of.p50, text: duration(of.p50), small: `median; 99th ${duration(of.p99)}, longest ${duration(of.longest)}`})),
    ]);
  },

  drawCharts() {
    const {history} = this, span = {end: history.end, step: history.step, minutes: this.minutes};
    const perSecond = (values) => history.step === 1 ? values : values.map((value) => value / history.step);
    this.throughput.draw([{name: 'read', colour: 'accent', filled: true, values: perSecond(history.read_bytes)},
                          {name: 'written', colour: 'second', filled: true, values: perSecond(history.written_bytes)}], span);
    this.latency.draw([{name: 'read median', colour: 'accent', values: history.read_p50}, {name: 'read 99th', colour: 'accent', dashed: true, values: history.read_p99},
                       {name: 'write median', colour: 'second', values: history.write_p50}, {name: 'write 99th', colour: 'second', dashed: true, values: history.write_p99}], span);
    const stages = {queue: 'others', payload: 'used', memory: 'second', device: 'bad', socket: 'bar-next', worker: 'quiet'};
    this.longest.draw([{name: 'total', colour: 'accent', values: history.longest},
                       ...Object.entries(stages).map(([name, colour]) => ({name, colour, dashed: true, values: history.longest_waits[name]}))], span);
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
      put(row.lastChild, inWords(of.errors) || dash);
    });
  },

  drawConnections(exported) {
    const mine = state.connections.filter((connection) => connection.export === this.name);
    const unlisted = Math.max(0, exported.connections - mine.length);
    put(byId('connections-count'), grouped(exported.connections));
    show(byId('connections').parentElement, mine.length > 0);
    show(byId('connections-none'), mine.length === 0 || unlisted > 0);
    put(byId('connections-none'), mine.length || unlisted ? `${plural(unlisted, 'less active connection is', 'less active connections are')} not listed.` : 'No clients are connected.');
    keyed(byId('connections').tBodies[0], mine, (connection) => connection.id, (connection) => this.makeConnection(connection), (row, connection) => {
      const [peer, identity, read, written, flight, errors, lasted, end] = row.children, rates = state.connectionRates.get(connection.id);
      put(peer, [connection.peer, connection.read_only && 'read-only', connection.stalled && `stalled for ${age(connection.stalled)}`].filter(Boolean).join(', '));
      peer.className = connection.stalled ? 'error' : '';
      peer.title = connection.stalled ? 'The client does not read its replies.' : '';
      put(identity, connection.identity ?? (connection.tls ? connection.tls.split(',')[0] : dash));
      identity.title = connection.tls ?? 'no TLS';
      putNumber(read.firstChild, rates?.read, rate(rates?.read));
      putNumber(written.firstChild, rates?.written, rate(rates?.written));
      putNumber(flight.firstChild, connection.in_flight, count(connection.in_flight));
      putNumber(errors.firstChild, connection.errors, count(connection.errors));
      put(lasted, age(connection.age));
      show(end.firstChild, state.allowsChanges);
    });
  },

  makeConnection(connection) {
    const number = () => make('td', {className: 'number'}, make('data'));
    const close = make('button', {textContent: 'Close…'}), row = make('tr', {}, make('td'), make('td'), number(), number(), number(), number(), make('td', {className: 'number'}), make('td', {className: 'number'}, close));
    row.dataset.connection = connection.id;
    close.setAttribute('aria-label', `Close the connection of ${connection.peer}`);
    close.addEventListener('click', () => confirmChange({
      title: 'Close this connection?', text: `Disconnects ${connection.peer}. Most clients reconnect or report an error.`, yes: 'Close connection',
      act: () => change('connections/end', {id: connection.id}),
    }));
    return row;
  },

  editRates() {
    const {name, exported} = this, {bytes_per_second: bytes, iops, burst} = exported.rates;
    const given = (text) => text === '' ? null : text; // the server parses it as the configuration does
    confirmChange({
      title: 'Set rates', text: `Limits of export ${shown(name)} for all of its clients together, until the next reload of the configuration. Leave a field empty for no limit.`, yes: 'Set rates',
      fields: [{label: 'Bytes per second, for example 10M', name: 'bytes', value: bytes === null ? '' : sizeText(bytes)}, {label: 'Requests per second', name: 'iops', inputMode: 'numeric', value: iops ?? ''},
               {label: 'Burst, in seconds', name: 'burst', inputMode: 'numeric', value: burst}],
      act: (values) => change('rates', {export: name, rates: {bytes_per_second: given(values.bytes), iops: given(values.iops), burst: given(values.burst)}}),
    });
  },

  changeReadOnly() {
    const {name, exported} = this, readOnly = !exported.read_only;
    confirmChange({
      title: readOnly ? 'Make the export read-only?' : 'Make the export writable?', yes: readOnly ? 'Make read-only' : 'Make writable',
      text: readOnly ? `Disconnects the clients that may write export ${shown(name)}.` : `New clients may write export ${shown(name)} if its access rules permit it.`,
      act: () => change('read-only', {export: name, read_only: readOnly}),
    });
  },

  resize() {
    const {name, exported} = this;
    confirmChange({
      title: 'Resize the export', text: `Clients of export ${shown(name)} see its new size when they connect again.`, yes: 'Resize',
      fields: [{label: 'Size, for example 16G', name: 'size', value: sizeText(exported.size), required: true},
               {label: 'Drop data beyond a smaller size', name: 'discard', type: 'checkbox'},
               {label: 'Disconnect clients now', name: 'reconnect', type: 'checkbox'}],
      act: ({size: bytes, discard, reconnect}) => change('exports/resize', {name, size: bytes, discard, reconnect}),
    });
  },

  rename() {
    const {name} = this;
    confirmChange({
      title: 'Rename the export', text: `Clients of export ${shown(name)} stay connected. Later ones open it by its new name.`, yes: 'Rename',
      fields: [{label: 'Name', name: 'name', value: name, required: true}],
      act: async ({name: other}) => {
        const done = await change('exports/rename', {name, new_name: other});
        location.hash = linkTo(other);
        return done;
      },
    });
  },

  copy(kind) {
    const {name} = this;
    confirmChange({
      title: kind === 'snapshot' ? 'Take a snapshot' : 'Clone the export', yes: kind === 'snapshot' ? 'Take snapshot' : 'Clone',
      text: `Creates a ${kind === 'snapshot' ? 'read-only' : 'writable'} export with the contents that ${shown(name)} has at this instant. Both share memory until one of them is written.`,
      fields: [{label: 'Name', name: 'name', required: true}],
      act: ({name: other}) => change(`exports/${kind}`, {source: name, name: other}),
    });
  },

  remove() {
    const {name, exported} = this, force = exported.connections > 0;
    confirmChange({
      title: 'Remove the export?', yes: 'Remove export',
      text: `${force ? `Disconnects ${count(exported.connections)} clients of export ${shown(name)}, and removes it` : `Removes export ${shown(name)}`} and its contents.`,
      fields: exported.keep ? [{label: 'Keep its contents for the time of keeping.grace', name: 'keep', type: 'checkbox'}] : [],
      act: ({keep = false}) => change('exports/remove', {name, force, keep_contents: keep}),
    });
  },
};
