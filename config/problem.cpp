#include <fmt/format.h>

#include "config/options.hpp"

namespace gpunbd::config {

std::string Problem::text() const {
    std::string out = file;
    if (line > 0) out += fmt::format(":{}", line);
    if (line > 0 && column > 0) out += fmt::format(":{}", column);
    for (const std::string* part : {&key, &what}) {
        if (part->empty()) continue;
        if (!out.empty()) out += ": ";
        out += *part;
    }
    return out;
}

}  // namespace gpunbd::config
