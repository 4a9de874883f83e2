// Listening sockets that outlive the server: clients that come while none runs wait in their
// backlogs. The supervisor has them under names made of their addresses.
#pragma once

#include <optional>
#include <string>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/inherited_descriptors.hpp"

namespace gpunbd::server {

class RetainedSockets {
 public:
    // Both outlive it. `outlive`: the sockets do; else what an earlier server has kept is taken
    // over for the last time.
    RetainedSockets(DescriptorStore& store, InheritedDescriptors& handed_over, bool outlive)
        : store_(store), handed_over_(handed_over), outlive_(outlive) {}
    bool outlive() const { return outlive_; }

    // Under which the supervisor has the one of that address.
    static std::string name(const std::string& address);
    // The socket that an earlier server had there, and the supervisor has still.
    std::optional<OwnedFd> take(const std::string& address);
    void keep(const std::string& address, int fd);
    // What has not been taken is given up: the configuration does not ask for it any more.
    void forget_the_rest();

 private:
    void forget(const std::string& its_name);

    DescriptorStore& store_;
    InheritedDescriptors& handed_over_;
    bool outlive_;
};

}  // namespace gpunbd::server
