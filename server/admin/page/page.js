// Selects the view, draws it, and starts the page. All scripts share one namespace, so this script is loaded last.
'use strict';

let drawingSoon = false;

function draw() {
  if (drawingSoon) return;
  drawingSoon = true;
  requestAnimationFrame(() => { drawingSoon = false; drawNow(); });
}

function drawNow() {
  const {status} = state;
  drawState(status);
  if (!status) return;
  drawHealth(status);
  drawHeader(status);
  if (opened.name === null) drawTotals(status);
  drawProgress(status);
  drawEvents();
  show(byId('log-level-label'), state.allowsChanges);
  if (opened.name !== null) return opened.draw();
  drawDevices(status);
  drawExports(status);
  drawConnectionCounts(status);
}

function route(event) {
  if (location.hash && !location.hash.startsWith('#/')) return; // the skip link
  const match = location.hash.match(/^#\/export\/(.*)$/);
  show(byId('overview'), !match);
  show(byId('totals'), !match);
  show(byId('export'), Boolean(match));
  opened.name = null;
  if (match) {
    let name = match[1];
    try { name = decodeURIComponent(name); } catch { /* not percent-encoded: use the text */ }
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
opened.longest = new Chart('longest', logarithmic, duration);
listenToList();
listenToEvents();
byId('minutes').value = String(opened.minutes);
byId('minutes').addEventListener('change', () => opened.setMinutes(Number(byId('minutes').value)));
byId('set-rates').addEventListener('click', () => opened.editRates());
byId('set-read-only').addEventListener('click', () => opened.changeReadOnly());
byId('resize-export').addEventListener('click', () => opened.resize());
byId('rename-export').addEventListener('click', () => opened.rename());
byId('snapshot-export').addEventListener('click', () => opened.copy('snapshot'));
byId('clone-export').addEventListener('click', () => opened.copy('clone'));
byId('remove-export').addEventListener('click', () => opened.remove());
addEventListener('hashchange', route);
addEventListener('resize', () => { draw(); if (opened.name !== null) opened.map.fetch(); });
route();
follow();
