// A terminal page as cells. Each line has exactly the width of the page.
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
    // for exports, in rotation
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

    // `text` must be sanitized. Text beyond the page is dropped.
    void put(std::size_t row, std::size_t column, std::string_view text,
             Style style = Style::plain);
    // Sets the style of a whole row.
    void paint(std::size_t row, Style style);
    PageSize size() const { return size_; }
    // One line per row, with or without escape sequences for styles.
    std::vector<std::string> lines(bool styles) const;

 private:
    struct Cell {
        std::string character = " ";  // empty: the second column of a wide character
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
