// The values of the last tick, and the rates calculated from the last two ticks.
'use strict';

const state = {
  status: null,            // of the last tick
  rates: new Map(),        // by export name: bytes and requests per second
  trends: new Map(),       // by export name: bytes in each second of the last minute
  connections: [],
  connectionsLeftOut: 0,
  connectionRates: new Map(),
  cpu: undefined,
  events: [],
  eventKeys: new Set(),
  unreachableSince: null,
  failing: new Map(),      // by export name: the uptime of the server at the last failed request
  allowsChanges: true,
  whyNot: '',
};

function totalsOf(exported) {
  const total = {read: 0, written: 0, requests: 0, inFlight: 0, errors: 0};
  for (const of of exported.requests) {
    total.requests += of.requests;
    total.inFlight += of.in_flight;
    total.errors += countOf(of.errors);
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
  state.failing.clear();
  state.connectionRates.clear();
  state.connections = [];
  state.cpu = undefined;
  state.status = null;
  opened.history = null;
}

function take(tick) {
  if (isRestart(tick.status)) {
    notice('restarted', `The server was restarted at ${clock(tick.status.process.started)}: its counters restart at 0.`);
    addEvents([{id: `restart ${tick.status.process.started}`, time: tick.status.process.started, level: 'info',
                text: 'the server was restarted', fields: {}}]);
    forget();
  }
  const before = state.status, seconds = before ? tick.status.process.uptime - before.process.uptime : 0;
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
    const now = totalsOf(exported), then = totalsOf(known.get(exported.name)), rates = perSecond(now, then, seconds);
    if (now.errors > then.errors) state.failing.set(exported.name, tick.status.process.uptime);
    state.rates.set(exported.name, rates);
    const trend = state.trends.get(exported.name) ?? [];
    trend.push(rates.read + rates.written);
    if (trend.length > 60) trend.shift();
    state.trends.set(exported.name, trend);
  }
  const previous = new Map(state.connections.map((connection) => [connection.id, connection]));
  state.connectionRates = new Map(tick.connections.filter(({id}) => previous.has(id))
    .map((connection) => [connection.id, perSecond(connection, previous.get(connection.id), seconds)]));
}

// Fetches the last minute of each export, including the time before the page was opened.
async function fetchTrends() {
  const {exports} = await get('trends');
  for (const {export: name, bytes} of exports) {
    const known = state.trends.get(name) ?? [];
    if (bytes.length > known.length) state.trends.set(name, bytes);
  }
  draw();
}

// Fetches whether this address permits changes, and the reason if it does not.
async function fetchAccess() {
  const {steering: allowsChanges, why_not: whyNot} = await get('access');
  Object.assign(state, {allowsChanges, whyNot: whyNot ?? ''});
  draw();
}

// An export fails requests until a minute after the last failed one.
function failsRequests(exported) {
  return state.status.process.uptime - (state.failing.get(exported.name) ?? -Infinity) < 60;
}

// The problems of the server, in words; empty if it is healthy.
function problemsOf(status) {
  const failedDevices = status.devices.filter((device) => device.failed).length;
  const failing = status.exports.filter(failsRequests).length;
  const stalled = status.exports.reduce((total, exported) => total + exported.stalled, 0);
  return [failedDevices && `${plural(failedDevices, 'device has', 'devices have')} failed`,
          failing && plural(failing, 'export fails requests', 'exports fail requests'),
          stalled && `${plural(stalled, 'client', 'clients')} stalled`].filter(Boolean);
}
