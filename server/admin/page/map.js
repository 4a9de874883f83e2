// The map of an export: its used, written and read parts. The number of cells depends on the width of the page.
'use strict';

function decoded(coded, cells) {
  const values = new Uint8Array(cells);
  for (let place = 0, index = 0; index + 1 < coded.length; index += 2) {
    values.fill(coded[index], place, place += coded[index + 1]);
  }
  return values;
}

// Returns the grid with the largest cells that fits into the area.
function gridFor(cells, width, height) {
  let best = null;
  for (let columns = 1; columns <= 256; columns *= 2) {
    const rows = Math.ceil(cells / columns);
    const wide = Math.min(36, width / columns), high = Math.min(30, Math.floor(height / rows));
    const cell = {wide: Math.min(wide, 2 * high), high: Math.min(high, Math.ceil(1.5 * wide))};
    if (cell.wide < 3 || cell.high < 3) continue;
    if (!best || cell.wide * cell.high >= best.wide * best.high) best = {columns, rows, ...cell};
  }
  return best ?? {columns: 256, rows: Math.ceil(cells / 256), wide: width / 256, high: 3};
}

class MemoryMap {
  constructor() {
    this.canvas = byId('map');
    this.pointers = new Map();
    this.listen();
  }

  open(exported) {
    Object.assign(this, {name: exported.name, size: exported.size, page: exported.page_size, offset: 0, length: exported.size,
                         data: null, at: null, device: null, fetching: false, again: false});
    put(byId('map-cell'), '');
  }

  get labels() { return this.canvas.clientWidth > 600 ? 76 : 60; }

  get mostCells() {
    const across = Math.max(8, 2 ** Math.floor(Math.log2((this.canvas.clientWidth - this.labels) / 7)));
    return across * 32;
  }

  // One request at a time. A call during a request starts another one when it ends.
  async fetch() {
    if (this.fetching) { this.again = true; return; }
    if (!this.size || !this.canvas.clientWidth) return;
    this.fetching = true;
    const {name, offset, length} = this;
    try {
      const data = await get('map', {export: name, offset, length, cells: this.mostCells});
      if (this.name === name) {
        const cells = Math.ceil(data.length / data.cell);
        this.data = {...data, cells, used: decoded(data.used, cells), read: decoded(data.read, cells), written: decoded(data.written, cells)};
        this.draw();
      }
    } catch { /* the stream reports a lost connection */ }
    this.fetching = false;
    if (this.again) { this.again = false; this.fetch(); }
  }

  setRange(offset, length) {
    const page = this.page, pages = Math.max(1, Math.min(Math.ceil(this.size / page), Math.round(length / page)));
    const grain = Math.ceil(pages / this.mostCells) * page; // cell borders stay fixed while the view moves
    this.length = Math.min(pages * page, this.size);
    const last = Math.max(0, Math.ceil((this.size - this.length) / page) * page);
    this.offset = Math.max(0, Math.min(last, Math.round(offset / grain) * grain));
    this.length = Math.min(this.length, this.size - this.offset);
    this.drawRange();
    this.fetch();
  }

  zoom(factor, around = this.at ?? this.offset + this.length / 2) {
    const length = Math.max(this.page, Math.min(this.size, this.length / factor));
    this.setRange(around - (around - this.offset) * length / this.length, length);
  }

  scroll(share) { this.setRange(this.offset + share * this.length, this.length); }

  showAll() { this.setRange(0, this.size); }

  cellAt(x, y) {
    if (!this.data || !this.grid) return null;
    const column = Math.floor((x - this.labels) / this.grid.wide), row = Math.floor(y / this.grid.high), cell = row * this.grid.columns + column;
    return column < 0 || column >= this.grid.columns || cell < 0 || cell >= this.data.cells ? null : cell;
  }

  byteAt(x, y) {
    const cell = this.cellAt(x, y);
    return cell === null ? null : this.data.offset + cell * this.data.cell;
  }

  select(at, live = true) {
    this.at = at === null ? null : Math.max(0, Math.min(Math.floor((this.size - 1) / this.page) * this.page, at));
    this.device = null;
    this.draw(live);
    clearTimeout(this.timer);
    if (this.at !== null) this.timer = setTimeout(() => this.fetchDevices(live), 250);
  }

