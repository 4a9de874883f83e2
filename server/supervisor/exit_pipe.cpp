#include "server/supervisor/exit_pipe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "server/supervisor/notice.hpp"

namespace gpunbd::server {

ExitPipe::ExitPipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    supervisors_end_.emplace(ends[0]);
    own_end_.emplace(ends[1]);
}

std::optional<std::string> ExitPipe::hand_over(const NotifySocket& supervisor) {
    if (!supervisors_end_) return std::nullopt;
    const std::array<int, 1> sent{supervisors_end_->get()};
    auto wrong = supervisor.send(exit_pipe_line, sent);
    supervisors_end_.reset();
    return wrong;
}

}  // namespace gpunbd::server
