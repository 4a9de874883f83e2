#include "server/tools/status/canvas.hpp"

#include <array>

#include "server/tools/status/sanitized_text.hpp"

namespace gpunbd::status {
namespace {

// ECMA-48 "select graphic rendition" codes, in the order of Style.
constexpr std::array<std::string_view, 11> renditions{
    "\x1b[0m",    "\x1b[0;1m",  "\x1b[0;2m",  "\x1b[0;7m",  "\x1b[0;1;31m", "\x1b[0;36m",
    "\x1b[0;32m", "\x1b[0;33m", "\x1b[0;35m", "\x1b[0;34m", "\x1b[0;31m"};

std::string_view rendition(Style style) { return renditions.at(static_cast<std::size_t>(style)); }

}  // namespace

Canvas::Canvas(PageSize size) : size_(size), cells_(size.rows * size.columns) {}

void Canvas::put(std::size_t row, std::size_t column, std::string_view text, Style style) {
    if (row >= size_.rows) return;
    while (!text.empty() && column < size_.columns) {
        const Character next = first_character(text);
        if (column + next.columns > size_.columns) break;
        set(row, column, text.substr(0, next.bytes), style);
        if (next.columns == 2) set(row, column + 1, "", style);
        column += next.columns;
        text.remove_prefix(next.bytes);
    }
}

// If half of a wide character is overwritten, the other half becomes a space.
void Canvas::set(std::size_t row, std::size_t column, std::string_view character, Style style) {
    Cell& here = cell(row, column);
    if (here.character.empty() && !character.empty() && column > 0) {
        cell(row, column - 1).character = " ";
    }
    const bool next_is_half = column + 1 < size_.columns && !here.character.empty() &&
                              cell(row, column + 1).character.empty();
    if (next_is_half) cell(row, column + 1).character = " ";
    here = {std::string(character), style};
}

void Canvas::paint(std::size_t row, Style style) {
    if (row >= size_.rows) return;
    for (std::size_t column = 0; column != size_.columns; ++column) cell(row, column).style = style;
}

std::vector<std::string> Canvas::lines(bool styles) const {
    std::vector<std::string> out(size_.rows);
    for (std::size_t row = 0; row != size_.rows; ++row) {
        Style now = Style::plain;
        for (std::size_t column = 0; column != size_.columns; ++column) {
            const Cell& each = cell(row, column);
            if (styles && each.style != now) out[row] += rendition(each.style);
            now = each.style;
            out[row] += each.character;
        }
        if (styles && now != Style::plain) out[row] += rendition(Style::plain);
    }
    return out;
}

}  // namespace gpunbd::status