  async fetchDevices(live) {
    const {at, data} = this;
    if (at === null || !data) return;
    try {
      const {runs, next} = await get('pages', {export: this.name, offset: at, length: Math.min(data.cell, this.size - at)});
      if (this.at !== at) return;
      const devices = [...new Set(runs.map((run) => run.device).filter(Boolean))];
      this.device = devices.length ? `on ${devices.join(', ')}${next === null ? '' : ' and others'}` : null;
      this.describe(live);
    } catch { /* the device is not shown */ }
  }

  step(cells) {
    const {offset, cell, length} = this.data, {columns} = this.grid;
    const to = this.at === null ? offset : Math.max(0, Math.min(Math.floor((this.size - 1) / cell) * cell, this.at + cells * cell));
    if (to < offset || to >= offset + length) this.setRange(this.offset + Math.sign(cells) * columns * cell * Math.ceil(Math.abs(cells) / columns), this.length);
    this.select(to);
  }

  press(event) {
    if (!this.data || event.ctrlKey || event.metaKey || event.altKey) return;
    const {columns} = this.grid ?? {columns: 1};
    const act = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowUp: () => this.step(-columns), ArrowDown: () => this.step(columns),
      Home: () => this.select(this.data.offset), End: () => this.select(this.data.offset + (this.data.cells - 1) * this.data.cell),
      '+': () => this.zoom(2), '=': () => this.zoom(2), '-': () => this.zoom(0.5), Enter: () => this.zoom(4),
      PageUp: () => this.scroll(-1), PageDown: () => this.scroll(1), 0: () => this.showAll(), Escape: () => this.select(null),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  listen() {
    const {canvas, pointers} = this;
    canvas.addEventListener('keydown', (event) => this.press(event));
    canvas.addEventListener('wheel', (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return; // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5, this.byteAt(event.offsetX, event.offsetY) ?? undefined);
    }, {passive: false});
    canvas.addEventListener('dblclick', (event) => this.zoom(4, this.byteAt(event.offsetX, event.offsetY) ?? undefined));
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
      this.pinch = null;
      this.dragged = {x: event.offsetX, y: event.offsetY, offset: this.offset};
      this.select(this.byteAt(event.offsetX, event.offsetY));
    });
    canvas.addEventListener('pointermove', (event) => {
      if (pointers.has(event.pointerId)) pointers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
      if (pointers.size === 2) this.spread([...pointers.values()]);
      else if (pointers.size === 1) this.drag(event.offsetX, event.offsetY);
      else if (this.data) this.select(this.byteAt(event.offsetX, event.offsetY), false);
    });
    for (const end of ['pointerup', 'pointercancel']) {
      canvas.addEventListener(end, (event) => { pointers.delete(event.pointerId); this.dragged = null; });
    }
    const tools = {'map-left': () => this.scroll(-0.5), 'map-right': () => this.scroll(0.5), 'map-in': () => this.zoom(2), 'map-out': () => this.zoom(0.5), 'map-all': () => this.showAll()};
    for (const [id, act] of Object.entries(tools)) byId(id).addEventListener('click', () => { if (this.data) act(); });
  }

  drag(x, y) {
    if (!this.dragged || !this.data || !this.grid) return;
    const across = (this.dragged.x - x) / this.grid.wide, down = Math.round((this.dragged.y - y) / this.grid.high);
    const offset = this.dragged.offset + Math.round(across + down * this.grid.columns) * this.data.cell;
    if (offset !== this.offset) this.setRange(offset, this.length);
  }

  spread([one, other]) {
    const distance = Math.hypot(one.x - other.x, one.y - other.y);
    this.pinch ??= distance;
    const factor = distance / this.pinch;
    if (factor > 0.75 && factor < 1.33) return;
    this.pinch = distance;
    this.zoom(factor > 1 ? 1.5 : 1 / 1.5, this.byteAt((one.x + other.x) / 2, (one.y + other.y) / 2) ?? undefined);
  }

  drawRange() {
    const strip = byId('map-strip'), window = strip.firstElementChild;
    window.style.left = `${100 * this.offset / this.size}%`;
    window.style.width = `${100 * this.length / this.size}%`;
    const all = this.length >= this.size;
    const cell = this.data ? `, a cell is ${this.data.cell === this.page ? 'one page of ' : ''}${size(this.data.cell)}` : '';
    put(byId('map-range'), `${all ? `All of ${size(this.size)}` : `${size(this.length)} of ${size(this.size)}, from ${size(this.offset)}`}${cell}`);
    byId('map-all').disabled = byId('map-out').disabled = all;
    byId('map-in').disabled = this.length <= this.page;
    byId('map-left').disabled = this.offset === 0;
    byId('map-right').disabled = this.offset + this.length >= this.size;
  }

  describe(live) {
    const {data, at} = this, line = byId('map-cell');
    if (at === null || !data || at < data.offset || at >= data.offset + data.length) {
      return announce(line, live ? '' : this.summary(), false);
    }
    const index = Math.floor((at - data.offset) / data.cell), start = data.offset + index * data.cell;
    const length = Math.min(data.cell, data.offset + data.length - start), share = data.used[index];
    const what = share === 0 ? 'a hole' : share === 100 ? 'used' : `${share} % used`;
    const lately = [data.written[index] && 'written', data.read[index] && 'read'].filter(Boolean).join(' and ');
    announce(line, `${data.cell === this.page ? `Page ${grouped(start / this.page)}, ` : ''}${size(length)} at ${size(start)} (offset ${grouped(start)}): ${what}` +
        `${lately ? `, ${lately} in the last second` : ''}${this.device ? `, ${this.device}` : ''}`, live);
  }

  summary() {
    if (!this.data) return '';
    const holes = this.data.used.reduce((sum, share) => sum + (share === 0), 0);
    return `${grouped(this.data.cells - holes)} of ${plural(this.data.cells, 'cell', 'cells')} are in use.`;
  }

  draw(live = false) {
    const {data} = this;
    if (!data) return;
    this.drawRange();
    const grid = this.grid = gridFor(data.cells, this.canvas.clientWidth - this.labels, 330), height = grid.rows * grid.high + 2;
    this.canvas.style.height = `${height}px`;
    const place = drawing(this.canvas, height);
    if (!place) return;
    this.drawCells(place.context, grid, data);
    this.drawOffsets(place.context, grid, data);
    if (this.at !== null && this.at >= data.offset && this.at < data.offset + data.length) {
      const [x, y, wide] = this.placeOf(Math.floor((this.at - data.offset) / data.cell));
      place.context.strokeStyle = ink('ink');
      place.context.lineWidth = 2;
      place.context.strokeRect(x - 1, y - 1, wide + 1, grid.high + 1);
    }
    this.describe(live);
  }

  placeOf(cell) {
    const column = cell % this.grid.columns, x = Math.round(column * this.grid.wide);
    return [this.labels + x, 1 + Math.floor(cell / this.grid.columns) * this.grid.high, Math.round((column + 1) * this.grid.wide) - x];
  }

  drawCells(context, grid, data) {
    const {high} = grid, gap = Math.min(grid.wide, high) > 5 ? 1 : 0, fills = [ink('hole')];
    for (let share = 1; share <= 100; share++) fills.push(mixed(ink('part'), ink('used'), share / 100));
    const dot = Math.max(2, Math.min(7, Math.round(Math.min(grid.wide, high) * 0.38)));
    for (let cell = 0; cell < data.cells; cell++) {
      const [x, y, wide] = this.placeOf(cell);
      context.fillStyle = data.written[cell] ? ink('written') : fills[data.used[cell]];
      context.fillRect(x, y, wide - gap, high - gap);
      if (!data.read[cell]) continue;
      context.fillStyle = ink('read');
      context.fillRect(x + Math.round((wide - gap - dot) / 2), y + Math.round((high - gap - dot) / 2), dot, dot);
    }
  }

  drawOffsets(context, {rows, columns, high}, data) {
    const every = Math.ceil(18 / high);
    lettering(context);
    context.fillStyle = ink('quiet');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let row = 0; row < rows; row += every) {
      context.fillText(size(data.offset + row * columns * data.cell), this.labels - 8, 1 + row * high + high / 2);
    }
  }
}
