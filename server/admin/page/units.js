// Formats numbers with binary units, three digits and thin spaces.
'use strict';

const minus = '\u2212', dash = '\u2013', thin = '\u202f';

function digits(number) {
  return number.toFixed(number >= 100 ? 0 : number >= 10 ? 1 : 2);
}

function scaled(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0, number = bytes;
  for (; number >= 1023.5 && unit < units.length - 1; unit++) number /= 1024;
  return [number, units[unit]];
}

function size(bytes) {
  const [number, unit] = scaled(bytes);
  return `${Number.isInteger(number) ? number : digits(number)} ${unit}`;
}

// The exact size in the notation of the configuration: "10M", "1500".
function sizeText(bytes) {
  const unit = ['T', 'G', 'M', 'K'].find((_, index) => bytes && bytes % 1024 ** (4 - index) === 0);
  return unit ? `${bytes / 1024 ** ' KMGT'.indexOf(unit)}${unit}` : String(bytes);
}

function rate(bytes) {
  if (bytes === undefined) return dash;
  if (bytes < 0.5) return '0';
  const [number, unit] = scaled(bytes);
  return `${unit === 'B' ? Math.round(number) : digits(number)} ${unit}/s`;
}

function grouped(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, thin);
}

function count(number) {
  if (number === undefined) return dash;
  return number < 9.95 && !Number.isInteger(number) ? number.toFixed(1) : grouped(number);
}

function duration(seconds) {
  if (!seconds) return dash;
  if (seconds < 1e-3) return `${digits(seconds * 1e6)} µs`;
  return seconds < 1 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
}

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds)), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString('en-GB');
}

function plural(number, one, many) {
  return `${grouped(number)} ${number === 1 ? one : many}`;
}

const shown = (name) => name === '' ? '(no name)' : name;
