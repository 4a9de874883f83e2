// Descriptors that a supervisor handed over (sd_listen_fds_with_names(3)): what an earlier server
// stored, and sockets of socket activation, told apart by their names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class InheritedDescriptors {
 public:
    using Descriptors = std::multimap<std::string, OwnedFd, std::less<>>;  // by name

    InheritedDescriptors() = default;
    explicit InheritedDescriptors(Descriptors descriptors) : descriptors_(std::move(descriptors)) {}
    // From LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, which are taken out of the environment; the
    // descriptors are made close-on-exec. Empty where there are none for this process. Throws
    // std::runtime_error where they make no sense: whoever hands descriptors over does not want to
    // be served without them.
    static InheritedDescriptors from_environment();

    // From somebody else than the supervisor.
    void add(std::string name, OwnedFd descriptor);
    // All of that name, lowest number first. They are the caller's then.
    std::vector<OwnedFd> take(std::string_view name);
    // The sockets, lowest number first, but for those that a server has stored itself.
    std::vector<OwnedFd> take_sockets();
    // Of those that have not been taken.
    std::vector<std::string> names() const;

 private:
    Descriptors descriptors_;
};

}  // namespace gpunbd::server
