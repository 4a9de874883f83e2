#include "server/nbd/worker.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <vector>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr std::uint32_t checks_per_limit = 10;
constexpr std::uint64_t min_rate = 64 * 1024;  // bytes per second

}  // namespace

Worker::Worker(storage::ChannelOptions options, std::uint64_t max_memory, bool trace,
               std::chrono::milliseconds stall_limit)
    : context_(options, max_memory, trace),
      work_(asio::make_work_guard(context_.io)),
      stall_limit_(stall_limit),
      stall_timer_(context_.io) {}

void Worker::run() {
    while (!context_.io.stopped()) {
        try {
            round();
        } catch (const std::exception& error) {
            spdlog::error("a worker failed to complete a round: {}", error.what());
        }
    }
}

void Worker::round() {
    context_.scheduler.round();
    if (!checking_stalls_ && context_.channels.waited_for()) check_stalls_later();
    if (!access_checks_.empty()) report_access_checked();
    if (finishing_.empty()) return;
    GPUNBD_ASSERT(connections_ >= finishing_.size(), "a connection counts until it has ended");
    connections_ -= static_cast<std::uint32_t>(std::erase_if(
        finishing_, [](const auto& session) { return !session->connection().has_operations(); }));
}

void Worker::stop() {
    work_.reset();
    context_.io.stop();
}

void Worker::serve(OwnedFd fd, Peer peer, const ExportRegistry& exports,
                   const SessionLimits& limits, std::shared_ptr<Slot> slot,
                   std::shared_ptr<const TlsContext> tls,
                   std::unique_ptr<const ConnectionState> earlier) {
    GPUNBD_ASSERT(fd.get() >= 0, "a worker serves a connected socket");
    if (slot) slot->worker = this;
    ++connections_;
    try {
        asio::post(context_.io, [this, fd = std::move(fd), peer = std::move(peer), &exports, limits,
                                 slot = std::move(slot), tls = std::move(tls),
                                 earlier = std::move(earlier)]() mutable {
            start(std::move(fd), std::move(peer), exports, limits, std::move(slot), std::move(tls),
                  std::move(earlier));
        });
    } catch (const std::exception& error) {
        spdlog::error("failed to serve a connection: {}", error.what());
        --connections_;
    }
}

void Worker::evict(std::shared_ptr<Slot> slot) {
    asio::post(context_.io, [slot = std::move(slot)] {
        if (const auto session = slot->session.lock()) session->evict();
    });
}

void Worker::end_connection(std::uint64_t id, std::function<void()> then) {
    asio::post(context_.io, [this, id, then = std::move(then)] {
        for (const auto& session : sessions_) {
            if (session->connection().counters().id != id) continue;
            session->cut("closed by the administrator");
            break;
        }
        then();
    });
}

void Worker::start(OwnedFd fd, Peer peer, const ExportRegistry& exports,
                   const SessionLimits& limits, std::shared_ptr<Slot> slot,
                   std::shared_ptr<const TlsContext> tls,
                   std::unique_ptr<const ConnectionState> earlier) {
    std::shared_ptr<Session> session;
    try {
        Socket socket(context_.io);
        // Asio uses the protocol only to create new sockets; this one exists already.
        socket.assign(asio::generic::stream_protocol(AF_UNSPEC, 0), fd.get());
        static_cast<void>(fd.release());  // the socket owns it now
        session = std::make_shared<Session>(context_, std::move(socket), std::move(peer), exports,
                                            limits, slot, std::move(tls), std::move(earlier));
        if (slot) slot->session = session;
        sessions_.insert(session);
        session->start([this](Session& ended) { leave(ended.shared_from_this()); });
    } catch (const std::exception& error) {
        spdlog::error("failed to serve a connection: {}", error.what());
        fd = OwnedFd();  // closed before the connection is counted as ended
        leave(session);
    }
}

// Its own coroutine may call this, so the session is destroyed at the end of the round.
void Worker::leave(const std::shared_ptr<Session>& session) noexcept {
    auto node = sessions_.extract(session);
    GPUNBD_ASSERT(connections_ != 0, "a connection that leaves has been counted");
    if (node.empty()) {
        --connections_;
        return;
    }
    session->cut(Connection::no_memory);  // no effect if it is closed
    finishing_.insert(std::move(node));
}

