#include "server/tools/attach/mounts.hpp"

#include <fstream>
#include <sstream>

namespace gpunbd::attach {
namespace {

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// A line of /proc/self/mountinfo; proc(5).
Mount read_mount(const std::string& line) {
    std::istringstream words(line);
    Mount out;
    std::string skipped;
    words >> out.id >> out.parent >> out.numbers >> skipped >> out.place;
    while (words >> skipped && skipped != "-") {
    }
    words >> out.type >> out.source;
    out.place = unescaped(out.place);
    out.source = unescaped(out.source);
    return out;
}

}  // namespace

std::string unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i != text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) &&
            is_octal(text[i + 2]) && is_octal(text[i + 3])) {
            out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                     (text[i + 3] - '0'));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::vector<Mount> read_mounts(const std::string& root) {
    std::vector<Mount> out;
    std::ifstream file(root + "proc/self/mountinfo");
    for (std::string line; std::getline(file, line);) out.push_back(read_mount(line));
    return out;
}

}  // namespace gpunbd::attach
