#include "server/attach/holders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/quote.hpp"

namespace gpunbd::attach {
namespace {

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// As the kernel writes names in /proc: a space is \040.
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

// The device's own file, or that of a partition.
bool is_file_of(const Device& device, std::string_view file) {
    const std::string own = device.path();
    if (!file.starts_with(own)) return false;
    const std::string_view rest = file.substr(own.size());
    return rest.empty() || rest[0] == 'p';
}

struct Mount {
    std::string numbers;  // 43:0
    std::string place;
    std::string source;
};

// A line of /proc/self/mountinfo; proc(5).
Mount read_mount(const std::string& line) {
    std::istringstream words(line);
    Mount out;
    std::string skipped;
    words >> skipped >> skipped >> out.numbers >> skipped >> out.place;
    while (words >> skipped && skipped != "-") {
    }
    words >> skipped >> out.source;
    out.place = unescaped(out.place);
    out.source = unescaped(out.source);
    return out;
}

// A plain name as it is; others so that no terminal obeys them.
std::string shown(const std::string& place) {
    const std::string quoted = config::in_quotes(place);
    return quoted == "'" + place + "'" ? place : quoted;
}

void add_mounts(const Device& device, std::vector<std::string>& out) {
    std::vector<std::string> numbers{device.attribute("dev").value_or("")};
    for (const std::string& each : device.partitions()) {
        numbers.push_back(device.attribute(each + "/dev").value_or(""));
    }
    std::ifstream file(device.root() + "proc/self/mountinfo");
    for (std::string line; std::getline(file, line);) {
        const Mount mount = read_mount(line);
        const bool same = std::find(numbers.begin(), numbers.end(), mount.numbers) != numbers.end();
        // btrfs has numbers of its own.
        if (!same && !is_file_of(device, mount.source)) continue;
        out.push_back("is mounted on " + shown(mount.place));
    }
}

void add_parts(const Device& device, const std::string& below, std::vector<std::string>& out) {
    std::error_code error;
    const std::string folder = fmt::format("{}/{}holders", device.folder(), below);
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
         at.increment(error)) {
        out.push_back("is a part of " + at->path().filename().string());
    }
}

}  // namespace

std::vector<std::string> holders_of(const Device& device) {
    std::vector<std::string> out;
    add_mounts(device, out);
    add_parts(device, "", out);
    for (const std::string& each : device.partitions()) add_parts(device, each + "/", out);
    return out;
}

std::vector<std::string> swaps_on(const Device& device) {
    std::vector<std::string> out;
    std::ifstream file(device.root() + "proc/swaps");
    for (std::string line; std::getline(file, line);) {
        std::string name = unescaped(line.substr(0, line.find_first_of(" \t")));
        if (is_file_of(device, name)) out.push_back(std::move(name));
    }
    return out;
}

}  // namespace gpunbd::attach
