// The state and the totals of the server.
'use strict';

function drawState(status) {
  const unreachable = state.unreachableSince !== null;
  if (!unreachable && !status) return; // no tick has arrived yet
  byId('state').dataset.state = unreachable ? 'unreachable' : status.process.state;
  put(byId('state'), unreachable ? 'does not answer' : status.process.state);
  document.documentElement.classList.toggle('old', unreachable);
}

function drawHealth(status) {
  const line = byId('health'), unreachable = state.unreachableSince !== null, problems = unreachable ? [] : problemsOf(status);
  line.dataset.health = unreachable ? 'unknown' : problems.length ? 'bad' : 'good';
  put(line, unreachable ? 'Health: unknown, the server does not answer' : problems.length ? problems.join(', ') : 'healthy');
}

function drawHeader(status) {
  const {process} = status;
  const version = process.commit ? `${process.version} (${process.commit})` : process.version;
  put(byId('process'), `${version}, ${process.build} · pid ${process.pid} · up ${age(process.uptime)}`);
}

function stalledText(exports) {
  const stalled = exports.reduce((total, exported) => total + exported.stalled, 0);
  return stalled ? `${grouped(stalled)} stalled` : '';
}

function drawTotals(status) {
  const sum = (of) => state.rates.size ? [...state.rates.values()].reduce((total, rates) => total + rates[of], 0) : undefined;
  const used = status.devices.reduce((total, device) => total + device.used, 0);
  const offered = status.exports.reduce((total, exported) => total + exported.size, 0);
  const failing = status.exports.filter(failsRequests).length;
  const errors = status.exports.reduce((total, exported) => total + totalsOf(exported).errors, 0);
  const {process} = status;
  figures(byId('totals'), [
    {label: 'Reading', value: sum('read'), text: rate(sum('read'))},
    {label: 'Writing', value: sum('written'), text: rate(sum('written'))},
    {label: 'Requests/s', value: sum('requests'), text: count(sum('requests'))},
    {label: 'Connections', value: status.connections, text: count(status.connections), bad: stalledText(status.exports)},
    {label: 'Failed requests', value: errors, text: count(errors), bad: failing && `${plural(failing, 'export', 'exports')} in the last minute`},
    {label: 'Memory used', value: used, text: size(used), small: `of ${size(offered)} exported`},
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