// `call` must not end the session.
template <typename Call>
void Worker::for_each_session(Call call) {
    asio::post(context_.io, [this, call] {
        for (const auto& session : sessions_) call(*session);
    });
}

// The list node is allocated here, since the worker's thread may have no memory left.
void Worker::check_access(std::function<void()> then) {
    std::list<std::function<void()>> waiting;
    waiting.push_back(std::move(then));
    asio::post(context_.io, [this, waiting = std::move(waiting)]() mutable {
        for (const auto& session : sessions_) session->check_access();
        for (const auto& session : finishing_) session->check_access();
        access_checks_.splice(access_checks_.end(), waiting);
    });
}

// A closed connection has answered its last request, but a copy of a WRITE may still be running.
void Worker::report_access_checked() {
    const auto holds = [](const auto& session) { return !session->has_refused_operations(); };
    if (!std::all_of(sessions_.begin(), sessions_.end(), holds) ||
        !std::all_of(finishing_.begin(), finishing_.end(), holds)) {
        return;
    }
    while (!access_checks_.empty()) {
        const std::function<void()> then = std::move(access_checks_.front());
        access_checks_.pop_front();
        then();
    }
}

void Worker::drain_sessions() {
    for_each_session([](Session& session) { session.drain(); });
}

void Worker::cut_sessions() {
    for_each_session([](Session& session) { session.cut("the grace period is over"); });
}

void Worker::quiesce_sessions() {
    for_each_session([](Session& session) { session.quiesce(); });
}

void Worker::resume_sessions() {
    for_each_session([](Session& session) { session.resume(); });
}

void Worker::resume_busy_sessions() {
    for_each_session([](Session& session) {
        if (!session.quiet()) session.resume();
    });
}

void Worker::cut_unread_sessions(const char* reason) {
    for_each_session([reason](Session& session) {
        if (!session.quiet() && session.connection().has_unsent_replies()) session.cut(reason);
    });
}

void Worker::leave_sessions() {
    for_each_session([](Session& session) { session.leave(); });
}

void Worker::count_busy(std::function<void(Busy)> done) {
    asio::post(context_.io, [this, done = std::move(done)] {
        Busy count;
        for (const auto& session : sessions_) {
            if (session->quiet()) continue;
            ++count.sessions;
            count.unread += session->connection().has_unsent_replies() ? 1 : 0;
            count.moved += session->connection().progress().moved();
        }
        for (const auto& session : finishing_) {
            count.sessions += session->connection().has_operations() ? 1 : 0;
        }
        done(count);
    });
}

void Worker::move_sessions(
    std::function<void(std::vector<std::unique_ptr<Session::Moving>>)> done) {
    asio::post(context_.io, [this, done = std::move(done)] {
        std::vector<std::unique_ptr<Session::Moving>> moving;
        for (const auto& session : sessions_) {
            if (auto one = session->move_away()) moving.push_back(std::move(one));
        }
        done(std::move(moving));
    });
}

void Worker::check_stalls_later() {
    GPUNBD_ASSERT(!checking_stalls_, "one check for stalled clients is due at a time");
    stall_timer_.expires_after(stall_limit_ / checks_per_limit);
    stall_timer_.async_wait(within(stall_wait_memory_, [this](boost::system::error_code error) {
        checking_stalls_ = false;
        if (!error) cut_stalled();
    }));
    checking_stalls_ = true;
}

void Worker::cut_stalled() {
    if (!context_.channels.waited_for()) return;
    const auto interval = std::chrono::duration<double>(stall_limit_) / checks_per_limit;
    const auto min_progress = 1 + static_cast<std::uint64_t>(min_rate * interval.count());
    bool starving = false;
    std::vector<std::shared_ptr<Session>> stalled;
    for (const auto& session : sessions_) {
        Connection& connection = session->connection();
        const std::uint32_t checks = connection.checks_without_progress(min_progress);
        if (checks == 0) continue;
        if (!connection.holds_staging()) {
            starving = starving || connection.has_operations();
        } else if (checks >= checks_per_limit) {
            stalled.push_back(session);
        }
    }
    if (!starving) return;
    for (const auto& session : stalled) {
        session->cut("it held memory that other clients needed, and transferred too little data");
    }
}

}  // namespace gpunbd::server
