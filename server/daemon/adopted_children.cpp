#include "server/daemon/adopted_children.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <new>
#include <string_view>
#include <utility>

namespace gpunbd::server {

namespace {

namespace fs = std::filesystem;

// Whether /proc/PID/stat is that of a zombie whose parent is this process; proc(5).
bool is_ended_child(const fs::path& stat) {
    std::ifstream file(stat);
    std::string text;
    std::getline(file, text);
    const std::size_t end_of_name = text.rfind(')');  // the name may contain any character
    if (end_of_name == std::string::npos) return false;
    const std::string ended = fmt::format(") Z {} ", ::getpid());
    return std::string_view(text).substr(end_of_name).starts_with(ended);
}

std::set<pid_t> ended_children() {
    std::set<pid_t> found;
    std::error_code error;
    for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename();
        pid_t pid = 0;
        const auto [stop, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
        const bool number = wrong == std::errc{} && stop == name.data() + name.size();
        if (number && is_ended_child(at->path() / "stat")) found.insert(pid);
    }
    return found;
}

}  // namespace

AdoptedChildren::AdoptedChildren(boost::asio::io_context& io)
    : poll_(io, interval, [this] {
          try {
              check();
          } catch (const std::bad_alloc&) {
              // The next check retries.
          }
          return true;
      }) {}

void AdoptedChildren::check() {
    siginfo_t ended{};
    const bool any =
        ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0;
    std::set<pid_t> found = any ? ended_children() : std::set<pid_t>();
    std::erase_if(found, [this](pid_t child) {
        return ended_.contains(child) && ::waitpid(child, nullptr, WNOHANG) == child;
    });
    ended_ = std::move(found);
}

}  // namespace gpunbd::server
