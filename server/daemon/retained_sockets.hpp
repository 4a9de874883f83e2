// Listening sockets that outlive the server: clients that connect during a restart wait in the
// backlog. The supervisor stores the sockets under names derived from their addresses.
#pragma once

#include <optional>
#include <string>

#include "server/supervisor/descriptor_store.hpp"
#include "server/supervisor/inherited_descriptors.hpp"

namespace gpunbd::server {

class RetainedSockets {
 public:
    // `store` and `handed_over` outlive this object. `outlive`: the sockets are stored for the
    // next server; otherwise those of an earlier server are taken over, but not stored again.
    RetainedSockets(DescriptorStore& store, InheritedDescriptors& handed_over, bool outlive)
        : store_(store), handed_over_(handed_over), outlive_(outlive) {}
    bool outlive() const { return outlive_; }

    // The name of the stored socket of that address.
    static std::string name(const std::string& address);
    // Returns the stored socket of an earlier server for that address.
    std::optional<OwnedFd> take(const std::string& address);
    void keep(const std::string& address, int fd);
    // Removes the sockets that were not taken, because the configuration does not contain them any
    // more.
    void forget_the_rest();

 private:
    void forget(const std::string& its_name);

    DescriptorStore& store_;
    InheritedDescriptors& handed_over_;
    bool outlive_;
};

}  // namespace gpunbd::server
