// The kernel's NBD client, by generic netlink: it is given connections whose handshake is done, and
// tells which of them have died.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "server/tools/attach/generic_socket.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::attach {

struct KernelTimeouts {
    std::chrono::seconds dead_connection;  // how long requests wait for a new connection
    // After which a connection counts as dead, and what was in flight on one that died is sent
    // again; 0: a connection never does, and the latter takes the kernel's 30 s.
    std::chrono::seconds request;
};

class KernelClient {
 public:
    static Or<KernelClient> open();

    // Each gives an errno, or 0. The kernel holds the sockets from then on; the caller's
    // descriptors may be closed.
    int connect(std::uint32_t device, const client::ExportFacts& facts, KernelTimeouts timeouts,
                std::span<const OwnedFd> sockets);
    // In the place of one that has died; where none has, the kernel does nothing. EINVAL: the
    // kernel has other contents at this device than `instance`, or the device is not attached.
    int reconnect(std::uint32_t device, const std::string& instance, int socket);
    int disconnect(std::uint32_t device);
    // True as well where the kernel does not say: who cannot be asked is not given up.
    bool attached(std::uint32_t device);

    // How many connections of the device have died since the last call, at most; a number that is
    // too large does no harm.
    unsigned dead_connections(std::uint32_t device, unsigned all);
    int events() const { return events_.fd(); }

 private:
    KernelClient(GenericSocket requests, GenericSocket events, std::uint16_t family)
        : requests_(std::move(requests)), events_(std::move(events)), family_(family) {}

    GenericMessage message(int command) const;

    GenericSocket requests_;
    GenericSocket events_;
    std::uint16_t family_;
};

}  // namespace gpunbd::attach
