// One device of the kernel's NBD client, from when it is attached until it is given up: each
// connection that dies gets a successor, as soon as the same contents are served again.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "address.hpp"
#include "kernel_client.hpp"
#include "protocol/constants.hpp"

namespace gpunbd::attach {

struct Wanted {
    std::uint32_t device = 0;
    Address address;
    std::string name;
    unsigned connections = 1;
    KernelTimeouts timeouts{.dead_connection = std::chrono::seconds(60),
                            .request = std::chrono::seconds(5)};
};

class Attachment {
 public:
    static Or<Attachment> attach(Wanted wanted);

    // Until the descriptor `end` can be read, which detaches the device, or somebody else detaches
    // it; nothing then. A failure: the device is of no use any more.
    std::optional<Failure> hold(int end);

 private:
    using Clock = std::chrono::steady_clock;
    enum class Outcome { connected, server_away, other_contents, refused };

    Attachment(Wanted wanted, KernelClient kernel, ExportFacts facts)
        : wanted_(std::move(wanted)), kernel_(std::move(kernel)), facts_(std::move(facts)) {}

    void look_for_dead_connections();
    std::optional<Failure> replace_dead_connections();
    Outcome replace_one();
    bool given_up_by_kernel() const;
    std::chrono::milliseconds pause() const;
    void tell_once(std::string text);

    Wanted wanted_;
    KernelClient kernel_;
    ExportFacts facts_;
    unsigned dead_ = 0;
    Outcome last_ = Outcome::connected;
    Clock::time_point all_dead_since_;
    std::string refused_;  // the instance that the kernel has refused
    std::string told_;
};

}  // namespace gpunbd::attach
