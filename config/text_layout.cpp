#include "config/text_layout.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <sstream>
#include <utility>

namespace gpunbd::config {

std::string local_time_text(std::int64_t seconds) {
    const std::time_t time = seconds;
    std::tm local{};
    return ::localtime_r(&time, &local) != nullptr ? fmt::format("{:%Y-%m-%d %H:%M:%S}", local)
                                                   : "-";
}

std::string wrapped(std::string head, const std::string& text, std::size_t column) {
    constexpr std::size_t width = 80;
    std::string out;
    std::string line = std::move(head);
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        if (line.size() < column) {
            line.resize(column, ' ');
        } else if (line.size() + 1 + word.size() > width) {
            out += line + '\n';
            line.assign(column, ' ');
        } else {
            line += ' ';
        }
        line += word;
    }
    return out + line + '\n';
}

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
