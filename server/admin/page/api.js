// What the page asks the server, and what it has it do.
'use strict';

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem('token');
  return token ? {...more, Authorization: `Bearer ${token}`} : more;
}

async function accepted(answer) {
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.error ?? `the server answers ${answer.status}`);
}

async function ask(path, query) {
  const url = `/api/v1/${path}${query ? `?${new URLSearchParams(query)}` : ''}`;
  return (await accepted(await fetch(url, {headers: headers(), cache: 'no-store', signal: AbortSignal.timeout(10000)}))).json();
}

async function steer(path, body) {
  const options = {method: 'POST', headers: headers({'Content-Type': 'application/json'}), body: JSON.stringify(body),
                   signal: AbortSignal.timeout(40000)}; // the server answers within 30 s
  try {
    return (await (await accepted(await fetch(`/api/v1/${path}`, options))).json()).done;
  } catch (error) {
    if (error.status === 403 || error.status === 405) {
      state.steering = false; // here one may only look, and is told why
      state.whyNot = error.message;
      draw();
    }
    throw error;
  }
}
