#include "server/supervisor/start_gate.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "server/supervisor/descriptor_name.hpp"

namespace gpunbd::server {

std::optional<StartGate> StartGate::in(InheritedDescriptors& handed_over) {
    std::vector<OwnedFd> found = handed_over.take(start_gate_name);
    if (found.empty()) return std::nullopt;
    return StartGate(std::move(found.front()));
}

bool StartGate::wait() const {
    for (;;) {
        char word = 0;
        const ssize_t got = ::read(pipe_.get(), &word, sizeof word);
        if (got >= 0 || errno != EINTR) return got == sizeof word;
    }
}

}  // namespace gpunbd::server
