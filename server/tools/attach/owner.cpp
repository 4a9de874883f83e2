#include "server/tools/attach/owner.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "server/base/environment.hpp"

namespace gpunbd::attach {
namespace {

std::vector<std::string> words_of_process(const std::string& folder) {
    std::ifstream file(folder + "/cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string each; std::getline(file, each, '\0');) words.push_back(each);
    return words;
}

std::optional<std::string> uri_for(const Device& device, const std::vector<std::string>& words) {
    if (words.size() < 2 || words[1] != "attach") return std::nullopt;
    if (std::find(words.begin(), words.end(), device.path()) == words.end()) return std::nullopt;
    const auto uri = std::find_if(words.begin(), words.end(), [](const std::string& each) {
        return each.find("://") != std::string::npos;
    });
    return uri == words.end() ? std::nullopt : std::optional(*uri);
}

}  // namespace

// Returns the first match, since the others are its child processes. With --background, the parent
// of this process has the same command line and waits for it, so it is no owner.
std::optional<Owner> owner_of(const Device& device) {
    std::optional<Owner> out;
    std::error_code error;
    for (std::filesystem::directory_iterator at(device.root() + "proc", error), end;
         !error && at != end; at.increment(error)) {
        const auto number = server::decimal(at->path().filename().string());
        const auto process = static_cast<pid_t>(number.value_or(0));
        if (process == 0 || process == ::getpid() || process == ::getppid()) continue;
        if (out && out->process < process) continue;
        auto uri = uri_for(device, words_of_process(at->path()));
        if (uri) out = Owner{process, std::move(*uri)};
    }
    return out;
}

}  // namespace gpunbd::attach
