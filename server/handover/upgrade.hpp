// Hands the listeners, the kept contents and the connections of this server over to its successor.
// Until the successor is ready, this server can resume without any loss.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/handover/local_devices.hpp"
#include "server/handover/retained_contents.hpp"
#include "server/handover/successor.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/listener.hpp"
#include "server/supervisor/notify_socket.hpp"

namespace gpunbd::server {

class Upgrade : public std::enable_shared_from_this<Upgrade> {
 public:
    // References to parts of the server, which outlive this object.
    struct Parts {
        boost::asio::io_context& io;
        const std::vector<std::unique_ptr<Worker>>& workers;
        const std::vector<std::unique_ptr<Listener>>& listeners;
        RetainedContents& contents;
        LocalDevices& devices;
        const NotifySocket& supervisor;
    };
    // Empty: the successor serves. Otherwise the reason for the failure; this server is unchanged.
    using Completion = std::function<void(const std::string& why_not)>;
    // Called before the successor serves: releases resources that only one process can own.
    using Yield = std::function<void()>;

    Upgrade(Parts parts, Yield yield, Completion completion);

    // On the thread of `io`, like the following functions. `first`: messages for the successor
    // while this server serves. Throws std::runtime_error if it cannot be started.
    void start(const SuccessorStart& start, const std::vector<UpgradeMessage>& first);
    // Cancels the upgrade. The completion is not called.
    void give_up();

 private:
    using Clock = std::chrono::steady_clock;
    using Step = void (Upgrade::*)();

    // Calls `then` when the successor has sent a message. Fails after `patience`.
    void wait_for_message(std::chrono::seconds patience, Step then);
    void attempt(Step step);
    void pause();
    void check_quiet();
    void counted(Worker::Busy unquiet);
    void schedule_check();
    void resume_busy_briefly();
    void move_sessions();
    void hand_over();
    void send_connection(Session::Moving& moving);
    void finish();
    void resume();
    void fail(const std::string& why);

    const Parts parts_;
    const Yield yield_;
    const Completion completion_;
    std::optional<Successor> successor_;
    std::optional<boost::asio::posix::stream_descriptor> messages_;
    boost::asio::steady_timer timer_;
    bool paused_ = false;
    bool over_ = false;
    Clock::time_point quiet_at_last_;  // the upgrade fails if sessions are busy until then
    Clock::time_point unread_since_;   // since then some client has not read all its replies
    Clock::time_point moved_last_;     // clients read then, or had nothing to read
    Clock::time_point resumed_last_;
    Clock::time_point checked_last_;
    std::size_t pending_workers_ = 0;
    Worker::Busy unquiet_;
    std::uint64_t moved_before_ = 0;  // bytes, at the previous check
    std::vector<std::unique_ptr<Session::Moving>> moving_;
};

}  // namespace gpunbd::server
