// Hands a server over to the one that is started in its place: listeners, what is kept, and every
// connection that can go on there. Until the other one has said that it has all, nothing is lost by
// going on here.
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

#include "server/handover/retained_contents.hpp"
#include "server/handover/successor.hpp"
#include "server/nbd/worker.hpp"
#include "server/net/listener.hpp"
#include "server/supervisor/notify_socket.hpp"

namespace gpunbd::server {

class Upgrade : public std::enable_shared_from_this<Upgrade> {
 public:
    // Of the server; they outlive this.
    struct Parts {
        boost::asio::io_context& io;
        const std::vector<std::unique_ptr<Worker>>& workers;
        const std::vector<std::unique_ptr<Listener>>& listeners;
        RetainedContents& contents;
        const NotifySocket& supervisor;
    };
    // Empty: the other one serves, and the clients that it has are not here any more. Else why
    // not; everything is as it was.
    using Completion = std::function<void(const std::string& why_not)>;
    // The other one is about to serve, whatever comes: what only one process can have is let go of.
    using Yield = std::function<void()>;

    Upgrade(Parts parts, Yield yield, Completion told);

    // On the thread of `io`, as all that follows. `first`: messages that it is to have while this
    // one serves. Throws std::runtime_error: it cannot be started.
    void start(const SuccessorStart& start, const std::vector<UpgradeMessage>& first);
    // Nobody is told.
    void give_up();

 private:
    using Clock = std::chrono::steady_clock;
    using Step = void (Upgrade::*)();

    // Calls it once the other one has said something, and fails when that takes too long.
    void wait_for_message(std::chrono::seconds patience, Step then);
    void attempt(Step step);
    void pause();
    void check_quiet();
    void counted(Worker::Busy unquiet);
    void look_again();
    void resume_busy_briefly();
    void move_sessions();
    void hand_over();
    void send_connection(Session::Moving& moving);
    void finish();
    void go_on();
    void fail(const std::string& why);

    const Parts parts_;
    const Yield yield_;
    const Completion told_;
    std::optional<Successor> successor_;
    std::optional<boost::asio::posix::stream_descriptor> messages_;
    boost::asio::steady_timer timer_;
    bool paused_ = false;
    bool cut_ = false;
    bool over_ = false;
    Clock::time_point quiet_until_;
    Clock::time_point quiet_at_last_;
    Clock::time_point moved_last_;
    std::size_t workers_asked_ = 0;
    Worker::Busy unquiet_;
    std::uint64_t moved_before_ = 0;  // bytes, at the look before
    std::vector<std::unique_ptr<Session::Moving>> moving_;
};

}  // namespace gpunbd::server
