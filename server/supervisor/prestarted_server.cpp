#include "server/supervisor/prestarted_server.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace gpunbd::server {

PrestartedServer::PrestartedServer(const ServerStart& start, StoredDescriptors& kept) {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    turn_.emplace(ends[1]);
    if (kept.keep(turn_name, OwnedFd(ends[0])) != StoredDescriptors::Answer::kept) return;
    pid_ = std::max(start_server(start, kept), pid_t{0});
    kept.remove(turn_name);
}

PrestartedServer::~PrestartedServer() {
    if (pid_ != 0) ::kill(pid_, SIGKILL);
}

pid_t PrestartedServer::go() {
    // One that has ended meanwhile is waited for as any server is.
    [[maybe_unused]] const ssize_t told = ::write(turn_->get(), "!", 1);
    return std::exchange(pid_, 0);
}

}  // namespace gpunbd::server
