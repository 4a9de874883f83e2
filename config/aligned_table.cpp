#include "config/aligned_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gpunbd::config {

std::string aligned_table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths(rows.empty() ? 0 : rows[0].size());
    for (const auto& row : rows) {
        for (std::size_t i = 0; i != row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string out;
    for (const auto& row : rows) {
        for (std::size_t i = 0; i + 1 != row.size(); ++i) {
            out += fmt::format("{:<{}}  ", row[i], widths[i]);
        }
        out += row.back() + '\n';
    }
    return out;
}

}  // namespace gpunbd::config
