// Line charts over time, with axes. Text below a chart shows the values at the pointer or the keyboard's cursor.
'use strict';

function roundSteps(highest, base) {
  const unit = base ** Math.max(0, Math.floor(Math.log(highest) / Math.log(base) + 1e-9)), top = highest / unit;
  const step = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => top / one <= 4) ?? 500;
  return Array.from({length: Math.ceil(top / step) + 1}, (_, index) => index * step * unit);
}

function linear(values) {
  const marks = roundSteps(Math.max(1024, ...values), 1024), highest = marks.at(-1);
  return {marks, place: (value) => value / highest};
}

function logarithmic(values) {
  const positive = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...positive, 1e-4))), high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive, 1e-3))));
  const within = high - low > 2 ? [1] : [1, 2, 5];
  const marks = Array.from({length: high - low}, (_, decade) => within.map((one) => one * 10 ** (low + decade))).flat().concat(10 ** high);
  return {marks, place: (value) => value > 0 ? (Math.log10(value) - low) / (high - low) : null};
}

// The marks of the time axis for each span of minutes, in seconds before now, for a narrow and a wide chart.
const spanMarks = {
  1: {words: 'minute', narrow: [60, 30, 0], wide: [60, 50, 40, 30, 20, 10, 0]},
  10: {words: '10 minutes', narrow: [600, 300, 0], wide: [600, 480, 360, 240, 120, 0]},
  60: {words: 'hour', narrow: [3600, 1800, 0], wide: [3600, 3000, 2400, 1800, 1200, 600, 0]},
};

// A canvas of lines over the last minutes. `lines`: {name, colour, dashed, filled, values}, one value per `step` seconds.
class Chart {
  constructor(id, scale, format) {
    this.canvas = byId(id);
    this.text = byId(`${id}-text`);
    this.scale = scale;
    this.format = format;
    this.back = null; // the selected value, counted back from the newest one
    this.span = {end: 0, step: 1, minutes: 10};
    this.canvas.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerdown', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerleave', () => { this.back = null; this.draw(this.lines, this.span); });
    this.canvas.addEventListener('blur', () => { this.back = null; this.draw(this.lines, this.span); });
    this.canvas.addEventListener('keydown', (event) => this.press(event));
  }

  // The oldest value, counted back from the newest one.
  get most() { return 60 * this.span.minutes / this.span.step - 1; }

  press(event) {
    const back = this.back ?? 0;
    const to = {ArrowLeft: back + (event.shiftKey ? 30 : 1), ArrowRight: back - (event.shiftKey ? 30 : 1), Home: this.most, End: 0, Escape: null}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.back = to === null ? null : Math.max(0, Math.min(this.most, to));
    this.draw(this.lines, this.span, true);
  }

  point(x) {
    if (!this.area) return;
    this.back = Math.max(0, Math.min(this.most, Math.round((1 - (x - this.area.left) / this.area.wide) * this.most)));
    this.draw(this.lines, this.span);
  }

  draw(lines, span, live = false) {
    Object.assign(this, {lines, span});
    if (!lines) return;
    if (this.back !== null) this.back = Math.min(this.back, this.most);
    this.describe(live);
    const place = drawing(this.canvas, 210);
    if (!place) return;
    const {context, width} = place, scale = this.scale(lines.flatMap((line) => line.values));
    const left = 70, high = 176, top = 8, wide = width - left - 8;
    this.area = {left, wide};
    const x = (back) => left + wide * (1 - back / this.most), y = (value) => { const share = scale.place(value); return share === null ? null : top + high * (1 - share); };
    this.drawAxes(context, scale.marks, x, y, {left, wide, top, high});
    for (const line of lines) this.drawLine(context, line, x, y, top + high);
    if (this.back !== null) {
      context.fillStyle = ink('ink');
      context.fillRect(Math.round(x(this.back)), top, 1, high);
    }
  }

  drawAxes(context, marks, x, y, {left, wide, top, high}) {
    lettering(context);
    context.textBaseline = 'middle';
    for (const mark of marks) {
      context.fillStyle = ink('rule');
      context.fillRect(left, Math.round(y(mark) ?? top + high), wide, 1);
      context.fillStyle = ink('quiet');
      context.textAlign = 'right';
      context.fillText(this.format(mark).replace(/\.0+(?= )/, ''), left - 8, y(mark) ?? top + high);
    }
    context.textBaseline = 'top';
    const {narrow, wide: many} = spanMarks[this.span.minutes];
    for (const back of wide > 420 ? many : narrow) {
      context.textAlign = back === narrow[0] ? 'left' : back === 0 ? 'right' : 'center';
      const words = this.span.minutes === 1 ? `${back} s` : `${back / 60} min`;
      context.fillText(back ? `${minus}${words}` : 'now', x(Math.min(this.most, back / this.span.step)), top + high + 8);
    }
  }

  drawLine(context, {colour, dashed, filled, values}, x, y, floor) {
    const path = new Path2D();
    let drawing = false, from = 0;
    const fill = new Path2D();
    values.forEach((value, index) => {
      const at = value === null ? null : y(value), across = x(values.length - 1 - index);
      if (at === null) { drawing = false; return; }
      if (drawing) path.lineTo(across, at);
      else { path.moveTo(across, at); from = across; fill.moveTo(from, floor); }
      fill.lineTo(across, at);
      if (index + 1 === values.length || values[index + 1] === null) { fill.lineTo(across, floor); fill.closePath(); }
      drawing = true;
    });
    context.strokeStyle = context.fillStyle = ink(colour);
    if (filled) {
      context.globalAlpha = 0.12;
      context.fill(fill);
      context.globalAlpha = 1;
    }
    context.lineWidth = dashed ? 1.2 : 1.6;
    context.lineJoin = 'round';
    context.setLineDash(dashed ? [3, 3] : []);
    context.stroke(path);
    context.setLineDash([]);
  }

  describe(live) {
    const at = (line, back) => line.values.at(-1 - back) ?? undefined;
    const highest = (line) => Math.max(0, ...line.values);
    const list = (value) => this.lines.map((line) => `${line.name} ${this.format(value(line) ?? 0)}`).join(', ');
    const {words} = spanMarks[this.span.minutes], summary = `Highest in the last ${words}: ${list(highest)}.`;
    this.canvas.setAttribute('aria-label', `${byId(`${this.canvas.id}-title`).textContent}, a chart of the last ${words}. ${summary} Press left or right to read the values of ${this.span.step === 1 ? 'a second' : 'ten seconds'}.`);
    announce(this.text, this.back === null ? summary : `${clock(this.span.end - this.back * this.span.step)}: ${list((line) => at(line, this.back))}`, live);
  }
}
