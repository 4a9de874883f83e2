#include "server/handover/upgrade.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <stdexcept>
#include <utility>

#include "server/base/task.hpp"
#include "server/nbd/all_workers.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds preparing_patience{60};  // clients do not notice
constexpr std::chrono::seconds ready_patience{20};      // clients wait
constexpr std::chrono::seconds answers_patience{2};     // for clients that do not read
constexpr std::chrono::seconds answers_limit{10};       // for slow clients
constexpr std::chrono::seconds quiet_patience{30};      // for devices as well
constexpr std::chrono::seconds caches_patience{5};      // for origins; clients wait
constexpr std::chrono::seconds follow_patience{5};      // for the supervisor
constexpr std::chrono::milliseconds stuck_after{100};   // without any transferred byte
constexpr std::chrono::milliseconds resume_period{50};
constexpr auto check_interval = std::chrono::microseconds(500);

}  // namespace

// How far clients are with reading the replies that they have.
class Upgrade::Progress {
 public:
    void add(const std::vector<Worker::Busy>& of_workers, Clock::time_point now) {
        const std::uint64_t moved_before = std::exchange(busy_, {}).moved;
        for (const Worker::Busy& each : of_workers) {
            busy_.sessions += each.sessions;
            busy_.unread += each.unread;
            busy_.moved += each.moved;
        }
        const Clock::duration since_last = now - std::exchange(checked_last_, now);
        if (busy_.unread == 0) unread_since_ = moved_last_ = now;
        if (busy_.moved > moved_before) {
            moved_last_ = now;
        } else if (since_last > stuck_after) {
            // This process or the whole machine did not run, so the clients could make no progress.
            moved_last_ += since_last;
        }
    }
    bool ended() const { return busy_.sessions == 0; }
    bool too_slow(Clock::time_point now) const {
        return now >= std::min(moved_last_ + answers_patience, unread_since_ + answers_limit);
    }
    bool stuck(Clock::time_point now) const {
        return now - std::max(moved_last_, resumed_last_) >= stuck_after;
    }
    void set_resumed(Clock::time_point until) { resumed_last_ = until; }

 private:
    Worker::Busy busy_;
    Clock::time_point checked_last_ = Clock::now();
    Clock::time_point unread_since_ = checked_last_;  // some client has not read all its replies
    Clock::time_point moved_last_ = checked_last_;    // clients read then, or had nothing to read
    Clock::time_point resumed_last_;
};

void Upgrade::give_up() {
    GPUNBD_ASSERT(!followed_, "a hand-over that the supervisor follows cannot be undone");
    successor_.reset();
    resume();
}

Task<> Upgrade::run(SuccessorStart start, std::vector<UpgradeMessage> first) {
    GPUNBD_ASSERT(!successor_, "an upgrade starts one successor");
    successor_.emplace(start);
    prepare(first);
    first.clear();  // its descriptors: as many are needed for the contents
    co_await expect(MessageKind::prepared, preparing_patience);
    pause();
    co_await wait_until_quiet();
    co_await pause_caches();
    parts_.contents.quiesce();
    if (const auto why = parts_.contents.hand_over_caches()) throw std::runtime_error(*why);
    using Moving = std::vector<std::unique_ptr<Session::Moving>>;
    auto moved = co_await all_workers<Moving>(parts_.io, parts_.workers, &Worker::move_sessions);
    for (Moving& each : moved) std::move(each.begin(), each.end(), std::back_inserter(moving_));
    const MessageSocket& socket = successor_->socket();
    for (KeptContents::Copy& each : parts_.contents.copies()) {
        socket.send({.kind = MessageKind::contents,
                     .body = text_body(each.name),
                     .descriptor = std::move(each.descriptor)});
    }
    for (auto& [name, lock] : parts_.contents.origin_locks()) {
        socket.send({.kind = MessageKind::origin_lock,
                     .body = text_body(name),
                     .descriptor = std::move(lock)});
    }
    for (const auto& each : moving_) send_connection(*each);
    socket.send({.kind = MessageKind::all});
    co_await expect(MessageKind::ready, ready_patience);
    const std::string message = fmt::format("MAINPID={}", successor_->pid());
    if (const auto wrong = parts_.supervisor.send(message)) throw std::runtime_error(*wrong);
    // From here on the hand-over cannot be undone: if the successor dies, the supervisor starts
    // another server.
    followed_ = true;
    storage::log_if_possible([&] {
        if (const auto wrong = parts_.supervisor.barrier(follow_patience))
            spdlog::warn("{}", *wrong);
    });
}

