#include "server/supervisor/passed_descriptors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "config/quote.hpp"
#include "server/base/process.hpp"
#include "server/supervisor/descriptor_store.hpp"

namespace gpunbd::server {

namespace {

constexpr int first_descriptor = 3;              // SD_LISTEN_FDS_START
constexpr const char* without_name = "unknown";  // as in systemd

bool for_this_process(const std::optional<std::string>& text) {
    if (!text) return false;
    const auto pid = decimal(*text);
    if (!pid) {
        throw std::runtime_error(
            fmt::format("LISTEN_PID: {} is not a process id; give that of gpunbd, or unset it",
                        config::in_quotes(*text)));
    }
    return *pid == static_cast<std::uint64_t>(::getpid());
}

int count_of(const std::string& text) {
    constexpr int most = std::numeric_limits<int>::max() - first_descriptor;
    const auto count = decimal(text);
    if (!count || *count == 0 || *count > most) {
        throw std::runtime_error(fmt::format(
            "LISTEN_FDS: {} is not a number of descriptors; give 1 or more, or unset it",
            config::in_quotes(text)));
    }
    return static_cast<int>(*count);
}

std::vector<std::string> names_of(const std::string& text, int count) {
    std::vector<std::string> names;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(':', at), text.size());
        names.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    if (names.size() != static_cast<std::size_t>(count)) {
        throw std::runtime_error(fmt::format(
            "LISTEN_FDNAMES: there are {} names, but LISTEN_FDS is {}", names.size(), count));
    }
    return names;
}

bool is_socket(int fd) {
    struct stat file {};
    return ::fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode);
}

std::vector<OwnedFd> by_number(std::vector<OwnedFd> descriptors) {
    std::sort(descriptors.begin(), descriptors.end(),
              [](const OwnedFd& one, const OwnedFd& other) { return one.get() < other.get(); });
    return descriptors;
}

}  // namespace

PassedDescriptors PassedDescriptors::from_environment() {
    const auto pid = take_variable("LISTEN_PID");
    const auto count_text = take_variable("LISTEN_FDS");
    const auto names_text = take_variable("LISTEN_FDNAMES");
    take_variable("LISTEN_PIDFDID");  // equals LISTEN_PID; since systemd 258
    PassedDescriptors out;
    if (!count_text || !for_this_process(pid)) return out;
    const int count = count_of(*count_text);
    const auto names =
        names_text ? names_of(*names_text, count)
                   : std::vector<std::string>(static_cast<std::size_t>(count), without_name);
    for (int i = 0; i != count; ++i) {
        const int fd = first_descriptor + i;
        if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
            throw std::runtime_error(
                fmt::format("LISTEN_FDS: {} descriptors from {} on are announced, but "
                            "{} is not open",
                            count, first_descriptor, fd));
        }
        out.descriptors_.emplace(names[static_cast<std::size_t>(i)], fd);
    }
    return out;
}

void PassedDescriptors::add(std::string name, OwnedFd descriptor) {
    descriptors_.emplace(std::move(name), std::move(descriptor));
}

std::vector<OwnedFd> PassedDescriptors::take(std::string_view name) {
    const auto [first, last] = descriptors_.equal_range(name);
    std::vector<OwnedFd> taken;
    for (auto each = first; each != last; ++each) taken.push_back(std::move(each->second));
    descriptors_.erase(first, last);
    return by_number(std::move(taken));
}

std::vector<OwnedFd> PassedDescriptors::take_sockets() {
    std::vector<OwnedFd> taken;
    for (auto each = descriptors_.begin(); each != descriptors_.end();) {
        if (!each->first.starts_with(own_prefix) && is_socket(each->second.get())) {
            taken.push_back(std::move(each->second));
            each = descriptors_.erase(each);
        } else {
            ++each;
        }
    }
    return by_number(std::move(taken));
}

std::vector<std::string> PassedDescriptors::names() const {
    std::vector<std::string> out;
    for (const auto& each : descriptors_) out.push_back(each.first);
    return out;
}

}  // namespace gpunbd::server
