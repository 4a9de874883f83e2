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

// Equal events that follow each other, the oldest first.
function groupsOf(events) {
  const groups = [];
  for (const event of events) {
    const last = groups.at(-1);
    if (last && last[0].level === event.level && last[0].text === event.text) last.push(event);
    else groups.push([event]);
  }
  return groups;
}

function makeGroup([{level, text}]) {
  const details = make('details', {}, make('summary'), make('p'));
  details.addEventListener('toggle', draw);
  return make('li', {className: level}, make('time'), make('span', {className: 'level', textContent: level}), make('span', {className: 'text'}, text, details));
}

function fillGroup(item, group) {
  const last = group.at(-1), at = new Date(last.time * 1000), time = item.firstChild, details = item.querySelector('details');
  put(time, clock(last.time));
  time.dateTime = at.toISOString();
  time.title = at.toLocaleString();
  show(details, group.length > 1);
  if (group.length === 1) return;
  put(details.firstChild, `${grouped(group.length)} times, ${clock(group[0].time)} ${dash} ${clock(last.time)}`);
  if (details.open) put(details.lastChild, group.map((event) => new Date(event.time * 1000).toLocaleString()).join(', '));
}

function drawEvents() {
  const least = Number(byId('level').value);
  const chosen = groupsOf(state.events.filter((event) => levels.indexOf(event.level) >= least)).slice(-200).reverse();
  keyed(byId('events'), chosen, ([first]) => first.key, makeGroup, fillGroup);
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
