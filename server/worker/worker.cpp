#include "server/worker/worker.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
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

Worker::~Worker() = default;

void Worker::run() {
    while (!context_.io.stopped()) {
        context_.scheduler.round();
        if (!looking_ && context_.channels.waited_for()) look_again_later();
    }
}

void Worker::stop() {
    work_.reset();
    context_.io.stop();
}

void Worker::serve(int fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
                   std::shared_ptr<Slot> slot) {
    if (slot) slot->worker = this;
    ++connections_;
    try {
        asio::post(context_.io,
                   [this, fd, peer = std::move(peer), &exports, limits, slot = std::move(slot)] {
                       start(fd, peer, exports, limits, slot);
                   });
    } catch (...) {
        --connections_;
        throw;
    }
}

void Worker::evict(std::shared_ptr<Slot> slot) {
    asio::post(context_.io, [slot = std::move(slot)] {
        if (const auto session = slot->session.lock()) {
            session->cut("its handshake went for others, for it was the oldest of too many");
        }
    });
}

void Worker::start(int fd, Peer peer, const ExportRegistry& exports, const SessionLimits& limits,
                   std::shared_ptr<Slot> slot) {
    try {
        Socket socket(context_.io);
        // The protocol is only used to make new sockets; this one is there already.
        socket.assign(asio::generic::stream_protocol(AF_UNSPEC, 0), fd);
        fd = -1;  // the socket's
        auto session = std::make_shared<Session>(context_, std::move(socket), std::move(peer),
                                                 exports, limits, slot);
        if (slot) slot->session = session;
        sessions_.insert(session);
        asio::co_spawn(context_.io, session->run(),
                       [this, session](const std::exception_ptr&) { leave(session); });
    } catch (const std::exception& error) {
        spdlog::error("a connection cannot be served: {}", error.what());
        if (fd >= 0) ::close(fd);
        --connections_;
    }
}

void Worker::leave(const std::shared_ptr<Session>& session) {
    sessions_.erase(session);
    --connections_;
}

void Worker::drain_sessions() {
    asio::post(context_.io, [this] {
        const auto sessions = sessions_;
        for (const auto& session : sessions) session->drain();
    });
}

void Worker::cut_sessions() {
    asio::post(context_.io, [this] {
        const auto sessions = sessions_;
        for (const auto& session : sessions) session->cut("the grace period is over");
    });
}

void Worker::look_again_later() {
    looking_ = true;
    look_timer_.expires_after(stall_limit_ / looks_per_limit);
    look_timer_.async_wait([this](boost::system::error_code error) {
        looking_ = false;
        if (!error) look_for_stalled();
    });
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
