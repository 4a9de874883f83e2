// Requests to the API of the server.
'use strict';

class RequestError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

function headers(more = {}) {
  const token = sessionStorage.getItem('token');
  return token ? {...more, Authorization: `Bearer ${token}`} : more;
}

async function checked(answer) {
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new RequestError(answer.status, body.error ?? `the server responds with status ${answer.status}`);
}

async function get(path, query) {
  const url = `/api/v1/${path}${query ? `?${new URLSearchParams(query)}` : ''}`;
  return (await checked(await fetch(url, {headers: headers(), cache: 'no-store', signal: AbortSignal.timeout(10000)}))).json();
}

async function change(path, body) {
  return (await post(path, body, 40000)).done; // the server answers within 30 s
}

async function post(path, body, timeout) {
  const options = {method: 'POST', headers: headers({'Content-Type': 'application/json'}), body: JSON.stringify(body),
                   signal: AbortSignal.timeout(timeout)};
  try {
    return await (await checked(await fetch(`/api/v1/${path}`, options))).json();
  } catch (error) {
    if (error.status === 403 || error.status === 405) {
      state.allowsChanges = false;
      state.whyNot = error.message;
      draw();
    }
    throw error;
  }
}
