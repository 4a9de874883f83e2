// The lines of the server's log.
'use strict';

const levels = ['trace', 'debug', 'info', 'warning', 'error', 'critical'];

// Both the stream and /events return the most recent events, so duplicates are dropped.
function addEvents(events) {
  for (const event of events) {
    const key = `${event.id} ${event.time}`;
    if (state.eventKeys.has(key)) continue;
    state.eventKeys.add(key);
    state.events.push({...event, key});
  }
  if (events.length) state.events.sort((one, other) => one.time - other.time);
  for (const old of state.events.splice(0, state.events.length - 1000)) state.eventKeys.delete(old.key);
}

async function fetchEvents() {
  addEvents(await get('events'));
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
    if (level) await confirmChange({title: 'Set the log level?', text: `The server logs lines of level ${level} and above, until the level is changed again.`, yes: 'Set level', act: () => change('log-level', {level})});
    byId('log-level').value = '';
  });
}
