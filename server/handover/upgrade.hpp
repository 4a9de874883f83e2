#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "server/base/task.hpp"
#include "server/handover/kept_contents.hpp"
#include "server/handover/successor.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/listener.hpp"
#include "server/supervisor/notify_socket.hpp"

namespace gpunbd::server {

// The block devices that a server itself makes, as an upgrade sees them.
class LocalDevices {
 public:
    // Requests in flight end, later ones wait in the kernel.
    virtual void pause_requests() = 0;
    virtual bool paused() const = 0;  // no request is in flight
    // After pause_requests(): serves the requests that wait.
    virtual void resume_requests() = 0;

 protected:
    ~LocalDevices() = default;
};

// Hands the listeners, the kept contents and the connections of this server over to its successor.
// Until the successor is ready, this server can resume without any loss.
class Upgrade {
 public:
    // References to parts of the server, which outlive this object.
    struct Parts {
        boost::asio::io_context& io;
        const std::vector<std::unique_ptr<Worker>>& workers;
        const std::vector<std::unique_ptr<Listener>>& listeners;
        KeptContents& contents;
        LocalDevices& devices;
        const NotifySocket& supervisor;
    };

    explicit Upgrade(const Parts& parts) : parts_(parts), timer_(parts.io) {}
    // Kills the successor, unless the supervisor follows it.
    ~Upgrade() = default;
    Upgrade(const Upgrade&) = delete;
    Upgrade& operator=(const Upgrade&) = delete;

    // Starts the successor, moves clients and contents to it, and makes the supervisor follow it.
    // `first`: messages for the successor while this server serves. Throws std::runtime_error: the
    // reason for the failure; give_up() is next. On the thread of `io`.
    Task<> run(SuccessorStart start, std::vector<UpgradeMessage> first);
    // Kills the successor and resumes the clients, unless the supervisor follows the successor.
    void give_up();
    // After run(), once the resources are released that only one process can own: the successor
    // serves.
    void activate();

 private:
    using Clock = std::chrono::steady_clock;
    class Progress;

    void prepare(const std::vector<UpgradeMessage>& first);
    Awaited<bool> message_or_timeout(Clock::time_point end);
    Task<> expect(MessageKind kind, std::chrono::seconds patience);
    void pause();
    Task<> wait_until_quiet();
    Task<> pause_caches();
    void send_connection(Session::Moving& moving) const;
    void resume();

    const Parts parts_;
    std::optional<Successor> successor_;
    std::optional<boost::asio::posix::stream_descriptor> messages_;
    boost::asio::steady_timer timer_;
    bool paused_ = false;
    bool followed_ = false;  // by the supervisor
    std::vector<std::unique_ptr<Session::Moving>> moving_;
};

}  // namespace gpunbd::server
