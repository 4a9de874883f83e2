#include "server/supervisor/prestarted_server.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

PrestartedServer::PrestartedServer(const ServerStart& start, StoredDescriptors& kept) {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    start_pipe_.emplace(ends[1]);
    if (kept.keep(start_gate_name, OwnedFd(ends[0])) != StoredDescriptors::Answer::kept) return;
    pid_ = std::max(start_server(start, kept), pid_t{0});
    kept.remove(start_gate_name);
}

PrestartedServer::~PrestartedServer() {
    if (pid_ != 0) ::kill(pid_, SIGKILL);
}

pid_t PrestartedServer::go() {
    GPUNBD_ASSERT(pid_ != 0, "a pre-started server is released once");
    // If it has ended meanwhile, the keeper reaps it like any server.
    [[maybe_unused]] const ssize_t written = ::write(start_pipe_->get(), "!", 1);
    return std::exchange(pid_, 0);
}

}  // namespace gpunbd::server
