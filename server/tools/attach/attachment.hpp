#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "server/tools/attach/device.hpp"
#include "server/tools/attach/kernel_client.hpp"
#include "server/tools/client/handshake.hpp"

namespace gpunbd::attach {

// `gpunbd attach --list`: the attached devices and their owners. All information comes from the
// kernel; gpunbd stores no state.

// `root`: the folder that contains sys and proc; tests pass another one.
std::string attachment_table(const std::string& root);
std::string attachment_json(const std::string& root);

// Finds the `gpunbd attach` process that maintains a device's connections, by its command line. The
// kernel records only the process that attached the device, which may have exited.
struct Owner {
    pid_t process = 0;
    std::string uri;
};

// nullopt if no other process owns the device.
std::optional<Owner> owner_of(const Device& device);

// One attached device of the kernel's NBD client. Each dead connection is replaced as soon as the
// server offers the same contents again.
struct AttachRequest {
    std::uint32_t device = 0;
    client::Endpoint endpoint;
    unsigned connections = 1;
    KernelTimeouts timeouts;
    std::optional<std::uint32_t> block_size;  // none: the server's minimum
    bool swap = false;
};

class Attachment {
 public:
    // Takes over a device that is attached to the same contents and has no owner.
    static Expected<Attachment, Failure> attach(AttachRequest wanted);

    const client::ExportFacts& facts() const { return facts_; }
    bool attached() { return kernel_.attached(wanted_.device); }
    void disconnect() { kernel_.disconnect(wanted_.device); }
    // Undoes attach(). A device that was taken over stays attached, because programs may use it.
    void undo_attach() {
        if (!taken_over_) disconnect();
    }

    // Replaces dead connections. Call it when `events` is readable, and after each `pause`. A
    // failure means that the device is not usable any more.
    std::optional<Failure> replace_dead_connections();
    int events() const { return kernel_.events(); }
    std::chrono::milliseconds pause() const;

 private:
    using Clock = std::chrono::steady_clock;
    enum class Outcome { connected, server_unreachable, other_contents, refused };

    Attachment(AttachRequest wanted, KernelClient kernel, client::ExportFacts facts)
        : wanted_(std::move(wanted)), kernel_(std::move(kernel)), facts_(std::move(facts)) {}

    void take_over();
    void update_dead_connections();
    // A new connection has this size.
    void follow_size(std::uint64_t size);
    Outcome replace_one();
    Clock::time_point give_up_at() const;
    void log_once(std::string text);

    AttachRequest wanted_;
    KernelClient kernel_;
    client::ExportFacts facts_;
    bool taken_over_ = false;
    std::uint64_t newest_size_ = facts_.size;          // that a connection has reported
    unsigned with_newest_size_ = wanted_.connections;  // connections, at least
    unsigned dead_ = 0;
    Outcome last_ = Outcome::connected;
    Clock::time_point all_dead_since_;
    std::string refused_;  // the instance that the kernel has refused
    std::string reported_;
};

}  // namespace gpunbd::attach
