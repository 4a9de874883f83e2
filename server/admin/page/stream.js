// Follows the server: for as long as it answers, and again when it is back.
'use strict';

// Not EventSource: that sends no token.
async function* ticks() {
  const abort = new AbortController();
  let timer;
  const alive = () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(), 6000); };
  alive();
  try {
    const answer = await accepted(await fetch('/api/v1/stream', {headers: headers({Accept: 'text/event-stream'}), cache: 'no-store', signal: abort.signal}));
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
        answers(tick);
        // State from before the stream. An older server does not have all of these paths.
        if (first) for (const fetchOne of [fetchEvents, fetchTrends, fetchAccess]) fetchOne().catch(() => {});
        first = false;
        tries = 1;
      }
      gone();
    } catch (error) {
      if (error.status === 401) {
        await needToken(error);
        continue;
      }
      gone(error.status ? error.message : null);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(4000, 500 * tries)));
  }
}

function answers(tick) {
  state.goneSince = null;
  notice('gone', null);
  try {
    take(tick);
  } catch (error) {
    reportError(error); // of the page, not of the server
  }
  draw();
}

function gone(why) {
  state.goneSince ??= Date.now() / 1000;
  notice('gone', `The server has not answered since ${clock(state.goneSince)}${why ? ` (${why})` : ''}; trying again.`, false);
  draw();
}

async function needToken(error) {
  const had = sessionStorage.getItem('token');
  sessionStorage.removeItem('token');
  put(byId('state'), 'needs a token');
  const asked = {
    title: 'A token is needed',
    text: had ? 'The server refuses that token.' : `The server says: ${error.message}.`,
    yes: 'Go on',
    fields: [{label: 'Token', name: 'token', type: 'password', autocomplete: 'off', required: true}],
    act: async ({token}) => sessionStorage.setItem('token', token),
  };
  while (!await question(asked)) {
    await new Promise((resolve) => notice('token', 'Without its token the server tells nothing.', {label: 'Give the token', act: resolve}));
  }
  notice('token', null);
}
