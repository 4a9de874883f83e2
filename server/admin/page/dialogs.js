// Dialogs and notices.
'use strict';

// `options` (value and text) make a list, `choices` (values) a set of check boxes. `unless`: the name of a list; while it has
// a value, the field is hidden and without effect. All other properties are those of the input element.
function makeField({label, options, choices, unless, value, ...input}) {
  if (choices) {
    return make('fieldset', {}, make('legend', {textContent: label}),
                ...choices.map((choice) => make('label', {className: 'check'}, make('input', {...input, type: 'checkbox', value: choice}), choice)));
  }
  if (options) return make('label', {}, label, make('select', input, ...options.map(([each, text]) => make('option', {value: each, textContent: text}))));
  if (input.type === 'checkbox') return make('label', {className: 'check'}, make('input', input), label);
  return make('label', {}, label, make('input', {...input, value: value ?? ''}));
}

// Check boxes give true or false, `choices` an array, and all other fields a text.
function valuesOf(form, fields) {
  const data = new FormData(form);
  return Object.fromEntries(fields.map(({name, choices, type}) => [name, choices ? data.getAll(name) : type === 'checkbox' ? data.has(name) : (data.get(name) ?? '').trim()]));
}

function showFields(form, fields, elements) {
  fields.forEach(({unless}, index) => {
    if (!unless) return;
    const unused = form.elements[unless].value !== '';
    show(elements[index], !unused);
    for (const input of elements[index].querySelectorAll('input, select')) input.disabled = unused;
  });
}

// The dialog stays open and shows the error while `act` fails. Resolves to true if `act` succeeded, and to false on Cancel.
function openDialog({title, text, yes, fields = [], act}) {
  const dialog = byId('dialog'), form = dialog.querySelector('form');
  put(byId('dialog-title'), title);
  put(byId('dialog-text'), text);
  put(byId('dialog-yes'), yes);
  put(byId('dialog-error'), '');
  const elements = fields.map(makeField);
  byId('dialog-fields').replaceChildren(...elements);
  showFields(form, fields, elements);
  form.oninput = () => showFields(form, fields, elements);
  return new Promise((resolve) => {
    const end = (done) => { dialog.close(); resolve(done); };
    form.onsubmit = async (event) => {
      event.preventDefault();
      byId('dialog-yes').disabled = true;
      try {
        await act(valuesOf(form, fields));
        end(true);
      } catch (error) {
        put(byId('dialog-error'), error.message);
      }
      byId('dialog-yes').disabled = false;
    };
    byId('dialog-no').onclick = () => end(false);
    dialog.onclose = () => { if (!dialog.open) resolve(false); }; // Escape; the event may be that of an earlier dialog
    dialog.showModal();
  });
}

async function confirmChange(options) {
  let text = '';
  if (await openDialog({...options, act: async (values) => { text = await options.act(values); }})) notice('done', `Done: ${text}.`);
}

// Shows at most one notice of each kind. A null text removes it.
function notice(kind, text, button) {
  const box = byId('notices');
  let element = [...box.children].find((child) => child.dataset.kind === kind);
  if (text === null) return element?.remove();
  if (!element) {
    element = make('p', {className: `notice ${kind}`}, make('span'), make('button'));
    element.dataset.kind = kind;
    box.append(element);
  }
  put(element.querySelector('span'), text);
  const {label, act} = button ?? {label: 'Close', act: () => element.remove()};
  put(element.querySelector('button'), label);
  element.querySelector('button').onclick = act;
  show(element.querySelector('button'), button !== false);
}
