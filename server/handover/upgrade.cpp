#include "server/handover/upgrade.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds preparing_patience{60};  // clients do not notice
constexpr std::chrono::seconds ready_patience{20};      // clients wait
constexpr std::chrono::seconds answers_patience{2};     // for clients that do not read
constexpr std::chrono::seconds answers_limit{10};       // for slow clients
constexpr std::chrono::seconds quiet_patience{30};      // for devices as well
constexpr std::chrono::seconds follow_patience{5};      // for the supervisor
constexpr std::chrono::milliseconds stuck_after{100};   // without any transferred byte
constexpr std::chrono::milliseconds resume_period{50};
constexpr auto check_interval = std::chrono::microseconds(500);

}  // namespace

Upgrade::Upgrade(Parts parts, Yield yield, Completion completion)
    : parts_(parts),
      yield_(std::move(yield)),
      completion_(std::move(completion)),
      timer_(parts.io) {}

void Upgrade::start(const SuccessorStart& start, const std::vector<UpgradeMessage>& first) {
    GPUNBD_ASSERT(!successor_ && !over_, "an upgrade starts one successor");
    successor_.emplace(start);
    try {
        for (const UpgradeMessage& message : first) successor_->socket().send(message);
        successor_->socket().send({.kind = MessageKind::prepare});
    } catch (const std::exception&) {
        // It may have sent a reason.
        if (successor_->socket().has_message()) {
            successor_->socket().expect(MessageKind::prepared, std::chrono::milliseconds(0));
        }
        throw;
    }
    OwnedFd copy = OwnedFd::copy_of(successor_->socket().descriptor());
    if (!copy) throw std::runtime_error("no descriptors are available");
    messages_.emplace(parts_.io, copy.get());
    static_cast<void>(copy.release());  // messages_ owns it now
    wait_for_message(preparing_patience, &Upgrade::pause);
}

void Upgrade::wait_for_message(std::chrono::seconds patience, Step then) {
    timer_.expires_after(patience);
    timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
        const auto self = weak.lock();
        if (self && !error) self->fail("it did not answer in time");
    });
    messages_->async_wait(
        asio::posix::stream_descriptor::wait_read,
        [weak = weak_from_this(), patience, then](boost::system::error_code error) {
            const auto self = weak.lock();
            if (!self || error || self->over_) return;
            if (self->successor_->socket().has_message()) {
                self->attempt(then);
            } else {  // spurious wakeup
                self->wait_for_message(patience, then);
            }
        });
}

void Upgrade::attempt(Step step) {
    if (over_) return;
    try {
        (this->*step)();
    } catch (const std::exception& error) {
        fail(error.what());
    }
}

void Upgrade::pause() {
    successor_->socket().expect(MessageKind::prepared, std::chrono::milliseconds(0));
    timer_.cancel();
    GPUNBD_ASSERT(!paused_, "clients are paused once for each upgrade");
    paused_ = true;
    unread_since_ = moved_last_ = checked_last_ = Clock::now();
    quiet_at_last_ = checked_last_ + quiet_patience;
    for (const auto& listener : parts_.listeners) listener->pause();
    for (const auto& worker : parts_.workers) worker->quiesce_sessions();
    parts_.devices.pause_requests();
    check_quiet();
}

void Upgrade::check_quiet() {
    GPUNBD_ASSERT(paused_ && pending_workers_ == 0, "one check of the sessions is in progress");
    pending_workers_ = parts_.workers.size();
    moved_before_ = std::exchange(unquiet_, {}).moved;
    for (const auto& worker : parts_.workers) {
        worker->count_busy([weak = weak_from_this(), &io = parts_.io](Worker::Busy unquiet) {
            asio::post(io, [weak, unquiet] {
                if (const auto self = weak.lock()) self->counted(unquiet);
            });
        });
    }
}

void Upgrade::counted(Worker::Busy unquiet) {
    GPUNBD_ASSERT(pending_workers_ != 0, "each worker answers once");
    unquiet_.sessions += unquiet.sessions;
    unquiet_.unread += unquiet.unread;
    unquiet_.moved += unquiet.moved;
    if (--pending_workers_ != 0 || over_) return;
    const Clock::time_point now = Clock::now();
    const Clock::duration since_last = now - std::exchange(checked_last_, now);
    if (unquiet_.unread == 0) unread_since_ = moved_last_ = now;
    if (unquiet_.moved > moved_before_) {
        moved_last_ = now;
    } else if (since_last > stuck_after) {
        // This process or the whole machine did not run, so the clients could make no progress.
        moved_last_ += since_last;
    }
    if (unquiet_.sessions == 0 && parts_.devices.paused()) {
        attempt(&Upgrade::move_sessions);
    } else if (now >= quiet_at_last_) {
        fail("requests in progress do not end");
    } else if (now >= std::min(moved_last_ + answers_patience, unread_since_ + answers_limit)) {
        for (const auto& worker : parts_.workers) {
            worker->cut_unread_sessions(
                "it did not read its replies, and another server takes over");
        }
        schedule_check();
    } else if (now - std::max(moved_last_, resumed_last_) >= stuck_after) {
        resume_busy_briefly();
    } else {
        schedule_check();
    }
}

