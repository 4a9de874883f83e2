#include "config/wrapped_text.hpp"

#include <sstream>
#include <utility>

namespace gpunbd::config {

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

}  // namespace gpunbd::config
