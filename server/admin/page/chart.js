// Lines over the last ten minutes, with axes; told in words to who points at them, or moves there by keys.
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

// A canvas of lines over the last ten minutes. `lines`: {name, colour, dashed, filled, values}, one value a second.
class Chart {
  constructor(id, scale, format) {
    this.canvas = byId(id);
    this.text = byId(`${id}-text`);
    this.scale = scale;
    this.format = format;
    this.back = null; // seconds back from the end that are pointed at
    this.canvas.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerdown', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerleave', () => { this.back = null; this.draw(this.lines, this.end); });
    this.canvas.addEventListener('blur', () => { this.back = null; this.draw(this.lines, this.end); });
    this.canvas.addEventListener('keydown', (event) => this.press(event));
  }

  press(event) {
    const back = this.back ?? 0;
    const to = {ArrowLeft: back + (event.shiftKey ? 30 : 1), ArrowRight: back - (event.shiftKey ? 30 : 1), Home: 599, End: 0, Escape: null}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.back = to === null ? null : Math.max(0, Math.min(599, to));
    this.draw(this.lines, this.end, true);
  }

  point(x) {
    if (!this.area) return;
    this.back = Math.max(0, Math.min(599, Math.round((1 - (x - this.area.left) / this.area.wide) * 599)));
    this.draw(this.lines, this.end);
  }

  draw(lines, end, asked = false) {
    Object.assign(this, {lines, end});
    if (!lines) return;
    this.tell(asked);
    const place = drawing(this.canvas, 210);
    if (!place) return;
    const {context, width} = place, scale = this.scale(lines.flatMap((line) => line.values));
    const left = 70, high = 176, top = 8, wide = width - left - 8;
    this.area = {left, wide};
    const x = (back) => left + wide * (1 - back / 599), y = (value) => { const share = scale.place(value); return share === null ? null : top + high * (1 - share); };
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
    for (const minutes of wide > 420 ? [10, 8, 6, 4, 2, 0] : [10, 5, 0]) {
      context.textAlign = minutes === 10 ? 'left' : minutes === 0 ? 'right' : 'center';
      context.fillText(minutes ? `${minus}${minutes} min` : 'now', x(Math.min(599, minutes * 60)), top + high + 8);
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

  tell(asked) {
    const at = (line, back) => line.values.at(-1 - back) ?? undefined;
    const highest = (line) => Math.max(0, ...line.values);
    const list = (value) => this.lines.map((line) => `${line.name} ${this.format(value(line) ?? 0)}`).join(', ');
    const summary = `Highest in ten minutes: ${list(highest)}.`;
    this.canvas.setAttribute('aria-label', `${byId(`${this.canvas.id}-title`).textContent}, a chart of the last ten minutes. ${summary} Left and right tell the values of a second.`);
    say(this.text, this.back === null ? summary : `${clock(this.end - this.back)}: ${list((line) => at(line, this.back))}`, asked);
  }
}
