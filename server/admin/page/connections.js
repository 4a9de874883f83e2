// Counts of accepted, refused and failed connections.
'use strict';

function countOf(reasons) {
  return Object.values(reasons).reduce((sum, times) => sum + times, 0);
}

function inWords(reasons) {
  return Object.entries(reasons).filter(([, times]) => times).map(([reason, times]) => `${reason.replaceAll('_', ' ')} ${grouped(times)}`).join(', ');
}

function drawConnectionCounts(status) {
  const entry = (label, value, small) => ({label, value, text: count(value), small});
  figures(byId('connection-counts'), [
    entry('Accepted', status.accepted),
    entry('Opened an export', status.handshakes, status.tls_handshakes ? `${grouped(status.tls_handshakes)} over TLS` : ''),
    entry('Refused', countOf(status.refused), inWords(status.refused)),
    entry('Failed handshakes', countOf(status.failed_handshakes), inWords(status.failed_handshakes)),
  ]);
}
