#include "server/keeping/turn.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "server/keeping/descriptor_name.hpp"

namespace gpunbd::server {

std::optional<Turn> Turn::in(HandedOver& handed_over) {
    std::vector<OwnedFd> found = handed_over.take(turn_name);
    if (found.empty()) return std::nullopt;
    return Turn(std::move(found.front()));
}

bool Turn::wait() const {
    for (;;) {
        char word = 0;
        const ssize_t got = ::read(pipe_.get(), &word, sizeof word);
        if (got >= 0 || errno != EINTR) return got == sizeof word;
    }
}

}  // namespace gpunbd::server
