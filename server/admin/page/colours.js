// The colours of the style sheet for canvases, and the choice of the theme.
'use strict';

let inks = {};

// A canvas needs the computed value of a colour variable.
function ink(name) {
  if (!inks[name]) {
    const probe = make('i', {hidden: true});
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    inks[name] = getComputedStyle(probe).color;
    probe.remove();
  }
  return inks[name];
}

function mixed(from, to, share) {
  const [a, b] = [from, to].map((colour) => colour.match(/[\d.]+/g).map(Number));
  return `rgb(${a.slice(0, 3).map((part, index) => Math.round(part + (b[index] - part) * share)).join(' ')})`;
}

// Resizes the canvas to its box at the resolution of the screen, and clears it. Returns null if the canvas is not visible.
function drawing(canvas, height) {
  const width = canvas.clientWidth;
  if (!width) return null;
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return {context, width};
}

function lettering(context) {
  context.font = `11px ${getComputedStyle(document.documentElement).fontFamily}`;
}

function useTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  inks = {};
}

function keepTheme() {
  const choice = byId('theme');
  try {
    choice.value = localStorage.getItem('theme') ?? 'auto';
  } catch { /* the browser has no storage */ }
  if (!choice.value) choice.value = 'auto';
  useTheme(choice.value);
  choice.addEventListener('change', () => {
    useTheme(choice.value);
    try {
      localStorage.setItem('theme', choice.value);
    } catch { /* likewise */ }
    draw();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { inks = {}; draw(); });
}
