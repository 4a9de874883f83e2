#include "server/worker/worker.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <exception>
#include <vector>

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr std::uint32_t looks_per_limit = 10;
constexpr std::uint64_t min_rate = 64 * 1024;  // bytes a second; less is as good as nothing

}  // namespace

Worker::Worker(storage::ChannelOptions options, std::uint64_t max_memory, bool trace,
               std::chrono::milliseconds stall_limit)
    : context_(options, max_memory, trace),
      work_(asio::make_work_guard(context_.io)),
      stall_limit_(stall_limit),
      look_timer_(context_.io) {}

void Worker::run() {
    while (!context_.io.stopped()) {
        try {
            round();
        } catch (const std::exception& error) {
            spdlog::error("a worker's round ended early: {}", error.what());
        }
    }
}

void Worker::round() {
    context_.scheduler.round();
    if (!looking_ && context_.channels.waited_for()) look_again_later();
    if (finishing_.empty()) return;
    connections_ -= static_cast<std::uint32_t>(std::erase_if(
        finishing_, [](const auto& session) { return !session->connection().has_operations(); }));
}

void Worker::stop() {
    work_.reset();
    context_.io.stop();
}

void Worker::serve(int fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
                   std::shared_ptr<Slot> slot, std::shared_ptr<const TlsContext> tls,
                   std::unique_ptr<const ConnectionState> earlier) {
    if (slot) slot->worker = this;
    ++connections_;
    try {
        // Moved on from here, for a copy may find no memory before start() answers for `fd`.
        asio::post(context_.io,
                   [this, fd, peer = std::move(peer), &exports, limits, slot = std::move(slot),
                    tls = std::move(tls), earlier = std::move(earlier)]() mutable {
                       start(fd, std::move(peer), exports, limits, std::move(slot), std::move(tls),
                             std::move(earlier));
                   });
    } catch (const std::exception& error) {
        spdlog::error("a connection cannot be served: {}", error.what());
        ::close(fd);
        --connections_;
    }
}

void Worker::evict(std::shared_ptr<Slot> slot) {
    asio::post(context_.io, [slot = std::move(slot)] {
        if (const auto session = slot->session.lock()) session->evict();
    });
}

void Worker::end_connection(std::uint64_t id) {
    asio::post(context_.io, [this, id] {
        for (const auto& session : sessions_) {
            if (session->connection().counters().id == id) {
                return session->cut("the administrator ended it");
            }
        }
    });
}

void Worker::start(int fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
                   std::shared_ptr<Slot> slot, std::shared_ptr<const TlsContext> tls,
                   std::unique_ptr<const ConnectionState> earlier) {
    std::shared_ptr<Session> session;
    try {
        Socket socket(context_.io);
        // The protocol is only used to make new sockets; this one is there already.
        socket.assign(asio::generic::stream_protocol(AF_UNSPEC, 0), fd);
        fd = -1;  // the socket's
        session = std::make_shared<Session>(context_, std::move(socket), std::move(peer), exports,
                                            limits, slot, std::move(tls), std::move(earlier));
        if (slot) slot->session = session;
        sessions_.insert(session);
        session->start([this](Session& ended) { leave(ended.shared_from_this()); });
    } catch (const std::exception& error) {
        spdlog::error("a connection cannot be served: {}", error.what());
        if (fd >= 0) ::close(fd);
        leave(session);
    }
}

// It may be its own coroutine that calls this: it goes at the end of the round.
void Worker::leave(const std::shared_ptr<Session>& session) noexcept {
    auto place = sessions_.extract(session);
    if (place.empty()) {
        --connections_;
        return;
    }
    session->cut(Connection::no_memory);  // unless it has been closed
    finishing_.insert(std::move(place));
}

// None of them leaves from here.
template <typename Call>
void Worker::tell_sessions(Call call) {
    asio::post(context_.io, [this, call] {
        for (const auto& session : sessions_) call(*session);
    });
}

void Worker::look_at_access() {
    tell_sessions([](Session& session) { session.look_at_access(); });
}

void Worker::drain_sessions() {
    tell_sessions([](Session& session) { session.drain(); });
}

void Worker::cut_sessions() {
    tell_sessions([](Session& session) { session.cut("the grace period is over"); });
}

void Worker::pause_sessions() {
    tell_sessions([](Session& session) { session.pause(); });
}

void Worker::let_sessions_go_on() {
    tell_sessions([](Session& session) { session.go_on(); });
}

void Worker::let_unquiet_sessions_go_on() {
    tell_sessions([](Session& session) {
        if (!session.quiet()) session.go_on();
    });
}

void Worker::cut_unquiet_sessions(const char* reason) {
    tell_sessions([reason](Session& session) {
        if (!session.quiet()) session.cut(reason);
    });
}

void Worker::leave_sessions() {
    tell_sessions([](Session& session) { session.leave(); });
}

void Worker::count_unquiet(std::function<void(Unquiet)> told) {
    asio::post(context_.io, [this, told = std::move(told)] {
        Unquiet count;
        for (const auto& session : sessions_) {
            if (session->quiet()) continue;
            ++count.sessions;
            count.moved += session->connection().moved();
        }
        for (const auto& session : finishing_) {
            count.sessions += session->connection().has_operations() ? 1 : 0;
        }
        told(count);
    });
}

void Worker::move_sessions(
    std::function<void(std::vector<std::unique_ptr<Session::Moving>>)> told) {
    asio::post(context_.io, [this, told = std::move(told)] {
        std::vector<std::unique_ptr<Session::Moving>> moving;
        for (const auto& session : sessions_) {
            if (auto one = session->move_away()) moving.push_back(std::move(one));
        }
        told(std::move(moving));
    });
}

void Worker::look_again_later() {
    look_timer_.expires_after(stall_limit_ / looks_per_limit);
    look_timer_.async_wait(within(memory_to_look_, [this](boost::system::error_code error) {
        looking_ = false;
        if (!error) look_for_stalled();
    }));
    looking_ = true;
}

void Worker::look_for_stalled() {
    if (!context_.channels.waited_for()) return;
    const auto interval = std::chrono::duration<double>(stall_limit_) / looks_per_limit;
    const auto min_progress = 1 + static_cast<std::uint64_t>(min_rate * interval.count());
    bool somebody_starves = false;
    std::vector<std::shared_ptr<Session>> stalled;
    for (const auto& session : sessions_) {
        Connection& connection = session->connection();
        const std::uint32_t looks = connection.looks_without_progress(min_progress);
        if (looks == 0) continue;
        if (!connection.holds_staging()) {
            somebody_starves = somebody_starves || connection.has_operations();
        } else if (looks >= looks_per_limit) {
            stalled.push_back(session);
        }
    }
    if (!somebody_starves) return;
    for (const auto& session : stalled) {
        session->cut("it held memory that others wait for, and hardly sent or received");
    }
}

}  // namespace gpunbd::server
