// What is drawn again each second is changed, not made anew: the focus, the scroll and a reader's place stay. Text comes in as
// text, never as markup: names are what others have chosen.
'use strict';

const byId = (id) => document.getElementById(id);

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
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
    fill(element, item);
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
