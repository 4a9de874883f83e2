#include "storage/diagnosis/machine.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "storage/base/program_output.hpp"

namespace gpunbd::storage::diagnosis {

namespace {

constexpr std::size_t longest_text = 64 << 10;  // bytes

}  // namespace

std::optional<std::string> Machine::text(const std::string& path) const {
    std::ifstream file(root_ + path, std::ios::binary);
    if (!file) return std::nullopt;
    std::string out(longest_text, '\0');
    file.read(out.data(), static_cast<std::streamsize>(out.size()));
    if (file.bad()) return std::nullopt;
    out.resize(static_cast<std::size_t>(file.gcount()));
    while (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

std::optional<std::uint64_t> Machine::number(const std::string& path) const {
    const auto found = text(path);
    if (!found) return std::nullopt;
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(found->data(), found->data() + found->size(), value);
    return error == std::errc{} ? std::optional(value) : std::nullopt;
}

bool Machine::has(const std::string& path) const {
    std::error_code ignored;
    return std::filesystem::exists(root_ + path, ignored);
}

std::vector<std::string> Machine::names(const std::string& folder) const {
    std::vector<std::string> out;
    std::error_code error;
    for (std::filesystem::directory_iterator at(root_ + folder, error), end; !error && at != end;
         at.increment(error)) {
        out.push_back(at->path().filename().string());
    }
    std::sort(out.begin(), out.end());
    return out;
}

bool Machine::capable(int capability) const {
    const auto status = text("/proc/self/status").value_or("");
    constexpr std::string_view key = "\nCapEff:\t";
    const std::size_t at = status.find(key);
    if (at == std::string::npos) return false;
    std::uint64_t mask = 0;
    std::from_chars(status.data() + at + key.size(), status.data() + status.size(), mask, 16);
    return (mask >> capability & 1U) != 0;
}

rlim_t Machine::limit(int resource) const {
    rlimit limits{};
    // The hard limit, because gpunbd raises the soft limit.
    return ::getrlimit(static_cast<__rlimit_resource>(resource), &limits) == 0 ? limits.rlim_max
                                                                               : 0;
}

std::optional<std::string> Machine::first_line_of(const std::vector<std::string>& command) const {
    const auto out = output_of(command);
    if (!out || out->empty()) return std::nullopt;
    return out->substr(0, out->find('\n'));
}

}  // namespace gpunbd::storage::diagnosis
