// A page of a terminal as cells: every line of it is exactly as wide as the page, whatever is
// written where.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::status {

struct PageSize {
    std::size_t rows = 24;
    std::size_t columns = 80;
};

enum class Style {
    plain,
    strong,
    faint,
    reversed,
    warning,
    // Of exports, in turn.
    first,
    second,
    third,
    fourth,
    fifth,
    sixth
};

class Canvas {
 public:
    explicit Canvas(PageSize size);

    // Harmless text. What would stand beyond the page is left out.
    void put(std::size_t row, std::size_t column, std::string_view text,
             Style style = Style::plain);
    // The style of all of a row.
    void paint(std::size_t row, Style style);
    PageSize size() const { return size_; }
    // One for each row; with the sequences for styles, or without.
    std::vector<std::string> lines(bool styles) const;

 private:
    struct Cell {
        std::string character = " ";  // empty: the second column of the one before
        Style style = Style::plain;
    };
    void set(std::size_t row, std::size_t column, std::string_view character, Style style);
    Cell& cell(std::size_t row, std::size_t column) { return cells_[row * size_.columns + column]; }
    const Cell& cell(std::size_t row, std::size_t column) const {
        return cells_[row * size_.columns + column];
    }

    const PageSize size_;
    std::vector<Cell> cells_;
};

}  // namespace gpunbd::status
