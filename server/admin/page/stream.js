// Reads the stream of ticks, and reconnects when it ends.
'use strict';

// EventSource cannot be used, because it does not send the token.
async function* ticks() {
  const abort = new AbortController();
  let timer;
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(), 6000); };
  alive();
  try {
    const answer = await checked(await fetch('/api/v1/stream', {headers: headers({Accept: 'text/event-stream'}), cache: 'no-store', signal: abort.signal}));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ''; ;) {
      const {value, done} = await reader.read();
      if (done) return;
      alive();
      const parts = (text + value.replaceAll('\r', '')).split('\n\n');
      text = parts.pop();
      for (const part of parts) {
        const data = part.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n');
        if (data) yield JSON.parse(data);
      }
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

async function follow() {
  for (let tries = 1; ; tries++) {
    try {
      let first = true;
      for await (const tick of ticks()) {
        received(tick);
        // Fetch the state from before the stream. An older server does not have all of these paths.
        if (first) for (const fetchOne of [fetchEvents, fetchTrends, fetchAccess]) fetchOne().catch(() => {});
        first = false;
        tries = 1;
      }
      unreachable();
    } catch (error) {
      if (error.status === 401) {
        await needToken();
        continue;
      }
      unreachable(error.status ? error.message : null);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(4000, 500 * tries)));
  }
}

function received(tick) {
  state.unreachableSince = null;
  notice('unreachable', null);
  try {
    take(tick);
  } catch (error) {
    reportError(error); // an error of the page, not of the server
  }
  draw();
}

function unreachable(why) {
  state.unreachableSince ??= Date.now() / 1000;
  notice('unreachable', `The server has not answered since ${clock(state.unreachableSince)}${why ? ` (${why})` : ''}; trying again.`, false);
  draw();
}

async function needToken() {
  const had = sessionStorage.getItem('token');
  sessionStorage.removeItem('token');
  put(byId('state'), 'token required');
  const dialog = {
    title: 'Token required',
    text: `The server ${had ? 'refuses that' : 'requires a'} token. It is the line in the file that admin.tcp.token in the server's configuration (or --admin-token) names; on the server's machine, \u201csudo cat FILE\u201d prints it. With the token, a browser can see everything on this page and make changes. Only this tab keeps it, also when the page is loaded again, until the tab is closed.`,
    yes: 'Connect',
    fields: [{label: 'Token', name: 'token', type: 'password', autocomplete: 'off', required: true}],
    act: async ({token}) => sessionStorage.setItem('token', token),
  };
  while (!await openDialog(dialog)) {
    await new Promise((resolve) => notice('token', 'The server requires a token.', {label: 'Enter the token', act: resolve}));
  }
  notice('token', null);
}