void Upgrade::prepare(const std::vector<UpgradeMessage>& first) {
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
}

Task<> Upgrade::expect(MessageKind kind, std::chrono::seconds patience) {
    const Clock::time_point end = Clock::now() + patience;
    do {  // again after a spurious wakeup
        Awaited<bool> event = message_or_timeout(end);
        if (!co_await event) throw std::runtime_error("it did not answer in time");
    } while (!successor_->socket().has_message());
    successor_->socket().expect(kind, std::chrono::milliseconds(0));
}

// Whether there is a message.
Awaited<bool> Upgrade::message_or_timeout(Clock::time_point end) {
    Awaited<bool> event(parts_.io);
    timer_.expires_at(end);
    timer_.async_wait([give = event.giver()](boost::system::error_code error) {
        if (!error) give(false);
    });
    messages_->cancel();
    messages_->async_wait(asio::posix::stream_descriptor::wait_read,
                          [give = event.giver()](boost::system::error_code error) {
                              if (!error) give(true);
                          });
    return event;
}

void Upgrade::pause() {
    GPUNBD_ASSERT(!paused_, "clients are paused once for each upgrade");
    paused_ = true;
    for (const auto& listener : parts_.listeners) listener->pause();
    for (const auto& worker : parts_.workers) worker->quiesce_sessions();
    parts_.devices.pause_requests();
}

Task<> Upgrade::wait_until_quiet() {
    const Clock::time_point quiet_at_last = Clock::now() + quiet_patience;
    Progress progress;
    for (;;) {
        const auto busy =
            co_await all_workers<Worker::Busy>(parts_.io, parts_.workers, &Worker::count_busy);
        const Clock::time_point now = Clock::now();
        progress.add(busy, now);
        if (progress.ended() && parts_.devices.paused()) co_return;
        if (now >= quiet_at_last) throw std::runtime_error("requests in progress do not end");
        if (progress.too_slow(now)) {
            for (const auto& worker : parts_.workers) {
                worker->cut_unread_sessions(
                    "it did not read its replies, and another server takes over");
            }
        } else if (progress.stuck(now)) {
            // Some clients read no reply before they have sent all their requests. They would wait
            // forever for a server that does not receive.
            progress.set_resumed(Clock::now() + resume_period);
            for (const auto& worker : parts_.workers) worker->resume_busy_sessions();
            co_await sleep_for(parts_.io, timer_, resume_period);
            for (const auto& worker : parts_.workers) worker->quiesce_sessions();
            continue;
        }
        co_await sleep_for(parts_.io, timer_, check_interval);
    }
}

// Reads and writes of origins are in progress, which may be slow.
Task<> Upgrade::pause_caches() {
    const Clock::time_point paused_at_last = Clock::now() + caches_patience;
    parts_.contents.pause_caches();
    while (!parts_.contents.caches_paused()) {
        if (Clock::now() >= paused_at_last) {
            throw std::runtime_error("an origin does not answer requests in progress");
        }
        co_await sleep_for(parts_.io, timer_, check_interval);
    }
}

void Upgrade::send_connection(Session::Moving& moving) const {
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

void Upgrade::activate() {
    GPUNBD_ASSERT(paused_ && followed_, "the successor serves once the supervisor follows it");
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
}

void Upgrade::resume() {
    if (!std::exchange(paused_, false)) return;
    moving_.clear();
    parts_.contents.resume();
    parts_.devices.resume_requests();
    for (const auto& worker : parts_.workers) worker->resume_sessions();
    for (const auto& listener : parts_.listeners) listener->resume();
}

}  // namespace gpunbd::server
