// Functions that update elements in place. Updates keep the focus, the scroll position and the position of a screen reader.
// Text is inserted as text and never as markup, because names of exports and clients are untrusted.
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

// Shows a rounded number; the `value` of the element is exact.
function putNumber(element, value, text) {
  put(element, text);
  const exact = value === undefined ? '' : String(value);
  if (element.value !== exact) element.value = exact;
}

// `live`: screen readers read the text aloud. Updates of each second are not live.
function announce(element, text, live) {
  element.setAttribute('aria-live', live ? 'polite' : 'off');
  put(element, text);
}

// Makes the children of `parent` correspond to `items`. Each child is created once, by key, and filled at each call.
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

// An entry with `bad`, a text, is marked, and shows the text.
function figures(list, entries) {
  keyed(list, entries, (entry) => entry.label, (entry) => {
    const row = make('div', {}, make('dt', {textContent: entry.label}), make('dd', {}, make('data'), ' ', make('small')));
    row.dataset.figure = entry.label;
    return row;
  }, (row, entry) => {
    putNumber(row.querySelector('data'), entry.value, entry.text);
    row.classList.toggle('bad', Boolean(entry.bad));
    put(row.querySelector('small'), entry.bad || entry.small || '');
  });
}