void Upgrade::schedule_check() {
    timer_.expires_after(check_interval);
    timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
        const auto self = weak.lock();
        if (self && !error && !self->over_) self->check_quiet();
    });
}

// Some clients read no reply before they have sent all their requests. They would wait forever for
// a server that does not receive.
void Upgrade::resume_busy_briefly() {
    resumed_last_ = Clock::now() + resume_period;
    for (const auto& worker : parts_.workers) worker->resume_busy_sessions();
    timer_.expires_after(resume_period);
    timer_.async_wait([weak = weak_from_this()](boost::system::error_code error) {
        const auto self = weak.lock();
        if (!self || error || self->over_) return;
        for (const auto& worker : self->parts_.workers) worker->quiesce_sessions();
        self->check_quiet();
    });
}

void Upgrade::move_sessions() {
    GPUNBD_ASSERT(paused_ && moving_.empty(), "sessions move once, while clients are paused");
    parts_.contents.quiesce();
    pending_workers_ = parts_.workers.size();
    for (const auto& worker : parts_.workers) {
        using Moving = std::vector<std::unique_ptr<Session::Moving>>;
        worker->move_sessions([weak = weak_from_this(), &io = parts_.io](Moving moving) {
            asio::post(io, [weak, moving = std::move(moving)]() mutable {
                const auto self = weak.lock();
                if (!self || self->over_) return;
                GPUNBD_ASSERT(self->pending_workers_ != 0, "each worker answers once");
                std::move(moving.begin(), moving.end(), std::back_inserter(self->moving_));
                if (--self->pending_workers_ == 0) self->attempt(&Upgrade::hand_over);
            });
        });
    }
}

void Upgrade::hand_over() {
    GPUNBD_ASSERT(paused_ && successor_, "the successor gets what no client changes any more");
    const MessageSocket& socket = successor_->socket();
    for (RetainedContents::Copy& each : parts_.contents.copies()) {
        socket.send({.kind = MessageKind::contents,
                     .body = text_body(each.name),
                     .descriptor = std::move(each.descriptor)});
    }
    for (const auto& each : moving_) send_connection(*each);
    socket.send({.kind = MessageKind::all});
    wait_for_message(ready_patience, &Upgrade::finish);
}

void Upgrade::send_connection(Session::Moving& moving) {
    const MessageSocket& socket = successor_->socket();
    socket.send({.kind = MessageKind::connection,
                 .body = encode_connection(moving.state),
                 .descriptor = std::move(moving.socket)});
    constexpr std::size_t piece = max_upgrade_message / 2;
    for (std::span<const std::byte> left = moving.state.received; !left.empty();) {
        const auto next = left.first(std::min(piece, left.size()));
        socket.send({.kind = MessageKind::received, .body = {next.begin(), next.end()}});
        left = left.subspan(next.size());
    }
}

void Upgrade::finish() {
    successor_->socket().expect(MessageKind::ready, std::chrono::milliseconds(0));
    timer_.cancel();
    GPUNBD_ASSERT(paused_ && !over_, "an upgrade is finished once");
    const std::string message = fmt::format("MAINPID={}", successor_->pid());
    if (const auto wrong = parts_.supervisor.send(message)) throw std::runtime_error(*wrong);
    // From here on the hand-over cannot be undone: if the successor dies, the supervisor starts
    // another server.
    over_ = true;
    if (const auto wrong = parts_.supervisor.barrier(follow_patience)) spdlog::warn("{}", *wrong);
    yield_();
    try {
        successor_->socket().send({.kind = MessageKind::activate});
    } catch (const std::exception& error) {
        spdlog::error("the new server failed during the hand-over: {}", error.what());
    }
    for (const auto& worker : parts_.workers) worker->leave_sessions();
    spdlog::info("process {} serves now, with {} connections of this server", successor_->pid(),
                 moving_.size());
    successor_->detach();
    moving_.clear();
    completion_({});
}

void Upgrade::give_up() {
    GPUNBD_ASSERT(!over_, "an upgrade that is over is not given up");
    over_ = true;
    timer_.cancel();
    successor_.reset();
    resume();
}

void Upgrade::resume() {
    if (!std::exchange(paused_, false)) return;
    moving_.clear();
    parts_.contents.resume();
    parts_.devices.resume_requests();
    for (const auto& worker : parts_.workers) worker->resume_sessions();
    for (const auto& listener : parts_.listeners) listener->resume();
}

void Upgrade::fail(const std::string& why) {
    if (over_) return;
    give_up();
    completion_(why);
}

}  // namespace gpunbd::server
