// What the page asks and tells whoever looks at it.
'use strict';

// Keeps open, and tells why, as long as `act` fails. Resolves to whether it was done.
function question({title, text, yes, fields = [], act}) {
  const dialog = byId('ask'), form = dialog.querySelector('form');
  put(byId('ask-title'), title);
  put(byId('ask-text'), text);
  put(byId('ask-yes'), yes);
  put(byId('ask-error'), '');
  byId('ask-fields').replaceChildren(...fields.map(({label, ...input}) => make('label', {}, label, make('input', input))));
  return new Promise((resolve) => {
    let done = false;
    form.onsubmit = async (event) => {
      event.preventDefault();
      byId('ask-yes').disabled = true;
      try {
        await act(Object.fromEntries([...form.querySelectorAll('input')].map((input) => [input.name, input.value.trim()])));
        done = true;
        dialog.close();
      } catch (error) {
        put(byId('ask-error'), error.message);
      }
      byId('ask-yes').disabled = false;
    };
    byId('ask-no').onclick = () => dialog.close();
    dialog.onclose = () => resolve(done);
    dialog.showModal();
  });
}

async function told(options) {
  let text = '';
  if (await question({...options, act: async (values) => { text = await options.act(values); }})) notice('done', `Done: ${text}.`);
}

// One of each kind; the next of its kind takes its place.
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
