// Dialogs and notices.
'use strict';

// The dialog stays open and shows the error while `act` fails. Resolves to true if `act` succeeded, and to false on Cancel.
function openDialog({title, text, yes, fields = [], act}) {
  const dialog = byId('dialog'), form = dialog.querySelector('form');
  put(byId('dialog-title'), title);
  put(byId('dialog-text'), text);
  put(byId('dialog-yes'), yes);
  put(byId('dialog-error'), '');
  byId('dialog-fields').replaceChildren(...fields.map(({label, ...input}) => make('label', {}, label, make('input', input))));
  return new Promise((resolve) => {
    const end = (done) => { dialog.close(); resolve(done); };
    form.onsubmit = async (event) => {
      event.preventDefault();
      byId('dialog-yes').disabled = true;
      try {
        await act(Object.fromEntries([...form.querySelectorAll('input')].map((input) => [input.name, input.value.trim()])));
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
