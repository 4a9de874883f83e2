// One device of the kernel's NBD client, from when it is attached until it is given up: each
// connection that dies gets a successor, as soon as the same contents are served again.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "server/tools/attach/kernel_client.hpp"
#include "server/tools/client/call.hpp"

namespace gpunbd::attach {

struct Wanted {
    std::uint32_t device = 0;
    client::Endpoint callee;
    unsigned connections = 1;
    KernelTimeouts timeouts;
    std::optional<std::uint32_t> block_size;  // none: the least that the server takes
};

class Attachment {
 public:
    // A device that is attached to the same contents already, and has nobody who looks after it, is
    // taken over.
    static Or<Attachment> attach(Wanted wanted);

    const client::ExportFacts& facts() const { return facts_; }
    bool attached() { return kernel_.attached(wanted_.device); }
    void disconnect() { kernel_.disconnect(wanted_.device); }

    // To be called when `events` can be read, and each time that `pause` has passed: replaces the
    // connections that have died. A failure: the device is of no use any more.
    std::optional<Failure> replace_dead_connections();
    int events() const { return kernel_.events(); }
    std::chrono::milliseconds pause() const;

 private:
    using Clock = std::chrono::steady_clock;
    enum class Outcome { connected, server_away, other_contents, refused };

    Attachment(Wanted wanted, KernelClient kernel, client::ExportFacts facts)
        : wanted_(std::move(wanted)), kernel_(std::move(kernel)), facts_(std::move(facts)) {}

    void take_all_for_dead();
    void look_for_dead_connections();
    Outcome replace_one();
    bool given_up_by_kernel() const;
    void tell_once(std::string text);

    Wanted wanted_;
    KernelClient kernel_;
    client::ExportFacts facts_;
    unsigned dead_ = 0;
    Outcome last_ = Outcome::connected;
    Clock::time_point all_dead_since_;
    std::string refused_;  // the instance that the kernel has refused
    std::string told_;
};

}  // namespace gpunbd::attach
