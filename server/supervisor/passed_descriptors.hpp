// The descriptors that a supervisor has handed over (sd_listen_fds_with_names(3)): stored by an
// earlier server, or sockets of socket activation. Their names distinguish them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class PassedDescriptors {
 public:
    using Descriptors = std::multimap<std::string, OwnedFd, std::less<>>;  // by name

    PassedDescriptors() = default;
    explicit PassedDescriptors(Descriptors descriptors) : descriptors_(std::move(descriptors)) {}
    // Reads LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES and removes them from the environment. The
    // descriptors are made close-on-exec. Empty if there are none for this process. Throws
    // std::runtime_error if a variable is invalid, because serving without the descriptors would be
    // wrong.
    static PassedDescriptors from_environment();

    // Adds a descriptor from a source other than the supervisor.
    void add(std::string name, OwnedFd descriptor);
    // Returns all descriptors of that name, lowest number first. The caller owns them.
    std::vector<OwnedFd> take(std::string_view name);
    // Returns the sockets, lowest number first, except those that a server has stored.
    std::vector<OwnedFd> take_sockets();
    // The names of the descriptors that have not been taken.
    std::vector<std::string> names() const;

 private:
    Descriptors descriptors_;
};

}  // namespace gpunbd::server
