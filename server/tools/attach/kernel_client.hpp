#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "server/tools/attach/generic_socket.hpp"
#include "server/tools/client/failure.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::attach {

// Checks an export against the limits of the kernel's client.

// Sets `facts.block_size` to `wanted`, or to the minimum that both the server and the kernel
// support.
std::optional<Failure> fit_for_kernel(client::ExportFacts& facts,
                                      std::optional<std::uint32_t> wanted);

// The kernel's NBD client, controlled over generic netlink: it takes connections after the
// handshake, and reports dead ones.
struct KernelTimeouts {
    std::chrono::seconds dead_connection;  // how long requests wait for a new connection
    // A connection with a request older than this is dead, and its requests are sent again. 0:
    // connections never time out, and requests of a dead one are sent again after the kernel's
    // default of 30 s.
    std::chrono::seconds request;
};

class KernelClient {
 public:
    static Expected<KernelClient, Failure> open();

    // Each returns an errno, or 0. The kernel keeps its own references to the sockets, so the
    // caller may close its descriptors.
    int connect(std::uint32_t device, const client::ExportFacts& facts, KernelTimeouts timeouts,
                std::span<const OwnedFd> sockets);
    // Replaces a dead connection; does nothing if none is dead. EINVAL: the device has another
    // instance, or is not attached.
    int reconnect(std::uint32_t device, const std::string& instance, int socket);
    // Gives the device another size.
    int resize(std::uint32_t device, const std::string& instance, std::uint64_t size);
    int disconnect(std::uint32_t device);
    // Also true if the kernel does not answer.
    bool attached(std::uint32_t device);

    // An upper bound of the connections that have died since the last call. A larger number is
    // sanitized.
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
